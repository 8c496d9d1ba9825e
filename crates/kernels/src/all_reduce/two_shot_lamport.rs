//! `all_reduce/two_shot_lamport`: every rank reduces one slice, both trips in Lamport packs. See kernels/all_reduce/two_shot_lamport.cu.

use crate::{Lamport, lamport::SUMS};
use passmuster_plan::{
    collective::Collective,
    modules::{Module, OwnEntries},
};

static MODULE: Module = module!("all_reduce/two_shot_lamport", sites).with_entries(OwnEntries::Sums).with_mutants(SUMS);

/// Push slices to their owners, reduce in rank order, push the sums to all: two trips, no barrier and no flag, 2 x (world - 1) / world x bytes into each rank.
pub const TWO_SHOT_LAMPORT: Lamport =
    Lamport::new(Collective::AllReduce, ["two_shot_lamport", "two_shot_lamport_serial"], &MODULE).in_two_trips();

/// The same without dependent launches.
pub const TWO_SHOT_LAMPORT_SERIAL: Lamport = TWO_SHOT_LAMPORT.serial();
