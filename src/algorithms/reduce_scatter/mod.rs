//! Reduce-scatter: every rank gets the reduction of its slot of all inputs.

mod ll;
mod multimem;
mod pull;

pub use ll::Ll;
pub use multimem::Multimem;
pub use pull::Pull;
