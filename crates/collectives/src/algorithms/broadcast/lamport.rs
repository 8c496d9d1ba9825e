//! `broadcast/lamport`: the root pushes its input to all in Lamport packs. See kernels/broadcast/lamport.cu.

use crate::{
    algorithms::Lamport,
    collective::{Collective, DType},
    kernels::{Module, SyncSizes, module},
};

static MODULE: Module = module!("broadcast/lamport", checked, wide).with_mutants(SyncSizes {
    // Of integers there are inputs with words that packs cannot carry.
    dtype: DType::I32,
    several: (2, 4500),
    also: &[
        "broadcast/lamport:i32,copy:w=2:calls=lamport.70.root1+lamport.17.root0.in_place+[lamport.33]x3:inputs=special:seed=8",
        "broadcast/lamport:i32,copy:w=3:calls=lamport.70.root1+lamport.17.root0.in_place+[lamport.33]x3:inputs=special:seed=9",
        "broadcast/lamport:i32,copy:w=6:calls=lamport.70.root1+lamport.17.root0.in_place+[lamport.33]x3:inputs=special:seed=c",
    ],
});

/// Push the root's input to all, store what it has pushed: one trip, no barrier and no flag, (world - 1) x bytes out of the root.
pub const LAMPORT: Lamport = Lamport::new(Collective::Broadcast, ["lamport", "lamport_serial"], &MODULE);

/// The same without dependent launches.
pub const LAMPORT_SERIAL: Lamport = LAMPORT.serial();
