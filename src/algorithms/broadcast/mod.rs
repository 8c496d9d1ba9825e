//! Broadcast: every rank gets the root's input.

mod multimem;
mod push;

pub use multimem::Multimem;
pub use push::Push;
