//! `broadcast/pull`: every rank loads the root's input into its output. See kernels/broadcast/pull.cu.

use crate::Pull;
use passmuster_plan::{collective::Collective, modules::Module};

static MODULE: Module = module!("broadcast/pull", sites);

/// Load the root's input, store it at home: (world - 1) x bytes out of the root, by all ranks' threads, one trip between two barriers.
pub const PULL: Pull = Pull::new(Collective::Broadcast, "pull", &MODULE);
