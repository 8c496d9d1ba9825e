//! Reduce: the root gets the reduction of all inputs.

mod chain;
mod lamport;
mod pull;
mod push;
mod two_shot;

pub use chain::Chain;
pub(crate) use chain::{WARP, WORKERS};
pub use lamport::{LAMPORT, LAMPORT_SERIAL};
pub use pull::PULL;
pub use push::Push;
pub use two_shot::TwoShot;

use std::sync::Arc;

use passmuster_plan::algorithms::{Algorithm, kit::Ranks};

/// Those of this collective, and the peers.
pub(super) fn all() -> Vec<Arc<dyn Algorithm>> {
    vec![Arc::new(PULL), Arc::new(TwoShot), Arc::new(Push), Arc::new(Chain), Arc::new(LAMPORT)]
}

/// Who reduces a slice where the root does not reduce all of them: the ranks beside it. A slice that the root owned would come over its link from all
/// others, and not once, as their sum. Of two ranks the root is the only one, and saves the way back.
fn owners(root: u32, world: u32) -> Ranks {
    if world > 2 { Ranks { first: (root + 1) % world, count: world - 1 } } else { Ranks { first: root, count: 1 } }
}
