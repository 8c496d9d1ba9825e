//! `reduce_scatter/multimem`: every rank has the switch reduce its slot. See kernels/all_reduce/multimem_one_shot.cu.

use crate::{Multimem, all_reduce::MULTIMEM_ONE_SHOT};
use passmuster_plan::collective::Collective;

/// Load the own slot reduced by the switch: world x bytes out of each rank and bytes into it, one trip between two barriers.
pub const MULTIMEM: Multimem = MULTIMEM_ONE_SHOT.reused_for(Collective::ReduceScatter, "multimem");
