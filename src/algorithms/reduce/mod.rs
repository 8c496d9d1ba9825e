//! Reduce: the root gets the reduction of all inputs.

mod pull;

pub use pull::Pull;
