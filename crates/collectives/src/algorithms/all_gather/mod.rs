//! All-gather: every rank gets all inputs, one after the other.

mod copy_engine;
mod lamport;
mod ll;
mod multimem;
mod push;

pub use copy_engine::{COPY_ENGINE, COPY_ENGINE_BARRIER};
pub use lamport::{LAMPORT, LAMPORT_SERIAL};
pub use ll::Ll;
pub use multimem::Multimem;
pub use push::Push;

use crate::algorithms::{Algorithm, Nccl};

/// Those of this collective, and the peers.
pub(super) const ALL: &[&dyn Algorithm] =
    &[&Push, &LAMPORT, &Ll, &COPY_ENGINE, &COPY_ENGINE_BARRIER, &Multimem, &Nccl::ALL_GATHER_RING, &Nccl::ALL_GATHER_SYMMETRIC_ST];
