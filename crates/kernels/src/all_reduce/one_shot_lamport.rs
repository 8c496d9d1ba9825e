//! `all_reduce/one_shot_lamport`: every rank pushes its input to all in Lamport packs. See kernels/all_reduce/one_shot_lamport.cu.

use crate::{Lamport, lamport::SUMS};
use passmuster_plan::{
    collective::Collective,
    modules::{Module, OwnEntries},
};

static MODULE: Module = module!("all_reduce/one_shot_lamport", sites).with_entries(OwnEntries::Sums).with_mutants(SUMS);

/// Push everything to all, reduce in rank order what the peers have pushed: one trip, no barrier and no flag, (world - 1) x bytes into each rank.
pub const LAMPORT: Lamport = Lamport::new(Collective::AllReduce, ["one_shot_lamport", "one_shot_lamport_serial"], &MODULE);

/// The same without dependent launches.
pub const LAMPORT_SERIAL: Lamport = LAMPORT.serial();
