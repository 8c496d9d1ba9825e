//! Reduce-scatter: every rank gets the reduction of its slot of all inputs.

mod pull;

pub use pull::Pull;
