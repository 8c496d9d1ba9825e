//! Ranks on the CPU: the checked-in PTX of all ranks runs here without a GPU, and is watched while it does.
//!
//! [`ptx`] is the front end: it turns PTX text into a decoded form that is run without looking at a string again; what it does not
//! know is an error, nothing is skipped. [`numerics`] is arithmetic as PTX defines it, on bit patterns. [`memory`] is the memory of all
//! ranks, in which every stray access is exact. None of these knows threads or time.

pub mod execution;
pub mod memory;
pub mod numerics;
pub mod ptx;
