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
use passmuster_collectives::machine::MachineError;

/// The machine's error where a job has failed, as a rank or the coordinator hears of it.
fn of_loss(own: usize, error: &BootstrapError) -> MachineError {
    let rank = match error {
        BootstrapError::Lost { rank, .. } | BootstrapError::GaveUp { rank, .. } => *rank,
        BootstrapError::SetUp(_) => own,
    };
    MachineError::Fault { ranks: vec![rank], what: "a rank's process".into(), code: error.to_string() }
}
