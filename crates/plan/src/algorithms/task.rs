//! Algorithms of tasks that authors declare.

use std::sync::Arc;

use super::Target;
use crate::{
    collective::DType,
    contract::Contract,
    plan::{BufferSpec, Plan},
    task::{Reference, Task, TaskCall},
};

/// One way to do a task.
pub trait TaskAlgorithm: Send + Sync {
    /// The task that it does.
    fn task(&self) -> &Arc<Task>;

    /// Its name, unique within the task.
    fn name(&self) -> &str;

    /// What it is judged by.
    fn reference(&self) -> &Arc<dyn Reference>;

    /// What it promises of its calls as a whole: that they repeat themselves, and that graphs give what eager calls do. Each output has its own
    /// [acceptance](crate::task::Acceptance).
    fn contract(&self) -> Contract;

    /// As [`Algorithm::assumes`](super::Algorithm::assumes).
    fn assumes(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// The types that it is for.
    fn dtypes(&self) -> &[DType];

    /// The world sizes that it is for.
    fn worlds(&self) -> &[u32];

    /// Whether its launches are given the number of the call, which a graph would repeat.
    fn numbers_calls(&self) -> bool {
        false
    }

    /// What every 32-bit word of its signals and state may start with beside zero: see [`Foreign::start`](super::Foreign::start).
    fn start(&self) -> Option<u32> {
        None
    }

    /// Buffers that it needs beside the tensors, for a group that makes these calls.
    ///
    /// # Errors
    /// Why it cannot make them.
    fn workspace(&self, calls: &[TaskCall]) -> Result<Vec<BufferSpec>, String>;

    /// What all ranks do in one of the calls of a group.
    ///
    /// # Errors
    /// Why it cannot do the call, for people.
    fn plan(&self, call: &TaskCall, calls: &[TaskCall], target: &Target) -> Result<Plan, String>;
}
