//! `broadcast/lamport`: the root pushes its input to all in Lamport packs. See kernels/broadcast/lamport.cu.

use crate::{
    algorithms::Lamport,
    collective::{Collective, DType},
    kernels::{Module, MutantCases, module},
};

static MODULE: Module = module!("broadcast/lamport", checked, wide).with_mutants(MutantCases {
    // Of integers more inputs have words that packs cannot carry.
    dtype: DType::I32,
    several: (2, 4500),
    rare_words: true,
    ..MutantCases::DEFAULT
});

/// Push the root's input to all, store what it has pushed: one trip, no barrier and no flag, (world - 1) x bytes out of the root.
pub const LAMPORT: Lamport = Lamport::new(Collective::Broadcast, ["lamport", "lamport_serial"], &MODULE);

/// The same without dependent launches.
pub const LAMPORT_SERIAL: Lamport = LAMPORT.serial();
