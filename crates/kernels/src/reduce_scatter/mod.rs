//! Reduce-scatter: every rank gets the reduction of its slot of all inputs.

mod lamport;
mod ll;
mod multimem;
mod pull;
mod push;

pub use lamport::{LAMPORT, LAMPORT_SERIAL};
pub use ll::LL;
pub use multimem::MULTIMEM;
pub use pull::PULL;
pub use push::Push;

use std::sync::Arc;

use passmuster_plan::algorithms::Algorithm;

/// Those of this collective, and the peers.
pub(super) fn all() -> Vec<Arc<dyn Algorithm>> {
    vec![Arc::new(PULL), Arc::new(Push), Arc::new(LAMPORT), Arc::new(LL), Arc::new(MULTIMEM)]
}
