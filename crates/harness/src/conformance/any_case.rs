//! Cases of every kind, behind one grammar of ids.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use super::{
    case::{Case, CaseError, Fault, Named},
    generate::Simplify,
    products::{self, ProductCase},
    runner::{self, Settings},
    verdict::Verdict,
};
use passmuster_collectives::{
    algorithms::Half,
    machine::Machine,
    plan::{BufferSpec, Build, Script},
};

/// One point of the test space, of whatever is tested.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AnyCase {
    /// Of a collective.
    Collective(Case),
    /// Of a product of matrices with a collective.
    Product(ProductCase),
}

impl AnyCase {
    /// Judges it on a machine. After a verdict of hang or crash the machine must not be used again.
    pub fn judge(&self, machine: &mut dyn Machine, settings: &Settings<'_>) -> Verdict {
        match self {
            AnyCase::Collective(case) => runner::judge(case, machine, settings),
            AnyCase::Product(case) => products::judge(case, machine, settings),
        }
    }

    /// What it would do, where a rank has so many blocks that may wait for peers: its buffers, its steps and the plan of each call.
    ///
    /// # Errors
    /// Why it is not supported.
    pub fn describe(&self, waiting_blocks: u32) -> Result<String, String> {
        self.prepared(waiting_blocks).map(|(groups, script)| runner::described(self, &groups, &script))
    }

    /// The kernel modules that it launches, with their builds. What is not supported launches nothing.
    pub fn modules(&self, waiting_blocks: u32) -> BTreeSet<(String, Build)> {
        self.prepared(waiting_blocks).map_or_else(|_| BTreeSet::new(), |(_, script)| runner::modules(&script))
    }

    fn prepared(&self, waiting_blocks: u32) -> Result<(Vec<Vec<BufferSpec>>, Script), String> {
        match self {
            AnyCase::Collective(case) => runner::prepared(case, waiting_blocks),
            AnyCase::Product(case) => products::prepared(case, waiting_blocks),
        }
    }

    /// Environment variables that the machine's process needs for it.
    pub fn environment(&self) -> BTreeMap<&'static str, &'static str> {
        match self {
            AnyCase::Collective(case) => case.environment(),
            AnyCase::Product(case) => case.environment(),
        }
    }

    /// The fault that it injects.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            AnyCase::Collective(case) => case.fault,
            AnyCase::Product(case) => case.fault,
        }
    }

    /// Bytes of all ranks' inputs of one call.
    pub fn input_bytes(&self) -> u64 {
        match self {
            AnyCase::Collective(case) => case.count.saturating_mul(case.dtype.size()).saturating_mul(case.world.into()),
            AnyCase::Product(case) => case.input_bytes(),
        }
    }

    fn named(&self) -> &dyn Named {
        match self {
            AnyCase::Collective(case) => case,
            AnyCase::Product(case) => case,
        }
    }
}

impl From<Case> for AnyCase {
    fn from(case: Case) -> AnyCase {
        AnyCase::Collective(case)
    }
}

impl From<ProductCase> for AnyCase {
    fn from(case: ProductCase) -> AnyCase {
        AnyCase::Product(case)
    }
}

impl Simplify for AnyCase {
    fn simpler(&self) -> Vec<AnyCase> {
        match self {
            AnyCase::Collective(case) => case.simpler().into_iter().map(AnyCase::from).collect(),
            AnyCase::Product(case) => case.simpler().into_iter().map(AnyCase::from).collect(),
        }
    }
}

impl Named for AnyCase {
    fn head(&self) -> [&str; 4] {
        self.named().head()
    }

    fn fields(&self) -> Vec<(&'static str, String)> {
        self.named().fields()
    }

    fn default_of(&self, key: &str) -> &'static str {
        self.named().default_of(key)
    }
}

impl fmt::Display for AnyCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_id(f)
    }
}

impl FromStr for AnyCase {
    type Err = CaseError;

    fn from_str(id: &str) -> Result<AnyCase, CaseError> {
        if Half::of(id).is_some() { id.parse().map(AnyCase::Product) } else { id.parse().map(AnyCase::Collective) }
    }
}
