//! `reduce_scatter/lamport`: every rank pushes each peer its slot in Lamport packs. See kernels/reduce_scatter/lamport.cu.

use crate::{Lamport, lamport::SUMS};
use passmuster_plan::{
    collective::Collective,
    modules::{Module, OwnEntries},
};

static MODULE: Module = module!("reduce_scatter/lamport", sites).with_entries(OwnEntries::Sums).with_mutants(SUMS);

/// Push the slots to their ranks, reduce what the peers have pushed in rank order: one trip, no barrier and no flag, (world - 1) slots into each rank.
pub const LAMPORT: Lamport = Lamport::new(Collective::ReduceScatter, ["lamport", "lamport_serial"], &MODULE);

/// The same without dependent launches.
pub const LAMPORT_SERIAL: Lamport = LAMPORT.serial();
