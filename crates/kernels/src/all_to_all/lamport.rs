//! `all_to_all/lamport`: every rank pushes each peer its slot in Lamport packs. See kernels/all_to_all/lamport.cu.

use crate::{Lamport, lamport::COPIES};
use passmuster_plan::{collective::Collective, modules::Module};

static MODULE: Module = module!("all_to_all/lamport", sites).with_mutants(COPIES);

/// Push the slots to their ranks, store what the peers have pushed: one trip, no barrier and no flag, (world - 1) slots into each rank.
pub const LAMPORT: Lamport = Lamport::new(Collective::AllToAll, ["lamport", "lamport_serial"], &MODULE);

/// The same without dependent launches.
pub const LAMPORT_SERIAL: Lamport = LAMPORT.serial();
