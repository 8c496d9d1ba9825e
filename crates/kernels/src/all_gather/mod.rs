//! All-gather: every rank gets all inputs, one after the other.

mod copy_engine;
mod lamport;
mod ll;
mod multimem;
mod push;

pub use copy_engine::{COPY_ENGINE, COPY_ENGINE_BARRIER};
pub use lamport::{LAMPORT, LAMPORT_SERIAL};
pub use ll::LL;
pub use multimem::MULTIMEM;
pub use push::Push;

use std::sync::Arc;

use passmuster_plan::algorithms::Algorithm;

/// Those of this collective, and the peers.
pub(super) fn all() -> Vec<Arc<dyn Algorithm>> {
    vec![Arc::new(Push), Arc::new(LAMPORT), Arc::new(LL), Arc::new(COPY_ENGINE), Arc::new(COPY_ENGINE_BARRIER), Arc::new(MULTIMEM)]
}
