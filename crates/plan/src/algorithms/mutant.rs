//! Planted bugs: kernels of a library with one bug each, by which the checks of a harness are held to account.

use serde::{Deserialize, Serialize};

use super::{Registry, TensorParallelFusion, kit};
use crate::{
    collective::{DType, ReduceOp},
    library::Library,
    modules::{Module, entries},
};

/// A kernel with a planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mutant {
    /// Its name, and that of fixtures/mutants/NAME.toml.
    pub name: &'static str,
    /// What goes wrong.
    pub kind: MutantKind,
    /// The bug, in one line.
    pub description: &'static str,
    /// The kernel module that it takes the place of: `all_reduce/two_shot`.
    pub module: &'static str,
    /// Whose cases it is judged on: the module's, or those of an algorithm that launches it as well, as `reduce_scatter/pull` does
    /// `all_reduce/one_shot`.
    pub shown_by: &'static str,
    /// The element type that it is built for; it has no other entry.
    pub dtype: DType,
    /// The operator that it is built for.
    pub op: ReduceOp,
    /// What was edited.
    pub edits: &'static [Edit],
    /// What it compiles to.
    #[serde(skip)]
    pub ptx: &'static str,
}

/// What goes wrong in a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MutantKind {
    /// Numbers: any run of a case that reaches the bug shows it.
    Value,
    /// Synchronisation: numbers are wrong under some schedules only, or ranks wait for ever.
    Sync,
}

impl MutantKind {
    /// The name in reports and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            MutantKind::Value => "value",
            MutantKind::Sync => "sync",
        }
    }
}

/// One change of a mutant's sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Edit {
    /// Path under the project's root.
    pub file: &'static str,
    /// Text that was there exactly once.
    pub find: &'static str,
    /// What took its place.
    pub replace: &'static str,
}

impl Mutant {
    /// The kernels with this mutant in its module's place.
    pub fn library(&self, registry: &Registry) -> Library {
        let mut library = registry.library();
        library.replace(self.module, self.ptx);
        library
    }

    /// The same with all entries of the module, of which the mutant has the one that shows it.
    pub fn library_with_all_entries(&self, registry: &Registry) -> Library {
        let mut ptx = self.of(registry).ptx.to_owned();
        for entry in entries(self.ptx) {
            if let (Some(own), Some(real)) = (text_of_entry(self.ptx, entry), text_of_entry(&ptx, entry)) {
                ptx.replace_range(real, &self.ptx[own]);
            }
        }
        let mut library = registry.library();
        library.replace(self.module, ptx);
        library
    }

    /// The module that it takes the place of.
    ///
    /// # Panics
    /// If the registry has no such module.
    pub fn of(&self, registry: &Registry) -> &'static Module {
        registry.module(self.module).expect("a mutant is of a module that is there")
    }

    /// The half of tensor parallelism whose kernel it is; none where it is a collective's.
    pub fn half(&self) -> Option<TensorParallelFusion> {
        TensorParallelFusion::of(self.module)
    }

    /// The name of its one entry.
    ///
    /// # Panics
    /// If the registry has no such module.
    pub fn entry(&self, registry: &Registry) -> String {
        kit::entry(self.of(registry), self.dtype, self.op)
    }
}

/// Where an entry stands in a module's text: up to the next one.
fn text_of_entry(ptx: &str, entry: &str) -> Option<std::ops::Range<usize>> {
    const ENTRY: &str = ".visible .entry ";
    let start = ptx.find(&format!("{ENTRY}{entry}("))?;
    let after = start + ENTRY.len();
    Some(start..ptx[after..].find(ENTRY).map_or(ptx.len(), |next| after + next))
}
