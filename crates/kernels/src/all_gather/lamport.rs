//! `all_gather/lamport`: every rank pushes its input to all in Lamport packs. See kernels/all_gather/lamport.cu.

use crate::{Lamport, lamport::COPIES};
use passmuster_plan::{collective::Collective, modules::Module};

static MODULE: Module = module!("all_gather/lamport", sites).with_mutants(COPIES);

/// Push the own input to all, store what the peers have pushed: one trip, no barrier and no flag, (world - 1) slots into each rank.
pub const LAMPORT: Lamport = Lamport::new(Collective::AllGather, ["lamport", "lamport_serial"], &MODULE);

/// The same without dependent launches.
pub const LAMPORT_SERIAL: Lamport = LAMPORT.serial();
