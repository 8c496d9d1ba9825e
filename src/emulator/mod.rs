//! Ranks on the CPU: the checked-in PTX of all ranks runs here without a GPU, and is watched while it does.
//!
//! [`ptx`] is the front end: it turns PTX text into a decoded form that is run without looking at a string again; what it does not
//! know is an error, nothing is skipped. [`numerics`] is arithmetic as PTX defines it, on bit patterns. [`memory`] is the memory of all
//! ranks, in which every stray access is exact. None of these knows threads or time.
//! [`execution`] runs the warps of one launch, and tells `races` of what they do: happens-before by the PTX memory model, and what lacks it.
//!
//! [`Emulator`] is the machine. A script takes this way: `machine::validation` refuses what contradicts itself, `actions` resolves addresses
//! and kernels for each rank, `streams` has what every rank's host and streams have before them, and `schedule` picks what advances
//! next and knows when nothing does any more.

mod actions;
mod choice;
pub mod execution;
mod group;
mod machine;
pub mod memory;
mod modules;
pub mod numerics;
pub mod ptx;
mod races;
mod schedule;
mod strategy;
mod streams;
mod trace;

pub use execution::MultimemReduction;
pub use machine::{Emulator, EmulatorOptions};
pub use modules::accepts;
pub use races::Profile;
pub use strategy::{Interleaving, Strategy};
pub use trace::Trace;
