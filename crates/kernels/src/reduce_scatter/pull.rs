//! `reduce_scatter/pull`: every rank reduces its slot of all inputs. See kernels/all_reduce/one_shot.cu.

use crate::{Pull, all_reduce::ONE_SHOT};
use passmuster_plan::collective::Collective;

/// Pull the own slot from all, reduce it in rank order: (world - 1) slots into each rank and out of it, one trip between two barriers.
pub const PULL: Pull = ONE_SHOT.reused_for(Collective::ReduceScatter, "pull");
