//! `all_reduce/one_shot_push`: every rank pushes its input to all in LL lines. See kernels/all_reduce/one_shot_push.cu.

use crate::Lines;
use passmuster_plan::{collective::Collective, modules::Module};

static MODULE: Module = module!("all_reduce/one_shot_push", sites);

/// The largest input in bytes.
const MAX_BYTES: u64 = 512 << 10;

/// Push everything to all, reduce in rank order what the peers have pushed: one trip and no barrier, 2 x (world - 1) x bytes into each rank.
pub const ONE_SHOT_PUSH: Lines = Lines::new(Collective::AllReduce, "one_shot_push", &MODULE, MAX_BYTES);
