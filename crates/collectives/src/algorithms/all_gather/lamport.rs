//! `all_gather/lamport`: every rank pushes its input to all in Lamport packs. See kernels/all_gather/lamport.cu.

use crate::{
    algorithms::Lamport,
    collective::{Collective, DType},
    kernels::{Module, MutantCases, module},
};

static MODULE: Module = module!("all_gather/lamport", checked, wide).with_mutants(MutantCases {
    // Of integers more inputs have words that packs cannot carry.
    dtype: DType::I32,
    several: (2, 4500),
    rare_words: true,
    ..MutantCases::DEFAULT
});

/// Push the own input to all, store what the peers have pushed: one trip, no barrier and no flag, (world - 1) slots into each rank.
pub const LAMPORT: Lamport = Lamport::new(Collective::AllGather, ["lamport", "lamport_serial"], &MODULE);

/// The same without dependent launches.
pub const LAMPORT_SERIAL: Lamport = LAMPORT.serial();
