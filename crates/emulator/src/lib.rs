//! Devices that share an address space and run PTX on the CPU.
//!
//! [`emulation::Emulation`] runs one kernel on several ranks and reports their races: start there. It is made of the parts below.
//!
//! [`numerics`] is arithmetic as PTX defines it, on bit patterns. [`memory`] is the memory of all devices, in which every stray access is exact.
//! Neither knows threads or time. [`execution`] runs the warps of one launch, and tells [`races`] of what they do: happens-before by the PTX memory
//! model, and what lacks it. What is run comes from `passmuster-ptx`. Nothing here knows collectives, streams or hosts.

pub mod choice;
pub mod emulation;
pub mod execution;
pub mod litmus;
pub mod memory;
pub mod numerics;
pub mod races;
pub mod tensor_map;

pub use emulation::Emulation;
pub use execution::{Arithmetic, MultimemReduction, TensorCores};
pub use races::Profile;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
