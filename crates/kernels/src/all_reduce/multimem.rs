//! `all_reduce/multimem`: every rank has the switch reduce its slice and write it to all. See kernels/all_reduce/multimem.cu.

use crate::multimem::{Multimem, Switch};
use passmuster_plan::{collective::Collective, modules::Module};

static MODULE: Module = module!("all_reduce/multimem", sites);

/// Load the own slice reduced by the switch, store it to all: (1 + 1 / world) x bytes each way over each rank's link.
pub const MULTIMEM: Multimem = Multimem::new(Collective::AllReduce, "multimem", &MODULE, Switch::ReducesAndCopies);
