//! Contenders: who is timed on a workload, by name.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    MatmulWorkload, Scenario, Torch, Workload,
    devices::{Devices, Environment},
    job::Job,
    scenarios::{Fsdp, How, Multiplier, OverlapContender, Pipeline},
};
use passmuster_plan::{
    algorithms::{Algorithm, Registry, Target},
    machine::MachineError,
    modules::FOREIGN,
};

/// What names of collectives end with whose ranks are in processes of their own.
pub const IN_PROCESSES: &str = "@processes";

/// One way to do a workload.
#[derive(Clone)]
pub enum Contender {
    /// A collective.
    Algorithm(Arc<dyn Algorithm>),
    /// The same with each rank in a process of its own, not a thread of one.
    InProcesses(Arc<dyn Algorithm>),
    /// A product of a gathered matrix.
    Multiplier(Multiplier),
    /// A product and a gather that have nothing to do with each other.
    OverlapContender(OverlapContender),
    /// A training step of sharded layers.
    Fsdp(Fsdp),
    /// Batches that are exchanged.
    Pipeline(Pipeline),
    /// PyTorch's.
    Torch(Torch),
}

/// The process that a contender runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProcessKind {
    /// One of ours, which holds all GPUs.
    Machine(Environment),
    /// Processes of ours, one for each of this many ranks. Each holds its rank's GPU. All are started in this environment.
    Ranks(Environment, u32),
    /// One of ours that times nothing, and runs on all GPUs between others.
    Beside,
    /// This many ranks of Python's.
    Python(u32),
}

impl From<Arc<dyn Algorithm>> for Contender {
    fn from(algorithm: Arc<dyn Algorithm>) -> Contender {
        Contender::Algorithm(algorithm)
    }
}

impl Contender {
    /// The contender of a name for workloads of a kind.
    ///
    /// # Errors
    /// Names those there are.
    pub fn find(registry: &Registry, workload: &Workload, name: &str) -> Result<Contender, String> {
        if let Some(in_threads) = name.strip_suffix(IN_PROCESSES) {
            let found = Contender::find(registry, workload, in_threads)?;
            return found
                .in_processes()
                .ok_or_else(|| format!("{name}: only collectives of ours, of NCCL and from elsewhere are timed with ranks in processes"));
        }
        let name = name.strip_prefix(FOREIGN).unwrap_or(name);
        if let Some(torch) = Torch::of(workload).iter().find(|torch| torch.name() == name) {
            return Ok(Contender::Torch(*torch));
        }
        match workload {
            Workload::Collective(of) => registry.find(of.collective, name).map(Contender::Algorithm).map_err(|error| error.to_string()),
            Workload::Matmul(of) => match of.scenario {
                Scenario::AllGatherMatmul | Scenario::MatmulReduceScatter => {
                    Multiplier::find(registry, of.scenario, name).map(Contender::Multiplier)
                }
                Scenario::Overlap => name.parse().map(Contender::OverlapContender),
            },
            Workload::Fsdp(_) => name.parse().map(Contender::Fsdp),
            Workload::Pipeline(_) => Pipeline::find(registry, name).map(Contender::Pipeline),
        }
    }

    /// Its name, unique among the contenders of a workload.
    pub fn name(&self) -> String {
        match self {
            Contender::Algorithm(algorithm) if algorithm.is_foreign() => format!("{FOREIGN}{}", algorithm.name()),
            Contender::Algorithm(algorithm) => algorithm.name().into(),
            Contender::InProcesses(algorithm) => Contender::Algorithm(algorithm.clone()).name() + IN_PROCESSES,
            Contender::Multiplier(multiplier) => multiplier.name().into(),
            Contender::OverlapContender(arm) => arm.name(),
            Contender::Fsdp(step) => step.name(),
            Contender::Pipeline(pipeline) => pipeline.name(),
            Contender::Torch(torch) => torch.name().into(),
        }
    }

    /// The algorithm of a collective.
    pub fn algorithm(&self) -> Option<&Arc<dyn Algorithm>> {
        match self {
            Contender::Algorithm(algorithm) | Contender::InProcesses(algorithm) => Some(algorithm),
            _ => None,
        }
    }

    /// The same with its ranks in processes of their own; `None` for what is timed in one way only.
    pub fn in_processes(&self) -> Option<Contender> {
        if let Contender::Algorithm(algorithm) = self { Some(Contender::InProcesses(algorithm.clone())) } else { None }
    }

