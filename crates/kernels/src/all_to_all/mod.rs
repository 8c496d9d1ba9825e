//! All-to-all: every rank gets its slot of all inputs, one after the other.

mod copy_engine;
mod lamport;
mod ll;
mod push;

pub use copy_engine::{COPY_ENGINE, COPY_ENGINE_BARRIER};
pub use lamport::{LAMPORT, LAMPORT_SERIAL};
pub use ll::LL;
pub use push::Push;

use std::sync::Arc;

use passmuster_plan::{
    algorithms::Algorithm,
    plan::{Arg, Call, MAX_RANKS},
};

/// Those of this collective, and the peers.
pub(super) fn all() -> Vec<Arc<dyn Algorithm>> {
    vec![Arc::new(Push), Arc::new(LAMPORT), Arc::new(LL), Arc::new(COPY_ENGINE), Arc::new(COPY_ENGINE_BARRIER)]
}

/// Bytes over the links of the rank that sends or gets the most: slots, or what parts come to.
fn link_bytes(call: &Call) -> u64 {
    let Some(counts) = call.counts() else { return u64::from(call.world() - 1) * call.slot_bytes() };
    let others = |rank: u32| {
        let [sent, received] = [counts.sent(rank).sum::<u64>(), counts.received(rank).sum()];
        sent.max(received) - counts.of(rank, rank)
    };
    (0..call.world()).map(others).max().unwrap_or(0) * call.dtype.size()
}

/// A field of the `Parts` structs of kernels/all_to_all: for each rank, the bytes of its `elements`. Zero past the world size.
fn bytes_for_each(call: &Call, elements: impl Fn(u32) -> u64) -> Vec<Arg> {
    let bytes = |rank| if rank < call.world() { elements(rank) * call.dtype.size() } else { 0 };
    (0..MAX_RANKS as u32).map(|rank| Arg::U64(bytes(rank))).collect()
}
