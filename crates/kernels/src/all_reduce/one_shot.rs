//! `all_reduce/one_shot`: every rank pulls every rank's input. See kernels/all_reduce/one_shot.cu.

use crate::Pull;
use passmuster_plan::{collective::Collective, modules::Module};

static MODULE: Module = module!("all_reduce/one_shot", sites);

/// Pull everything, reduce in rank order: one trip, (world - 1) x bytes into each rank.
pub const ONE_SHOT: Pull = Pull::new(Collective::AllReduce, "one_shot", &MODULE);
