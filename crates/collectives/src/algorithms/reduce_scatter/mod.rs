//! Reduce-scatter: every rank gets the reduction of its slot of all inputs.

mod ll;
mod multimem;
mod pull;
mod push;

pub use ll::Ll;
pub use multimem::Multimem;
pub use pull::Pull;
pub use push::Push;
