//! `all_to_all/lamport`: every rank pushes each peer its slot in Lamport packs. See kernels/all_to_all/lamport.cu.

use crate::{
    algorithms::Lamport,
    collective::{Collective, DType},
    kernels::{Module, SyncSizes, module},
};

static MODULE: Module = module!("all_to_all/lamport", checked, wide).with_mutants(SyncSizes {
    // Of integers there are inputs with words that packs cannot carry.
    dtype: DType::I32,
    several: (2, 4500),
    also: &[
        "all_to_all/lamport:i32,copy:w=2:calls=lamport.70+lamport.17+[lamport.33]x3:inputs=special:seed=8",
        "all_to_all/lamport:i32,copy:w=3:calls=lamport.70+lamport.17+[lamport.33]x3:inputs=special:seed=9",
        "all_to_all/lamport:i32,copy:w=6:calls=lamport.70+lamport.17+[lamport.33]x3:inputs=special:seed=c",
    ],
});

/// Push the slots to their ranks, store what the peers have pushed: one trip, no barrier and no flag, (world - 1) slots into each rank.
pub const LAMPORT: Lamport = Lamport::new(Collective::AllToAll, ["lamport", "lamport_serial"], &MODULE);

/// The same without dependent launches.
pub const LAMPORT_SERIAL: Lamport = LAMPORT.serial();
