//! Reduce-scatter: every rank gets the reduction of its slot of all inputs.

mod ll;
mod pull;

pub use ll::Ll;
pub use pull::Pull;
