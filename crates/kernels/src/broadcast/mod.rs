//! Broadcast: every rank gets the root's input.

mod copy_engine;
mod lamport;
mod multimem;
mod pull;
mod push;

pub use copy_engine::{COPY_ENGINE, COPY_ENGINE_BARRIER};
pub use lamport::{LAMPORT, LAMPORT_SERIAL};
pub use multimem::MULTIMEM;
pub use pull::PULL;
pub use push::Push;

use std::sync::Arc;

use passmuster_plan::algorithms::Algorithm;

/// Those of this collective, and the peers.
pub(super) fn all() -> Vec<Arc<dyn Algorithm>> {
    vec![Arc::new(Push), Arc::new(PULL), Arc::new(LAMPORT), Arc::new(COPY_ENGINE), Arc::new(COPY_ENGINE_BARRIER), Arc::new(MULTIMEM)]
}