    /// Where it runs a workload.
    pub fn place(&self, workload: &Workload) -> ProcessKind {
        match self {
            Contender::Algorithm(algorithm) => ProcessKind::Machine(algorithm.environment()),
            Contender::InProcesses(algorithm) => ProcessKind::Ranks(algorithm.environment(), workload.world()),
            Contender::Multiplier(multiplier) => ProcessKind::Machine(multiplier.environment()),
            Contender::OverlapContender(arm) => ProcessKind::Machine(arm.environment()),
            Contender::Fsdp(step) => ProcessKind::Machine(step.environment()),
            Contender::Pipeline(pipeline) => ProcessKind::Machine(pipeline.environment()),
            Contender::Torch(_) => ProcessKind::Python(workload.world()),
        }
    }

    /// What it gathers beside products, as a gather alone; none where it does not.
    pub(super) fn gather(&self, workload: &Workload) -> Option<(OverlapContender, MatmulWorkload)> {
        let (gather, of) = match (self, workload) {
            (Contender::OverlapContender(arm), Workload::Matmul(of)) => (arm.gather.clone()?, *of),
            (Contender::Fsdp(step), Workload::Fsdp(of)) => {
                let gathered = of.shard() * of.dtype.size();
                let (scenario, dtype, world) = (Scenario::Overlap, of.dtype, of.world);
                (step.gather()?, MatmulWorkload { scenario, dtype, world, n: of.n, k: of.k, m: of.m, gathered, out_of_place: true })
            }
            _ => return None,
        };
        Some((OverlapContender { how: How::Gather, gather: Some(gather), sms: None }, of))
    }

    /// The kernel modules that its plans launch for a workload. What it does not do launches nothing, as Python's ranks launch nothing of ours.
    pub fn modules(&self, workload: &Workload) -> BTreeSet<String> {
        let devices = Devices::of_nobody(Target::default());
        self.job(workload, 1, &devices).map_or_else(|_| BTreeSet::new(), |job| job.plans.iter().flat_map(|plan| plan.modules()).collect())
    }

    /// What it does for a workload, with `copies` copies of the buffers.
    ///
    /// # Errors
    /// `NotSupported` where it does not do it, `Invalid` where the workload is not one of its kind.
    pub(super) fn job(&self, workload: &Workload, copies: u32, devices: &Devices) -> Result<Job, MachineError> {
        let job = match (self, workload) {
            (Contender::Algorithm(algorithm) | Contender::InProcesses(algorithm), Workload::Collective(of)) => {
                Job::of_collective(algorithm, of, copies, &devices.target)
            }
            (Contender::Multiplier(multiplier), Workload::Matmul(of)) => multiplier.job(of, copies, devices),
            (Contender::OverlapContender(arm), Workload::Matmul(of)) => arm.job(of, copies, devices),
            (Contender::Fsdp(step), Workload::Fsdp(of)) => step.job(of, devices),
            (Contender::Pipeline(pipeline), Workload::Pipeline(of)) => pipeline.job(of, devices),
            (Contender::Torch(torch), _) => Err(format!("{} runs in Python", torch.name())),
            _ => return Err(MachineError::Invalid { reason: format!("{} is no contender for {}", self.name(), workload.title()) }),
        };
        job.map_err(|reason| MachineError::NotSupported { reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CollectiveWorkload, Side, side};
    use passmuster_plan::collective::{Collective, DType, ReduceOp};

    /// If this fails, a worker times ranks in threads under the name of those in processes, or a record's contender is not found again.
    #[test]
    fn a_contender_in_processes_is_found_by_its_name() {
        let (collective, dtype, op) = (Collective::AllReduce, DType::BF16, ReduceOp::Sum);
        let workload: Workload = CollectiveWorkload { collective, dtype, op, world: 2, bytes: 1024, in_place: false }.into();
        let find = |name: &str| Contender::find(&passmuster_harness::registry(passmuster_kernels::catalogue()), &workload, name);
        for name in ["two_shot", "nccl_ring"] {
            let threads = find(name).unwrap();
            let processes = find(&format!("{name}@processes")).unwrap();
            assert_eq!(threads.in_processes().unwrap().name(), processes.name());
            let environment = threads.algorithm().unwrap().environment();
            assert_eq!(
                [&threads, &processes].map(|contender| contender.place(&workload)),
                [ProcessKind::Machine(environment), ProcessKind::Ranks(environment, 2)]
            );
            assert_eq!(threads.modules(&workload), processes.modules(&workload));
            assert_eq!(side(&workload, &processes.name()), Side::Part, "what is timed twice has one chance to be the best");
        }
        for name in ["torch_one_shot@processes", "two_shot@processes@processes"] {
            let refused = find(name).map(|contender| contender.name()).unwrap_err();
            assert!(refused.starts_with(&format!("{name}: only collectives")), "{refused}");
        }
        assert_eq!(find("shot@processes").map(|_| ()), find("shot").map(|_| ()));
    }
}
