//! Cases of every kind, behind one grammar of ids.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use super::{
    collective_case::{CaseError, CaseId, CollectiveCase, Fault},
    products::{self, ProductCase},
    runner::{self, Settings},
    shrink::Simplify,
    tasks::{self, TaskCase},
    verdict::Verdict,
};
use passmuster_plan::{
    algorithms::{Registry, TensorParallelFusion},
    machine::Machine,
    plan::{BufferSpec, Launch, Op, Script},
};

/// One point of the test space, of whatever is tested.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Case {
    /// Of a collective.
    Collective(CollectiveCase),
    /// Of a product of matrices with a collective.
    Product(ProductCase),
    /// Of a task that an author declares.
    Task(TaskCase),
}

impl Case {
    /// Judges it on a machine, which must not be used again if the verdict [says so](Verdict::voids_device). Where a fault is injected, the verdict says
    /// whether the run [named it](super::faults::named).
    pub fn judge(&self, machine: &mut dyn Machine, settings: &Settings<'_>) -> Verdict {
        match self {
            Case::Collective(case) => runner::judge(case, machine, settings),
            Case::Product(case) => products::judge(case, machine, settings),
            Case::Task(case) => tasks::judge(case, machine, settings),
        }
    }

    /// What it would do if a rank has `waiting_blocks` blocks that may wait for peers: its buffers, its steps and the plan of each call.
    ///
    /// # Errors
    /// Why it is not supported.
    pub fn describe(&self, registry: &Registry, waiting_blocks: u32) -> Result<String, String> {
        self.prepared(registry, waiting_blocks).map(|(groups, script)| runner::described(self, &groups, &script))
    }

    /// The kernel modules that it launches. What is not supported launches nothing.
    pub fn modules(&self, registry: &Registry, waiting_blocks: u32) -> BTreeSet<String> {
        self.prepared(registry, waiting_blocks).map_or_else(|_| BTreeSet::new(), |(_, script)| runner::modules(&script))
    }

    /// The launches of a rank in the plans of its calls, in order. What is not supported launches nothing.
    pub fn launches(&self, registry: &Registry, waiting_blocks: u32, rank: usize) -> Vec<Launch> {
        let Ok((_, script)) = self.prepared(registry, waiting_blocks) else { return Vec::new() };
        let plans = script.plans().filter(|plan| rank < plan.world());
        let launch = |op: &Op| if let Op::Launch(launch) = op { Some(launch.clone()) } else { None };
        plans.flat_map(|plan| plan.operations(rank).filter_map(launch)).collect()
    }

    /// Its buffers and its script, if a rank has `waiting_blocks` blocks that may wait for peers.
    ///
    /// # Errors
    /// Why it is not supported.
    pub(super) fn prepared(&self, registry: &Registry, waiting_blocks: u32) -> Result<(Vec<Vec<BufferSpec>>, Script), String> {
        match self {
            Case::Collective(case) => runner::prepared(registry, case, waiting_blocks),
            Case::Product(case) => products::prepared(registry, case, waiting_blocks),
            Case::Task(case) => tasks::prepared(registry, case, waiting_blocks),
        }
    }

    /// Environment variables that the machine's process needs for it.
    pub fn environment(&self, registry: &Registry) -> BTreeMap<&'static str, &'static str> {
        match self {
            Case::Collective(case) => case.environment(registry),
            Case::Product(case) => case.environment(registry),
            Case::Task(_) => BTreeMap::new(),
        }
    }

    /// Reads an id whose algorithms a registry has.
    ///
    /// # Errors
    /// What is wrong with the id, or an unknown algorithm with the names there are.
    pub fn resolve(id: &str, registry: &Registry) -> Result<Case, CaseError> {
        let case: Case = id.parse()?;
        case.check_known(registry)?;
        Ok(case)
    }

    /// Whether a registry has all the algorithms that the case names.
    ///
    /// # Errors
    /// An unknown algorithm, with the names there are.
    pub fn check_known(&self, registry: &Registry) -> Result<(), CaseError> {
        let known = match self {
            Case::Collective(case) => case.check_known(registry),
            Case::Product(case) => case.check_known(registry).map_err(String::from),
            Case::Task(case) => case.check_known(registry).map_err(String::from),
        };
        known.map_err(|problem| CaseError::new(&self.to_string(), problem))
    }

    /// Ranks.
    pub fn world(&self) -> u32 {
        match self {
            Case::Collective(case) => case.world,
            Case::Product(case) => case.world,
            Case::Task(case) => case.world,
        }
    }

