//! All-reduce: every rank gets the reduction of all inputs.

pub(super) mod copy_engine;
mod multimem;
mod multimem_one_shot;
mod one_shot;
mod one_shot_lamport;
mod one_shot_push;
pub(super) mod push;
pub(super) mod two_shot;
mod two_shot_lamport;
mod two_shot_push;

pub use copy_engine::CopyEngine;
pub use multimem::MULTIMEM;
pub use multimem_one_shot::MULTIMEM_ONE_SHOT;
pub use one_shot::ONE_SHOT;
pub use one_shot_lamport::{LAMPORT, LAMPORT_SERIAL};
pub use one_shot_push::ONE_SHOT_PUSH;
pub use push::Push;
pub use two_shot::TwoShot;
pub use two_shot_lamport::{TWO_SHOT_LAMPORT, TWO_SHOT_LAMPORT_SERIAL};
pub use two_shot_push::TWO_SHOT_PUSH;

use std::sync::Arc;

use passmuster_plan::algorithms::Algorithm;

/// Those of this collective, and the peers.
pub(super) fn all() -> Vec<Arc<dyn Algorithm>> {
    vec![
        Arc::new(ONE_SHOT),
        Arc::new(TwoShot),
        Arc::new(LAMPORT),
        Arc::new(TWO_SHOT_LAMPORT),
        Arc::new(ONE_SHOT_PUSH),
        Arc::new(TWO_SHOT_PUSH),
        Arc::new(Push),
        Arc::new(CopyEngine),
        Arc::new(MULTIMEM),
        Arc::new(MULTIMEM_ONE_SHOT),
    ]
}
