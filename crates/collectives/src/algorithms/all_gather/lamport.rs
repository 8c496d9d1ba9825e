//! `all_gather/lamport`: every rank pushes its input to all in Lamport packs. See kernels/all_gather/lamport.cu.

use crate::{
    algorithms::Lamport,
    collective::{Collective, DType},
    kernels::{Module, SyncSizes, module},
};

static MODULE: Module = module!("all_gather/lamport", checked, wide).with_mutants(SyncSizes {
    // Of integers there are inputs with words that packs cannot carry.
    dtype: DType::I32,
    several: (2, 4500),
    also: &[
        "all_gather/lamport:i32,copy:w=2:calls=lamport.70+lamport.17.in_place+[lamport.33]x3:inputs=special:seed=8",
        "all_gather/lamport:i32,copy:w=3:calls=lamport.70+lamport.17.in_place+[lamport.33]x3:inputs=special:seed=9",
        "all_gather/lamport:i32,copy:w=6:calls=lamport.70+lamport.17.in_place+[lamport.33]x3:inputs=special:seed=c",
    ],
});

/// Push the own input to all, store what the peers have pushed: one trip, no barrier and no flag, (world - 1) slots into each rank.
pub const LAMPORT: Lamport = Lamport::new(Collective::AllGather, ["lamport", "lamport_serial"], &MODULE);

/// The same without dependent launches.
pub const LAMPORT_SERIAL: Lamport = LAMPORT.serial();
