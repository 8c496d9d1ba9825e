//! `all_reduce/two_shot_push`: every rank reduces its slice and pushes it to all, in LL lines. See
//! kernels/all_reduce/two_shot_push.cu.

use crate::Lines;
use passmuster_plan::{
    collective::Collective,
    modules::{Module, OwnEntries},
};

static MODULE: Module = module!("all_reduce/two_shot_push", sites).with_entries(OwnEntries::Sums);

/// The largest slice in bytes.
const MAX_SLICE: u64 = 1 << 20;

/// Push the slices to their ranks, reduce the own one in rank order, push it to all: two trips and no barrier, 4 x (world - 1) / world x bytes into
/// each rank.
pub const TWO_SHOT_PUSH: Lines = Lines::new(Collective::AllReduce, "two_shot_push", &MODULE, MAX_SLICE).in_two_trips();
