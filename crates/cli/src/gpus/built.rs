//! GPUs by `passmuster-cuda`.

use passmuster_bootstrap::Rank;
use passmuster_cuda::{CudaMachine, CudaOptions};
use passmuster_plan::{
    algorithms::{Nccl, Registry},
    library::Library,
    machine::{Machine, MachineError},
};

use super::{Gpus, Watch};

/// Makes this process one that may open GPUs.
///
/// # Safety
/// As [`passmuster_cuda::prepare_process`]: there are no other threads yet.
pub(crate) unsafe fn prepare_process() {
    // SAFETY: the caller says so.
    unsafe { passmuster_cuda::prepare_process() };
}

/// What GPUs are opened with.
fn options(gpus: &Gpus, library: Library, watch: Option<Watch>) -> CudaOptions {
    CudaOptions {
        gpus: gpus.numbers.clone(),
        nccl_lib: gpus.nccl_lib.clone(),
        cublas_lt_lib: gpus.cublas_lt_lib.clone(),
        library,
        wait_limit: gpus.wait_limit,
        batch_copies: gpus.batch_copies,
        watch,
    }
}

/// Opens GPUs.
///
/// # Errors
/// Why this machine cannot.
pub(crate) fn open(gpus: &Gpus, library: Library, watch: Option<Watch>) -> Result<Box<dyn Machine>, String> {
    let machine = CudaMachine::open(options(gpus, library, watch)).map_err(|error| error.to_string())?;
    Ok(Box::new(machine))
}

/// Opens GPUs for cases. Loads NCCL if the environment asks for one of its modes, so that records have its version.
///
/// # Errors
/// As [`open`].
pub(crate) fn open_for_cases(registry: &Registry, gpus: &Gpus, library: Library, watch: Option<Watch>) -> Result<Box<dyn Machine>, String> {
    let mut machine = CudaMachine::open(options(gpus, library, watch)).map_err(|error| error.to_string())?;
    load_wanted(registry, &mut machine);
    Ok(Box::new(machine))
}

/// Opens the GPU of this process, which is one rank of the machine: number `local_rank` on its host, with the ranks spread over `nodes` nodes.
///
/// # Errors
/// Where it cannot, or other ranks cannot.
pub(crate) fn open_rank(
    registry: &Registry,
    gpus: &Gpus,
    library: Library,
    rank: &Rank,
    (local_rank, nodes): (usize, usize),
) -> Result<Box<dyn Machine>, MachineError> {
    let mut machine = CudaMachine::open_rank(options(gpus, library, None), Box::new(rank.clone()), local_rank, nodes)?;
    load_wanted(registry, &mut machine);
    Ok(Box::new(machine))
}

fn load_wanted(registry: &Registry, machine: &mut CudaMachine) {
    if wants_nccl(registry, |name| std::env::var_os(name).is_some())
        && let Err(error) = machine.load_nccl()
    {
        // The cases that need it say so, each by itself.
        eprintln!("{error}");
    }
}

/// Whether the environment is one that cases of NCCL are judged in.
fn wants_nccl(registry: &Registry, is_set: impl Fn(&str) -> bool) -> bool {
    let peers = Nccl::bench_only();
    registry.algorithms().iter().chain(&peers).flat_map(|a| a.environment()).any(|(name, _)| is_set(name))
}

#[cfg(test)]
mod tests {
    use passmuster_harness::conformance::List;

    use super::*;

    /// If this fails, the worker of such cases does not say which NCCL it has.
    #[test]
    fn every_environment_of_a_case_is_one_of_nccl() {
        let registry = crate::built_in();
        assert!(!wants_nccl(&registry, |_| false));
        for case in List::Merge.all_cases(&registry, 0) {
            let environment = case.environment(&registry);
            assert!(environment.is_empty() || wants_nccl(&registry, |name| environment.keys().any(|set| *set == name)), "{case}");
        }
    }
}
