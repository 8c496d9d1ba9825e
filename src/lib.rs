//! passmuster: where a multi-GPU collective kernel proves itself before it is merged.
//!
//! ARCHITECTURE.md is the map. In short: an [`algorithms::Algorithm`] turns a [`plan::Call`] into a [`plan::Plan`], a
//! [`machine::Machine`] runs it, and [`conformance`] judges the result against the algorithm's [`contract::Contract`].

pub mod algorithms;
pub mod bench;
pub mod collective;
pub mod conformance;
pub mod contract;
pub mod cuda;
pub mod emulator;
pub mod kernels;
pub mod ledger;
pub mod machine;
pub mod plan;
pub mod pool;