    /// The fault that it injects.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Case::Collective(case) => case.fault,
            Case::Product(case) => case.fault,
            Case::Task(case) => case.fault,
        }
    }

    /// Bytes of all ranks' inputs of one call; of a sequence, of the largest. Of a task, about: it is not known here which of its tensors are how large.
    pub fn input_bytes(&self) -> u64 {
        match self {
            Case::Collective(case) => {
                let shape = case.shape(case.largest_count());
                shape.input().saturating_mul(case.dtype.size()).saturating_mul(case.world.into())
            }
            Case::Product(case) => case.input_bytes(),
            Case::Task(case) => case.size().saturating_mul(case.dtype.size()).saturating_mul(case.world.into()),
        }
    }

    /// Elements of all ranks' inputs or outputs of all its calls, whichever are more, about; of products, none; of a task, the product of its parameters.
    pub fn elements_of_calls(&self) -> u64 {
        match self {
            Case::Collective(case) => case.elements_of_calls(),
            Case::Product(_) => 0,
            Case::Task(case) => case.size(),
        }
    }

    /// Elements of all ranks' inputs or outputs of its largest call, whichever are more: what machines are asked whether they afford it.
    pub(super) fn elements(&self) -> Option<u64> {
        if let Case::Collective(case) = self { Some(case.elements()) } else { None }
    }

    fn named(&self) -> &dyn CaseId {
        match self {
            Case::Collective(case) => case,
            Case::Product(case) => case,
            Case::Task(case) => case,
        }
    }
}

impl From<CollectiveCase> for Case {
    fn from(case: CollectiveCase) -> Case {
        Case::Collective(case)
    }
}

impl From<ProductCase> for Case {
    fn from(case: ProductCase) -> Case {
        Case::Product(case)
    }
}

impl From<TaskCase> for Case {
    fn from(case: TaskCase) -> Case {
        Case::Task(case)
    }
}

impl Simplify for Case {
    fn simpler(&self) -> Vec<Case> {
        match self {
            Case::Collective(case) => case.simpler().into_iter().map(Case::from).collect(),
            Case::Product(case) => case.simpler().into_iter().map(Case::from).collect(),
            Case::Task(case) => case.simpler().into_iter().map(Case::from).collect(),
        }
    }
}

/// A case of a registry. Parameters of a task get values that it declares.
#[derive(Clone, Debug)]
pub struct Known<'r> {
    /// The case.
    pub case: Case,
    /// Where its algorithm is.
    pub registry: &'r Registry,
}

impl Simplify for Known<'_> {
    fn simpler(&self) -> Vec<Self> {
        let cases = match &self.case {
            Case::Task(case) => match case.algorithm(self.registry) {
                Ok(algorithm) => case.simpler_of(algorithm.task()).into_iter().map(Case::from).collect(),
                Err(_) => Vec::new(),
            },
            other => other.simpler(),
        };
        cases.into_iter().map(|case| Known { case, ..*self }).collect()
    }
}

impl CaseId for Case {
    fn head(&self) -> [&str; 4] {
        self.named().head()
    }

    fn fields(&self) -> Vec<(&str, String)> {
        self.named().fields()
    }

    fn default_of(&self, key: &str) -> &'static str {
        self.named().default_of(key)
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_id(f)
    }
}

impl FromStr for Case {
    type Err = CaseError;

    fn from_str(id: &str) -> Result<Case, CaseError> {
        if tasks::is_of_task(id) {
            return id.parse().map(Case::Task);
        }
        if TensorParallelFusion::of(id).is_some() { id.parse().map(Case::Product) } else { id.parse().map(Case::Collective) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::REGISTRY;
    use passmuster_plan::collective::{Collective, DType};
    use rstest::rstest;

    /// If this fails, a case gets a deadline for less than it has to move: what takes long is then called a hang.
    #[rstest]
    #[case::all_reduce("all_reduce/two_shot:bf16,sum:w=4:n=100", 4 * 100 * 2)]
    #[case::all_gather("all_gather/push:f64,copy:w=4:n=100:in_place", 4 * 100 * 8)]
    #[case::reduce_scatter("reduce_scatter/pull:bf16,sum:w=4:n=100", 4 * 4 * 100 * 2)]
    #[case::all_to_all("all_to_all/push:f32,copy:w=3:n=100", 3 * 3 * 100 * 4)]
    #[case::broadcast("broadcast/push:bf16,copy:w=4:n=100:root=2", 4 * 100 * 2)]
    #[case::reduce("reduce/pull:f32,max:w=5:n=100", 5 * 100 * 4)]
    #[case::sequence("reduce_scatter/pull:bf16,sum:w=2:calls=pull.7+[pull.30.off1+pull.9]x2", 2 * 2 * 30 * 2)]
    #[case::gathered("all_gather_matmul/push+matmul:bf16,nk:w=2:rows=8:columns=16:depth=24", 2 * 8 * 24 * 2)]
    #[case::scattered("matmul_reduce_scatter/chunked:bf16,nk:w=2:rows=8:columns=16:depth=24", 2 * 2 * 8 * 24 * 2)]
    fn input_bytes_are_those_of_all_slots(#[case] id: &str, #[case] bytes: u64) {
        assert_eq!(id.parse::<Case>().unwrap().input_bytes(), bytes);
    }

    /// The same for every collective, compared with the buffers that its case opens.
    #[test]
    fn input_bytes_are_those_of_the_buffers() {
        for collective in Collective::ALL {
            let algorithm = REGISTRY.of(collective).next().unwrap();
            let case: Case = CollectiveCase::new(collective, algorithm.name(), DType::F32, collective.operators()[0], 4, 100).into();
            let (groups, _) = case.prepared(&REGISTRY, 16).unwrap();
            let input = groups[0].iter().find(|buffer| buffer.name == "input.0").unwrap();
            assert_eq!(case.input_bytes(), 4 * input.bytes, "{case}");
        }
    }
}
