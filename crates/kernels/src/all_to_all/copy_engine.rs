//! `all_to_all/copy_engine`: every rank's copy engines bring the slots of its input into its slot of every rank's output.

use crate::{Exchange, all_to_all::link_bytes};
use passmuster_plan::{
    algorithms::kit::slot,
    collective::Collective,
    plan::{Call, Region},
};

/// (world - 1) x slots out of each rank and into it, and no SM used, but where a driver copies the rank's own slot with one.
pub const COPY_ENGINE: Exchange = Exchange::new(Collective::AllToAll, part, link_bytes);

/// The same between kernels in which ranks meet, for large calls of ranks that have an SM to spare.
pub const COPY_ENGINE_BARRIER: Exchange = COPY_ENGINE.between_barriers();

fn part(call: &Call, sender: u32, receiver: u32) -> Option<(Region, Region)> {
    let Some(counts) = call.counts() else {
        let bytes = call.slot_bytes();
        return Some((slot(&call.input, receiver, bytes), slot(&call.output, sender, bytes)));
    };
    let size = call.dtype.size();
    let part = |of: &Region, at: u64| Region::new(of.buffer.clone(), of.offset + at * size, counts.of(sender, receiver) * size);
    Some((part(&call.input, counts.sent_at(sender, receiver)), part(&call.output, counts.received_at(sender, receiver))))
}
