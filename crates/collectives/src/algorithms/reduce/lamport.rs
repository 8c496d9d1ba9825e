//! `reduce/lamport`: every rank pushes its input to the root in Lamport packs. See kernels/reduce/lamport.cu.

use crate::{
    algorithms::Lamport,
    collective::{Collective, DType},
    kernels::{Module, MutantCases, OwnEntries, module},
};

static MODULE: Module = module!("reduce/lamport", checked, wide)
    .with_entries(OwnEntries::Sums)
    // In narrower types a rare word takes several elements of one rank, which few inputs have.
    .with_mutants(MutantCases { dtype: DType::F32, several: (2, 4500), rare_words: true, ..MutantCases::DEFAULT });

/// Push everything to the root, which reduces in rank order what the peers have pushed: one trip, no barrier and no flag, (world - 1) x bytes into it.
pub const LAMPORT: Lamport = Lamport::new(Collective::Reduce, ["lamport", "lamport_serial"], &MODULE);

/// The same without dependent launches.
pub const LAMPORT_SERIAL: Lamport = LAMPORT.serial();
