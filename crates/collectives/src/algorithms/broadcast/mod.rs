//! Broadcast: every rank gets the root's input.

mod multimem;
mod pull;
mod push;

pub use multimem::Multimem;
pub use pull::Pull;
pub use push::Push;
