//! `reduce_scatter/ll`: every rank pushes each peer its slot in LL lines. See kernels/reduce_scatter/ll.cu.

use crate::Lines;
use passmuster_plan::{collective::Collective, modules::Module};

static MODULE: Module = module!("reduce_scatter/ll", sites);

/// The largest slot in bytes.
const MAX_SLOT: u64 = 256 << 10;

/// Push the slots to their ranks, reduce what the peers have pushed in rank order: one trip and no barrier, 2 x (world - 1) slots into each rank.
pub const LL: Lines = Lines::new(Collective::ReduceScatter, "ll", &MODULE, MAX_SLOT);
