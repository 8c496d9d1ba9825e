//! `all_gather/copy_engine`: every rank's copy engines bring its input into every rank's output.

use crate::Exchange;
use passmuster_plan::{
    algorithms::kit::slot,
    collective::Collective,
    plan::{Call, Region},
};

/// (world - 1) x bytes out of each rank and into it, and no SM used, but where a driver copies the rank's own slot with one.
pub const COPY_ENGINE: Exchange = Exchange::new(Collective::AllGather, part, |call| u64::from(call.world() - 1) * call.slot_bytes());

/// The same between kernels in which ranks meet, for large calls of ranks that have an SM to spare.
pub const COPY_ENGINE_BARRIER: Exchange = COPY_ENGINE.between_barriers();

fn part(call: &Call, sender: u32, _: u32) -> Option<(Region, Region)> {
    Some((call.input_of(sender), slot(&call.output, sender, call.slot_bytes())))
}
