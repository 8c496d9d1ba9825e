//! `broadcast/multimem`: the root has the switch write its input into every rank's output. See kernels/broadcast/multimem.cu.

use crate::multimem::{Multimem, Switch};
use passmuster_plan::{collective::Collective, modules::Module};

static MODULE: Module = module!("broadcast/multimem", sites);

/// Read the input once, store it to all by the switch: bytes out of the root and into each rank, one trip between two barriers.
pub const MULTIMEM: Multimem = Multimem::new(Collective::Broadcast, "multimem", &MODULE, Switch::Copies);
