//! What the lists have of the collectives other than all-reduce: fewer cases than of that, whose kernels they share parts of.

use super::{
    super::{collective_case::CollectiveCase, inputs::InputClass},
    ALIGNED, LARGEST_WORLD, Source, TILED_ELEMENTS, draws, modest, modest_counts, root,
    sequences::{self, Sequences},
    supported,
};
use passmuster_plan::collective::{Collective, DType, Shape};

/// The collectives of this module.
fn collectives() -> impl Iterator<Item = Collective> {
    Collective::ALL.into_iter().filter(|&collective| collective != Collective::AllReduce)
}

/// bf16 and f32 at five world sizes, with the input classes in turn, and a few sequences.
pub(super) fn smoke(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    let mut cases = Vec::new();
    for (collective, algorithm) in algorithms(from) {
        let op = collective.operators()[0];
        for (number, dtype) in [DType::BF16, DType::F32].into_iter().enumerate() {
            for (turn, world) in [1, 2, 3, 4, 8].into_iter().enumerate() {
                let inputs = InputClass::ALL[(number + turn) % InputClass::ALL.len()];
                cases.push(modest(from, "smoke", (collective, algorithm), (dtype, op), world, inputs, seed).0);
            }
        }
    }
    cases.extend(sequences(from, Sequences { one_in: 12, largest: 2, ..Sequences::of("smoke") }, seed));
    cases
}

/// Every common element type, operator, input class and world size, though not each with each; the counts at which kernels go wrong; large payloads;
/// sequences.
pub(super) fn merge(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    let mut cases = Vec::new();
    for (collective, algorithm) in algorithms(from) {
        let operators = collective.common_operators();
        for dtype in from.common_dtypes() {
            for world in (1..=8).chain([LARGEST_WORLD]) {
                for (turn, inputs) in InputClass::ALL.into_iter().enumerate() {
                    // With a single operator each input class comes with a peer and without, otherwise with two operators.
                    let each = [(0, false), (1, true)];
                    for &(number, peered) in if doubled(collective) { &each[..] } else { &each[(turn + world as usize) % 2..][..1] } {
                        let op = operators[(turn + 2 * number + world as usize) % operators.len()];
                        let role = if peered { "merge with peer" } else { "merge" };
                        let (mut case, mut choice) = modest(from, role, (collective, algorithm), (dtype, op), world, inputs, seed);
                        if collective.has_root() {
                            // In turn: by choice some rank of many might never be the root.
                            case.root = (dtype as usize * InputClass::ALL.len() + turn) as u32 % world;
                        }
                        case.peer = (peered && world > 1).then(|| from.peer(collective, dtype, op, &mut choice)).flatten();
                        cases.push(case);
                    }
                }
            }
        }
        cases.extend(boundaries(from, collective, algorithm, seed));
    }
    cases.extend(sequences(from, Sequences::of("merge"), seed));
    cases
}

/// Whether a collective has two cases of each combination. The kernels of the others are made of the parts that these try.
const fn doubled(collective: Collective) -> bool {
    matches!(collective, Collective::AllGather | Collective::ReduceScatter)
}

/// Every boundary count on a few ranks, and counts for GPUs alone.
fn boundaries(from: Source<'_>, collective: Collective, algorithm: &str, seed: u64) -> Vec<CollectiveCase> {
    let op = collective.operators()[0];
    let mut cases = Vec::new();
    for world in [1, 2, 3, 4, 8] {
        let counts = modest_counts(collective, DType::BF16, world, TILED_ELEMENTS);
        let last = counts.len().saturating_sub(ALIGNED);
        for (number, count) in counts.into_iter().enumerate() {
            let mut case = CollectiveCase::new(collective, algorithm, DType::BF16, op, world, count);
            // Probes show the order of addition, for which those with half the combinations have too few other cases.
            let probed = !doubled(collective) && number % 2 == 1;
            case.inputs = if probed { InputClass::Probe } else { InputClass::Natural };
            let mut choice = draws("edges", &case, seed);
            case.offset = if number < last { choice.of(&[0, 0, 1]) } else { 0 };
            case.root = root(&case, &mut choice);
            case.seed = seed;
            cases.push(case);
        }
    }
    // More than the emulator takes, to which they would be a minute each. One rank sends nothing.
    let slots = Shape::new(collective, 2, 1).larger();
    let elements = if slots == 1 { (4 << 20) + 3 } else { (1 << 20) + 3 };
    for world in [2, 3, 4, 8] {
        let mut large = CollectiveCase::new(collective, algorithm, DType::BF16, op, world, elements);
        large.inputs = InputClass::Natural;
        large.seed = seed;
        large.peer = from.peer(collective, DType::BF16, op, &mut draws("large", &large, seed));
        cases.extend(supported(from, large));
    }
    // More than 2^31 elements in all slots together: 32-bit indices would wrap.
    let mut huge = CollectiveCase::new(collective, algorithm, DType::BF16, op, 2, (1 << 31) / slots + 9);
    huge.seed = seed;
    cases.extend(supported(from, huge));
    cases
}

/// Sequences of calls of each collective, its algorithms mixed.
fn sequences<'r>(from: Source<'r>, wanted: Sequences<'r>, seed: u64) -> impl Iterator<Item = CollectiveCase> + use<'r> {
    collectives().flat_map(move |collective| sequences::sequences(from, collective, wanted, seed))
}

pub(super) fn algorithms<'r>(from: Source<'r>) -> impl Iterator<Item = (Collective, &'r str)> {
    collectives().flat_map(move |collective| from.contenders(collective).into_iter().map(move |algorithm| (collective, algorithm)))
}
