//! `all_gather/ll`: every rank pushes its input to all in LL lines. See kernels/all_gather/ll.cu.

use crate::Lines;
use passmuster_plan::{collective::Collective, modules::Module};

static MODULE: Module = module!("all_gather/ll", sites);

/// The largest slot in bytes.
const MAX_SLOT: u64 = 256 << 10;

/// Push the own input to all, store what the peers have pushed: one trip and no barrier, 2 x (world - 1) slots into each rank.
pub const LL: Lines = Lines::new(Collective::AllGather, "ll", &MODULE, MAX_SLOT);
