//! Multi-GPU collectives over symmetric memory, as data.
//!
//! An [`algorithms::Algorithm`] turns a [`plan::Call`] into a [`plan::Plan`]: for each rank, streams of operations over named regions, with no
//! address in it. A [`machine::Machine`] runs plans; crates of their own have one for GPUs and one for the CPU. [`kernels`] are the compiled kernels, of which a
//! [`library`] has those that launches name, [`contract::Contract`] is what an algorithm promises about its numbers, and [`pool`] is memory that calls in flight share.

#![forbid(unsafe_code)]

pub mod algorithms;
pub mod collective;
pub mod contract;
pub mod device;
pub mod kernels;
pub mod library;
pub mod machine;
pub mod plan;
pub mod pool;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
