//! What the lists have of `unregistered`: calls on memory that peers cannot address, which is what their inputs and outputs are then given.

use std::fmt::Display;

use super::{
    super::{
        collective_case::{CallSpec, CollectiveCase, Graph, Item},
        inputs::InputClass,
    },
    Choice, LARGEST_WORLD, Source, chosen, draws, modest_counts, one_by_name, vary,
};
use passmuster_plan::collective::{Collective, DType, ReduceOp, Shape};

/// All ranks' elements together, of the larger of input and output.
const MOST_ELEMENTS: u64 = 20_000;

/// A peer that takes such memory, too.
fn peer(from: Source<'_>, collective: Collective, (dtype, op): (DType, ReduceOp), choice: &mut Choice) -> Option<String> {
    let mut able = from.peers(collective, dtype, op);
    able.retain(|name| from.registry.find(collective, name).is_ok_and(|peer| peer.accepts_unregistered()));
    one_by_name(&able, choice)
}

/// The collectives that can be called so, and by which algorithm.
fn staging(from: Source<'_>) -> impl Iterator<Item = (Collective, &str)> {
    Collective::ALL.into_iter().filter_map(move |collective| Some((collective, from.staging(collective)?)))
}

fn case(
    from: Source<'_>,
    (collective, algorithm): (Collective, &str),
    (dtype, world, count): (DType, u32, u64),
    role: impl Display,
    seed: u64,
) -> (CollectiveCase, Choice) {
    // Of pre-multiplied sums, the products are what peers read.
    let ops: Vec<ReduceOp> =
        collective.operators().iter().copied().filter(|op| [ReduceOp::Sum, ReduceOp::PremulSum, ReduceOp::Copy].contains(op)).collect();
    let mut case = CollectiveCase { seed, ..CollectiveCase::new(collective, algorithm, dtype, ops[0], world, count) };
    let mut choice = draws(role, &case, seed);
    (case.op, case.inputs) = (choice.of(&ops), choice.of(&InputClass::ALL));
    vary(from, &mut case, &mut choice);
    (case, choice)
}

/// A case of every collective.
pub(super) fn smoke(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    staging(from).map(|of| case(from, of, (DType::BF16, 3, 1040), "smoke", seed).0).collect()
}

/// Boundary counts, sizes at which what is wrapped changes, peers, and sequences in and out of place, of every collective.
pub(super) fn merge(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    let mut cases = Vec::new();
    for of @ (collective, algorithm) in staging(from) {
        for world in (1..=8).chain([LARGEST_WORLD]) {
            let op = collective.operators()[0];
            let new = CollectiveCase { seed, ..CollectiveCase::new(collective, algorithm, DType::BF16, op, world, 0) };
            let mut choice = draws("unregistered in turn", &new, seed);
            let dtype = choice.of(&[DType::BF16, DType::F32, DType::F64]);
            let boundaries = modest_counts(collective, dtype, world, MOST_ELEMENTS);
            let slot = Shape::new(collective, world, 1).larger() * dtype.size();
            let with_large = [2, 4, 8].contains(&world);
            let above: Vec<u64> = chosen::tried(from, collective, world).filter(|_| with_large).map(|bytes| bytes / slot + 1).collect();
            let counts: Vec<u64> = above.iter().copied().chain([0, choice.of(&boundaries), choice.of(&boundaries)]).collect();
            for (number, &count) in counts.iter().enumerate() {
                let (mut case, mut choice) = case(from, of, (dtype, world, count), format_args!("counts {number}"), seed);
                if above.contains(&count) {
                    // As `chosen` has it: sequences have graphs.
                    case.graph = Graph::default();
                }
                case.peer = if choice.one_in(2) { peer(from, collective, (dtype, case.op), &mut choice) } else { None };
                cases.push(case);
            }
            let mut shot = |in_place| CallSpec {
                algorithm: algorithm.into(),
                count: choice.of(&counts),
                offset: 0,
                in_place: in_place && collective.has_in_place(),
                group: 0,
                root: 0,
            };
            let graph = Item::Graph { calls: vec![shot(false), shot(true)], replays: 3 };
            let calls = vec![Item::Eager(shot(false)), Item::Eager(shot(true)), graph, Item::Eager(shot(false))];
            cases.push(CollectiveCase { calls, dtype, ..new });
        }
    }
    cases
}
