//! Ranks as processes: a machine each of whose ranks is a process of its own.
//!
//! ```text
//! conformance ──> Processes: a Machine ──requests──> each rank's process: a Machine of one rank
//!                 (the coordinator)    <──answers──  (`serve`)          └─ exchanges with the other ranks
//! ```
//!
//! The ranks run what they are asked together, on memory that they share. Whatever becomes of one of them, the coordinator hears of it: who is lost is an
//! error of the machine that names the rank and how its process ended.

mod coordinator;
mod member;
pub mod messages;
mod mishap;

pub use coordinator::Processes;
pub use member::{decline, serve};
pub use mishap::{Mishap, another_call};

use passmuster_bootstrap::BootstrapError;
use passmuster_plan::machine::{How, MachineError};

use crate::emulator::how_of_loss;

/// The machine's error where a job has failed, as a rank or the coordinator hears of it. It is of rank `own` if the failure names none.
pub fn of_loss(own: usize, error: &BootstrapError) -> MachineError {
    let (rank, how) = error.lost().map_or((own, How::Failed), |(rank, loss)| (rank, how_of_loss(loss)));
    MachineError::fault_of(vec![rank], how, "a rank's process", error.to_string())
}
