//! What the lists have of copy engines: fewer cases than of kernels that synchronise, for copies know neither types nor operators.

use super::{
    super::{collective_case::CollectiveCase, inputs::InputClass},
    LARGEST_WORLD, Source, TILED_ELEMENTS, draws, modest, modest_counts,
    sequences::{self, Sequences},
};
use passmuster_plan::collective::{Collective, DType};

/// The algorithms of all collectives whose data copy engines move.
pub(super) fn algorithms<'r>(from: Source<'r>) -> impl Iterator<Item = (Collective, &'r str)> {
    Collective::ALL
        .into_iter()
        .flat_map(move |collective| from.contenders_by_copy_engine(collective).into_iter().map(move |name| (collective, name)))
}

/// bf16 and f32 at five world sizes, with the input classes in turn, and two sequences.
pub(super) fn smoke(from: Source<'_>, (collective, algorithm): (Collective, &str), seed: u64) -> Vec<CollectiveCase> {
    let mut cases = Vec::new();
    for (number, dtype) in [DType::BF16, DType::F32].into_iter().enumerate() {
        for (turn, world) in [1, 2, 3, 4, 8].into_iter().enumerate() {
            let inputs = InputClass::ALL[(number + turn) % InputClass::ALL.len()];
            cases.push(modest(from, "smoke", (collective, algorithm), (dtype, collective.operators()[0]), world, inputs, seed).0);
        }
    }
    let few = Sequences { one_in: 10, ..Sequences::of("smoke") };
    cases.extend(sequences::by_copy_engine(from, (collective, algorithm), &from.contenders(collective), few, seed));
    cases
}

/// Every common element type and operator at every world size, with the input classes in turn and every second time a peer; the counts at which slices
/// are cut differently; large payloads; sequences in which kernels take turns with copy engines.
pub(super) fn merge(from: Source<'_>, (collective, algorithm): (Collective, &str), seed: u64) -> Vec<CollectiveCase> {
    let mut cases = Vec::new();
    let reductions = from.common_dtypes().flat_map(|dtype| collective.common_operators().iter().map(move |&op| (dtype, op)));
    for (dtype, op) in reductions {
        for world in (1..=8).chain([LARGEST_WORLD]) {
            let turn = dtype as usize + op as usize + world as usize;
            let inputs = InputClass::ALL[turn % InputClass::ALL.len()];
            let (mut case, mut choice) = modest(from, "kinds", (collective, algorithm), (dtype, op), world, inputs, seed);
            case.peer = (turn.is_multiple_of(2) && world > 1).then(|| from.peer(collective, dtype, op, &mut choice)).flatten();
            cases.push(case);
        }
    }
    let of = |world, count| {
        let mut case = CollectiveCase::new(collective, algorithm, DType::BF16, collective.operators()[0], world, count);
        case.inputs = InputClass::Natural;
        case.seed = seed;
        case
    };
    for world in [3, 8] {
        for count in modest_counts(collective, DType::BF16, world, TILED_ELEMENTS) {
            let mut case = of(world, count);
            case.offset = draws("edges", &case, seed).of(&[0, 0, 1]);
            cases.push(case);
        }
    }
    cases.push(of(2, (1 << 20) + 3));
    // More than 2^31 elements in all slots together: 32-bit indices would wrap.
    cases.push(of(2, (1 << 30) + 9));
    cases.extend(sequences::by_copy_engine(from, (collective, algorithm), &from.contenders(collective), Sequences::of("merge"), seed));
    cases
}
