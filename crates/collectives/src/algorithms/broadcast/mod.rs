//! Broadcast: every rank gets the root's input.

mod copy_engine;
mod lamport;
mod multimem;
mod pull;
mod push;

pub use copy_engine::{COPY_ENGINE, COPY_ENGINE_BARRIER};
pub use lamport::{LAMPORT, LAMPORT_SERIAL};
pub use multimem::Multimem;
pub use pull::Pull;
pub use push::Push;

use crate::algorithms::{Algorithm, Nccl};

/// Those of this collective, and the peers.
pub(super) const ALL: &[&dyn Algorithm] = &[&Push, &Pull, &LAMPORT, &COPY_ENGINE, &COPY_ENGINE_BARRIER, &Multimem, &Nccl::BROADCAST_RING];
