//! passmuster: where a multi-GPU collective kernel proves itself before it is merged.
//!
//! ARCHITECTURE.md is the map. In short: an [`algorithms::Algorithm`] turns a [`plan::Call`] into a [`plan::Plan`], a
//! [`machine::Machine`] runs it (here: [`emulator::Emulator`]), and [`conformance`] judges the result against the algorithm's [`contract::Contract`].
//!
//! # Features
//!
//! | Feature | Brings |
//! |---|---|
//! | `cargo-test` | `cargo_test::conformance`: each case of a list is a test |
//! | `proptest` | `strategies`: calls to draw in property tests |
//!
//! Both are off by default.

#![forbid(unsafe_code)]

pub mod abi;
pub mod callable;
pub mod cargo_test;
pub mod conformance;
pub mod emulator;
pub mod ledger;
mod own_kernels;
#[cfg(any(test, feature = "proptest"))]
pub mod strategies;

pub use own_kernels::registry;
pub use passmuster_plan::{algorithms, collective, contract, library, machine, modules, plan, pool, with_element};

/// With passmuster's kernels, for tests.
#[cfg(test)]
static REGISTRY: std::sync::LazyLock<algorithms::Registry> = std::sync::LazyLock::new(|| registry(passmuster_kernels::catalogue()));

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
