//! What the lists have of ranks on several nodes: the algorithms that span them, beside NCCL alone.

use std::fmt::Display;

use super::{
    super::{
        collective_case::{CallSpec, CollectiveCase, Item},
        inputs::InputClass,
    },
    Choice, Source, draws, modest_counts, one_by_name, vary,
};
use passmuster_plan::collective::{Collective, DType, ReduceOp};

/// Ranks, and the nodes that they are on: nodes of one rank, of two, and of more; two nodes and more.
const GROUPS: [(u32, u32); 8] = [(2, 2), (3, 3), (4, 2), (4, 4), (6, 2), (6, 3), (8, 2), (8, 4)];

/// All ranks' elements together, of the larger of input and output.
const MOST_ELEMENTS: u64 = 20_000;

/// Operators that both levels have.
fn operators(collective: Collective, dtype: DType) -> Vec<ReduceOp> {
    let has = |op: &ReduceOp| *op != ReduceOp::PremulSum && (*op != ReduceOp::Avg || dtype.is_float());
    collective.operators().iter().copied().filter(has).collect()
}

/// A peer that ranks on several nodes may have.
fn peer(from: Source<'_>, collective: Collective, (dtype, op): (DType, ReduceOp), choice: &mut Choice) -> Option<String> {
    let mut able = from.peers(collective, dtype, op);
    able.retain(|name| from.registry.find(collective, name).is_ok_and(|peer| peer.spans_nodes()));
    one_by_name(&able, choice)
}

/// The collectives that span nodes, and by which algorithm.
fn spanning(from: Source<'_>) -> impl Iterator<Item = (Collective, &str)> {
    Collective::ALL.into_iter().filter_map(move |collective| Some((collective, from.spanning(collective)?)))
}

fn case(
    from: Source<'_>,
    (collective, algorithm): (Collective, &str),
    (dtype, op): (DType, ReduceOp),
    (world, nodes): (u32, u32),
    count: u64,
    role: impl Display,
    seed: u64,
) -> CollectiveCase {
    let mut case = CollectiveCase { nodes, seed, ..CollectiveCase::new(collective, algorithm, dtype, op, world, count) };
    let mut choice = draws(format_args!("{role}, {nodes} nodes"), &case, seed);
    case.inputs = choice.of(&InputClass::ALL);
    vary(from, &mut case, &mut choice);
    if choice.one_in(2) {
        case.peer = peer(from, collective, (dtype, op), &mut choice);
    }
    case
}

/// Two nodes of two ranks, for each collective.
pub(super) fn smoke(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    let of = |of: (Collective, &str)| case(from, of, (DType::BF16, of.0.operators()[0]), (4, 2), 1040, "smoke", seed);
    spanning(from).map(of).collect()
}

/// Every type and operator, groups and counts in turn, pre-multiplied sums, and sequences in and out of place.
pub(super) fn merge(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    let mut cases = Vec::new();
    for of @ (collective, algorithm) in spanning(from) {
        for dtype in from.common_dtypes() {
            for op in operators(collective, dtype) {
                for turn in 0..2 {
                    let group = GROUPS[(3 * dtype as usize + op as usize + 5 * turn) % GROUPS.len()];
                    let new = CollectiveCase::new(collective, algorithm, dtype, op, group.0, 0);
                    let mut choice = draws(format_args!("nodes, count {turn}"), &new, seed);
                    let count = choice.of(&modest_counts(collective, dtype, group.0, MOST_ELEMENTS));
                    cases.push(case(from, of, (dtype, op), group, count, format_args!("kinds {turn}"), seed));
                }
            }
        }
        for group @ (world, nodes) in GROUPS {
            let op = collective.operators()[0];
            let new = CollectiveCase::new(collective, algorithm, DType::BF16, op, world, 0);
            let mut choice = draws(format_args!("nodes in turn, {nodes} nodes"), &new, seed);
            let dtype = choice.of(&[DType::BF16, DType::F32]);
            let counts = modest_counts(collective, dtype, world, MOST_ELEMENTS);
            for (number, count) in [0, 1, choice.of(&counts), choice.of(&counts)].into_iter().enumerate() {
                cases.push(case(from, of, (dtype, op), group, count, format_args!("counts {number}"), seed));
            }
            if collective.operators().contains(&ReduceOp::PremulSum) {
                cases.push(case(from, of, (dtype, ReduceOp::PremulSum), group, choice.of(&counts), "products", seed));
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
            cases.push(CollectiveCase { calls, nodes, seed, ..CollectiveCase::new(collective, algorithm, dtype, op, world, 0) });
        }
    }
    cases
}
