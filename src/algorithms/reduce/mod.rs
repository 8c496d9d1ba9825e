//! Reduce: the root gets the reduction of all inputs.

mod pull;
mod push;

pub use pull::Pull;
pub use push::Push;
