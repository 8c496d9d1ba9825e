//! Reduce-scatter: every rank gets the reduction of its slot of all inputs.

mod lamport;
mod ll;
mod multimem;
mod pull;
mod push;

pub use lamport::{LAMPORT, LAMPORT_SERIAL};
pub use ll::Ll;
pub use multimem::Multimem;
pub use pull::Pull;
pub use push::Push;

use crate::algorithms::{Algorithm, Nccl};

/// Those of this collective, and the peers.
pub(super) const ALL: &[&dyn Algorithm] =
    &[&Pull, &Push, &LAMPORT, &Ll, &Multimem, &Nccl::REDUCE_SCATTER_RING, &Nccl::REDUCE_SCATTER_SYMMETRIC_LD];
