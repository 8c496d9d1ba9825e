//! `reduce/lamport`: every rank pushes its input to the root in Lamport packs. See kernels/reduce/lamport.cu.

use crate::{Lamport, lamport::SUMS};
use passmuster_plan::{
    collective::Collective,
    modules::{Module, OwnEntries},
};

static MODULE: Module = module!("reduce/lamport", sites).with_entries(OwnEntries::Sums).with_mutants(SUMS);

/// Push everything to the root, which reduces in rank order what the peers have pushed: one trip, no barrier and no flag, (world - 1) x bytes into it.
pub const LAMPORT: Lamport = Lamport::new(Collective::Reduce, ["lamport", "lamport_serial"], &MODULE);

/// The same without dependent launches.
pub const LAMPORT_SERIAL: Lamport = LAMPORT.serial();
