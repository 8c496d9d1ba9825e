//! `reduce/pull`: the root reduces all inputs. See kernels/all_reduce/one_shot.cu.

use crate::{Pull, all_reduce::ONE_SHOT};
use passmuster_plan::collective::Collective;

/// Pull all inputs to the root, reduce them in rank order: (world - 1) x bytes into the root, one trip between two barriers.
pub const PULL: Pull = ONE_SHOT.reused_for(Collective::Reduce, "pull");
