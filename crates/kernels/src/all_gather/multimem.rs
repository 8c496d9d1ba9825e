//! `all_gather/multimem`: every rank has the switch write its input into every rank's output. See kernels/all_gather/multimem.cu.

use crate::multimem::{Multimem, Switch};
use passmuster_plan::{collective::Collective, modules::Module};

static MODULE: Module = module!("all_gather/multimem", sites);

/// Read the own input once, store it to all by the switch: bytes out of each rank and world x bytes into it, one trip between two barriers.
pub const MULTIMEM: Multimem = Multimem::new(Collective::AllGather, "multimem", &MODULE, Switch::Copies);
