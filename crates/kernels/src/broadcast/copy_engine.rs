//! `broadcast/copy_engine`: the root's copy engines bring its input into every rank's output.

use crate::Exchange;
use passmuster_plan::{
    collective::Collective,
    plan::{Call, Region},
};

/// (world - 1) x bytes out of the root, and no SM used, but where a driver copies the root's own output with one.
pub const COPY_ENGINE: Exchange = Exchange::new(Collective::Broadcast, part, |call| u64::from(call.world() - 1) * call.bytes());

/// The same between kernels in which ranks meet, for large calls of ranks that have an SM to spare.
pub const COPY_ENGINE_BARRIER: Exchange = COPY_ENGINE.between_barriers();

fn part(call: &Call, sender: u32, _: u32) -> Option<(Region, Region)> {
    (sender == call.root).then(|| (call.input_of(sender), call.output.clone()))
}
