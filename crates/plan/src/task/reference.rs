//! References: what a task's outputs are, computed from its inputs by somebody else than the kernel.

use super::TaskCall;

/// A tensor of one rank, as numbers. 64-bit integers are rounded to f64.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Array {
    /// Its dimensions.
    pub shape: Vec<u64>,
    /// Its elements, the last dimension varying fastest.
    pub values: Vec<f64>,
}

/// An output of one rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Computed {
    /// The value of each element, in f64 or exact.
    pub values: Vec<f64>,
    /// For each element what bounds its error: the sum of the magnitudes of what was added up. The value's own magnitude where it is not told.
    pub magnitudes: Option<Vec<f64>>,
}

/// What a reference is given: one call, and the inputs of all ranks.
#[derive(Clone, Debug)]
pub struct ReferenceCall<'c> {
    /// The call.
    pub call: &'c TaskCall,
    /// For each tensor of the task that is an input, in their order, and for each rank, its elements.
    pub inputs: &'c [Vec<Array>],
}

impl ReferenceCall<'_> {
    /// An input of all ranks, by its name.
    ///
    /// # Errors
    /// The task has no input of this name.
    pub fn input(&self, name: &str) -> Result<&[Array], ReferenceError> {
        let at = self.call.task.inputs().position(|(_, tensor)| tensor.name == name);
        at.map(|at| &self.inputs[at][..]).ok_or_else(|| ReferenceError(format!("the task has no input `{name}`")))
    }
}

/// Why a reference has no answer. It is never a finding of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReferenceError(pub String);

/// Computes what a task's outputs are. It must give the same answer for the same call.
pub trait Reference: Send + Sync {
    /// For each output of the task, in their order, and for each rank, its elements.
    ///
    /// # Errors
    /// Why there are none.
    fn outputs(&self, call: &ReferenceCall<'_>) -> Result<Vec<Vec<Computed>>, ReferenceError>;

    /// What it is, for reports: `all_reduce_rms_norm, built in`.
    fn describe(&self) -> String;
}
