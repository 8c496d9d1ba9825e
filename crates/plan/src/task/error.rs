//! Why there is no such task, or no such call of one.

use super::{MOST_PARAMETERS, MOST_TENSORS};

/// Why there is no such task, or no such call of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// A name that case ids cannot have.
    #[error("{what} `{name}`: 1 to 64 of a-z, 0-9 and _, a letter first")]
    Name {
        /// What is called so.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// Too many parameters.
    #[error("{0} parameters: a task has at most {MOST_PARAMETERS}")]
    Parameters(usize),
    /// A parameter has a name that means something else.
    #[error("parameter `{0}`: expressions or case ids use this name already")]
    Reserved(String),
    /// Two things have one name.
    #[error("{what} `{name}` is declared twice")]
    Twice {
        /// What is called so.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A parameter without values.
    #[error("parameter `{0}` has no value to try")]
    NoValue(String),
    /// Too many tensors.
    #[error("{0} tensors: a task has at most {MOST_TENSORS}")]
    Tensors(usize),
    /// No tensor is an output.
    #[error("no tensor is an output: there would be nothing to judge")]
    NoOutput,
    /// A dimension is no expression, or has no value in a call.
    #[error("{why} in dimension `{dimension}` of {tensor}")]
    Dimension {
        /// The tensor.
        tensor: String,
        /// The dimension, as it is written.
        dimension: String,
        /// What is wrong with it.
        why: String,
    },
    /// A number of operations has no value in a call.
    #[error("{why} in operations `{operations}`")]
    Operations {
        /// The number, as it is written.
        operations: String,
        /// What is wrong with it.
        why: String,
    },
    /// A tensor of a call is too large.
    #[error("tensor {tensor} of rank {rank} has the shape {shape:?} ({call}): more bytes than any device has")]
    TooLarge {
        /// The tensor.
        tensor: String,
        /// Whose it is.
        rank: u32,
        /// Its dimensions.
        shape: Vec<u64>,
        /// The call, as case ids have it.
        call: String,
    },
    /// A call leaves no result.
    #[error("{call}: every output of every rank is empty, so there is nothing to judge")]
    Empty {
        /// The call, as case ids have it.
        call: String,
    },
}

impl From<TaskError> for String {
    fn from(error: TaskError) -> String {
        error.to_string()
    }
}
