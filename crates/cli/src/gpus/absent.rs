//! No GPUs: the same functions, which say so.

use passmuster_bootstrap::Rank;
use passmuster_plan::{
    algorithms::Registry,
    library::Library,
    machine::{Machine, MachineError},
};

use super::{Gpus, Watch};

/// What is said in place of opening GPUs.
const WITHOUT: &str = "this command was built without the feature `gpu`";

pub(crate) unsafe fn prepare_process() {}

pub(crate) fn open(_: &Gpus, _: Library, _: Option<Watch>) -> Result<Box<dyn Machine>, String> {
    Err(WITHOUT.into())
}

pub(crate) fn open_for_cases(_: &Registry, _: &Gpus, _: Library, _: Option<Watch>) -> Result<Box<dyn Machine>, String> {
    Err(WITHOUT.into())
}

pub(crate) fn open_rank(_: &Registry, _: &Gpus, _: Library, _: &Rank, _: (usize, usize)) -> Result<Box<dyn Machine>, MachineError> {
    Err(MachineError::NotSupported { reason: WITHOUT.into() })
}
