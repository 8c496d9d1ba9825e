//! `all_reduce/multimem_one_shot`: every rank has the switch reduce all of the input. See kernels/all_reduce/multimem_one_shot.cu.

use crate::multimem::{Multimem, Switch};
use passmuster_plan::{collective::Collective, modules::Module};

static MODULE: Module = module!("all_reduce/multimem_one_shot", sites);

/// Load everything reduced by the switch: one trip, bytes into each rank and world x bytes out of it.
pub const MULTIMEM_ONE_SHOT: Multimem = Multimem::new(Collective::AllReduce, "multimem_one_shot", &MODULE, Switch::Reduces);
