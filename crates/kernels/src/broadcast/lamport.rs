//! `broadcast/lamport`: the root pushes its input to all in Lamport packs. See kernels/broadcast/lamport.cu.

use crate::{Lamport, lamport::COPIES};
use passmuster_plan::{collective::Collective, modules::Module};

static MODULE: Module = module!("broadcast/lamport", sites).with_mutants(COPIES);

/// Push the root's input to all, store what it has pushed: one trip, no barrier and no flag, (world - 1) x bytes out of the root.
pub const LAMPORT: Lamport = Lamport::new(Collective::Broadcast, ["lamport", "lamport_serial"], &MODULE);

/// The same without dependent launches.
pub const LAMPORT_SERIAL: Lamport = LAMPORT.serial();
