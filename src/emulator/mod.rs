//! Ranks on the CPU: what the exact PTX of all ranks is executed with.
//!
//! [`numerics`] is arithmetic as PTX defines it, on bit patterns. [`memory`] is the memory of all ranks, in which every stray access is exact.
//! Neither knows instructions, threads or time.

pub mod memory;
pub mod numerics;
