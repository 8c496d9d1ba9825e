//! Ranks in processes of their own: how they find each other, exchange bytes and file descriptors, and learn which of them is lost.
//!
//! Nothing here knows a GPU, a collective or what the bytes mean.
//!
//! ```text
//! rank 0 ──┐ sockets  ┌─ exchanges: every rank gives, every rank gets everybody's
//! rank 1 ──┼──> hub ──┼─ messages: a rank and the coordinator
//! rank 2 ──┘          └─ the first failure, to all
//! ```
//!
//! One process coordinates, and has the [`Hub`]: the command that starts the ranks itself ([`own`]), or rank 0's where `torchrun`, `mpirun` or `srun` started
//! them ([`placement`]). Messages, bounded and versioned, are [`frame`]'s; who may come is a matter of the [`Secret`].

#![forbid(unsafe_code)]

pub mod agreement;
pub mod frame;
mod hub;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod own;
pub mod placement;
mod rank;
mod secret;
mod socket;
pub mod torchelastic;

use std::{os::fd::OwnedFd, time::Duration};

pub use hub::{Doors, Event, Fate, Gone, Hub, HubOptions, SideDoor};
pub use rank::{LIMIT, Rank};
pub use secret::{SECRET, SECRET_FILE, Secret};

/// How a rank was lost: what its process did, as data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// A signal ended it.
    Killed {
        /// Its number.
        signal: i32,
    },
    /// A signal has stopped it.
    Stopped {
        /// Its number.
        signal: i32,
    },
    /// It exited.
    Exited {
        /// With this status.
        status: i32,
    },
    /// It did not come in time.
    Late,
    /// It sent what is no frame.
    Garbage,
    /// It left in good order.
    Left,
    /// It gave up, and said why.
    GaveUp,
    /// It panicked.
    Panicked,
    /// Its connection ended, or it broke the protocol.
    Disconnected,
}

impl BootstrapError {
    /// The rank that it is about, and how that was lost; none if the processes could not be brought together.
    pub fn lost(&self) -> Option<(usize, Loss)> {
        match *self {
            BootstrapError::Lost { rank, how, .. } | BootstrapError::GaveUp { rank, how, .. } => Some((rank, how)),
            BootstrapError::InUse(_) | BootstrapError::SetUp(_) => None,
        }
    }
}

/// Why an exchange did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootstrapError {
    /// A rank is gone, or did not come by the deadline.
    #[error("rank {rank} of {world}: {reason}, in {what}")]
    Lost {
        /// The rank that is missing.
        rank: usize,
        /// How many ranks there are.
        world: usize,
        /// The exchange that it is missing from.
        what: String,
        /// How it was lost.
        how: Loss,
        /// What is known of it: `killed by signal 9`, `nothing came for 5 s`.
        reason: String,
    },
    /// Another rank has given up, and said why.
    #[error("rank {rank} gave up: {reason}")]
    GaveUp {
        /// The first rank that gave up.
        rank: usize,
        /// [`Loss::GaveUp`] or [`Loss::Panicked`].
        how: Loss,
        /// Why, in its own words.
        reason: String,
    },
    /// The address at which ranks are to come together is somebody else's.
    #[error("{0}")]
    InUse(String),
    /// The processes could not be brought together.
    #[error("{0}")]
    SetUp(String),
}

/// The ranks of a job, as one of them sees them. Exchanges are collective: all ranks make the same ones in the same order.
pub trait Bootstrap: Send {
    /// This process's rank.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn world(&self) -> usize;

    /// Gives every rank everybody's bytes, in rank order. `what` names the exchange in errors.
    ///
    /// # Errors
    /// The rank that is lost, or the first one that gave up.
    fn all_gather(&mut self, what: &str, own: &[u8]) -> Result<Vec<Vec<u8>>, BootstrapError>;

    /// Gives every rank file descriptors of everybody's, in rank order, each rank the same number of them. All ranks must be on one host.
    ///
    /// # Errors
    /// As [`Bootstrap::all_gather`].
    fn all_gather_descriptors(&mut self, what: &str, own: &[OwnedFd]) -> Result<Vec<Vec<OwnedFd>>, BootstrapError>;

    /// How descriptors last went from rank to rank: `SCM_RIGHTS` or `pidfd_getfd`; none where nobody has given any yet, or who brings them does not say.
    fn descriptors_go_by(&self) -> Option<&'static str> {
        None
    }

    /// Returns when all ranks have come.
    ///
    /// # Errors
    /// As [`Bootstrap::all_gather`].
    fn barrier(&mut self, what: &str) -> Result<(), BootstrapError> {
        self.all_gather(what, &[]).map(drop)
    }

    /// For how long the others are waited for in exchanges from now on. Returns for how long they were before.
    fn set_limit(&mut self, limit: Duration) -> Duration;

    /// Why the job has failed, if it has: what the next exchange would fail with. It waits for nothing, and is no exchange.
    fn failure(&mut self) -> Option<BootstrapError>;

    /// Tells all other ranks that this one gives up, and why. The first one to do so is the one they report.
    fn give_up(&mut self, reason: &str);
}
