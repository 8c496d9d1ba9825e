//! What ranks do together, as data: vocabulary, contracts, plans, and what runs them. There is no kernel in it.
//!
//! An [`algorithms::Algorithm`] turns a [`plan::Call`] into a [`plan::Plan`]: for each rank, streams of operations over named regions, with no
//! address in it. A [`machine::Machine`] runs plans; crates of their own have one for GPUs and one for the CPU. Launches name kernel [`modules`], of which a
//! [`library`] has the PTX; [`contract::Contract`] is what an algorithm promises about its numbers; an [`algorithms::Registry`] has the algorithms that there
//! are, our own or yours; [`algorithms::Foreign`] is a kernel from elsewhere, made from a specification; and [`pool`] is memory that calls in flight share.

#![forbid(unsafe_code)]

pub mod abi;
pub mod algorithms;
pub mod collective;
pub mod contract;
pub mod device;
mod expression;
pub mod library;
pub mod machine;
pub mod modules;
pub mod plan;
pub mod pool;
pub mod task;
pub mod words;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
