//! Ranks on the CPU: the checked-in PTX of all ranks runs here without a GPU, and is watched while it does.
//!
//! [`Emulator`] is the machine. A script takes this way: `machine::validation` refuses what contradicts itself, `actions` resolves addresses
//! and kernels for each rank, `streams` has what every rank's host and streams have before them, and `schedule` picks what advances
//! next and knows when nothing does any more. Kernels are run by `passmuster-emulator`.
//!
//! [`RankEmulator`] is the same with each rank in a process of its own: `rank` has where they meet, `board` what they tell each other in between.

mod actions;
mod board;
mod group;
mod hang;
mod machine;
mod modules;
mod rank;
mod schedule;
mod strategy;
mod streams;
mod tensor_map;
mod trace;

use passmuster_emulator::{choice, execution, memory, races};
use passmuster_ptx as ptx;

pub use machine::{Emulator, EmulatorOptions};
pub use modules::{accepts, limits, misfit, parsed, takes_variables};
pub use passmuster_emulator::execution::{Coverage, takes_dynamic_shared};
pub use passmuster_emulator::races::ASSUMPTIONS;
pub use passmuster_emulator::{Arithmetic, MultimemReduction, Profile, TensorCores};
pub use rank::RankEmulator;
pub(crate) use rank::how_of_loss;
pub use strategy::{Interleaving, Strategy};
pub use trace::Trace;
