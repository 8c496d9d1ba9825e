//! Sequences of calls, drawn by proptest.

use std::{borrow::Cow, ops::Range};

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use super::{
    super::{
        collective_case::{CallSpec, CollectiveCase, Item, Skew},
        inputs::InputClass,
    },
    Source, counts_in_sequences,
};
use passmuster_plan::{
    collective::{Collective, DType, ReduceOp},
    machine::Site,
};

/// `number` sequences of calls, the same for the same seed.
pub(crate) fn sequences(from: Source<'_>, number: usize, seed: u64) -> Vec<CollectiveCase> {
    sequences_of(from, Collective::AllReduce, number, seed)
}

/// `number` sequences of a collective's calls.
pub(super) fn sequences_of(from: Source<'_>, collective: Collective, number: usize, seed: u64) -> Vec<CollectiveCase> {
    among(from, collective, from.contenders(collective), number, seed)
}

/// `number` sequences in which these algorithms take turns; none if there is no algorithm.
fn among(from: Source<'_>, collective: Collective, algorithms: Vec<&str>, number: usize, seed: u64) -> Vec<CollectiveCase> {
    if algorithms.is_empty() {
        return Vec::new();
    }
    drawn(sequence_of(from, collective, algorithms, &DType::COMMON, collective.common_operators()), number, seed)
}

/// `number` sequences in which kernels take turns with copy engines, which make every second call.
pub(super) fn sequences_by_copy_engine(
    from: Source<'_>,
    (collective, algorithm): (Collective, &str),
    number: usize,
    seed: u64,
) -> Vec<CollectiveCase> {
    let kernels = from.contenders(collective);
    among(from, collective, [vec![algorithm; kernels.len()], kernels].concat(), number, seed)
}

/// `number` sequences in which algorithms that use multicast addresses take turns with those that do not: apart from the others, for a
/// machine without such addresses can do nothing of a sequence that has one.
pub(super) fn sequences_over_multicast(from: Source<'_>, number: usize, seed: u64) -> Vec<CollectiveCase> {
    let collective = Collective::AllReduce;
    let algorithms = [from.contenders_over_multicast(collective), from.contenders(collective)].concat();
    if algorithms.is_empty() {
        return Vec::new();
    }
    drawn(sequence_of(from, collective, algorithms, &[DType::F32, DType::F16, DType::BF16], &[ReduceOp::Sum]), number, seed)
}

fn drawn(strategy: impl Strategy<Value = CollectiveCase>, number: usize, seed: u64) -> Vec<CollectiveCase> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    (0..number).map(|_| strategy.new_tree(&mut runner).expect("the strategy rejects nothing").current()).collect()
}

/// Sequences on one or two groups: algorithms, counts, offsets and places change from call to call, some calls are captured
/// and replayed, one rank may be late.
pub(crate) fn sequence_of<DTYPES: Into<Cow<'static, [DType]>>>(
    from: Source<'_>,
    collective: Collective,
    algorithms: Vec<&str>,
    dtypes: DTYPES,
    ops: &'static [ReduceOp],
) -> impl Strategy<Value = CollectiveCase> + use<DTYPES> {
    let algorithms: Vec<String> = algorithms.into_iter().map(str::to_owned).collect();
    let most = from.modest_elements();
    let kind = (
        proptest::sample::select(dtypes),
        proptest::sample::select(ops),
        2..=8u32,
        1..=2u32,
        proptest::sample::select(&InputClass::ALL[..]),
        1..=0xffffu64,
    );
    kind.prop_flat_map(move |(dtype, op, world, groups, inputs, seed)| {
        let count = proptest::sample::select(counts_in_sequences(collective, dtype, world, most));
        let shot = shot((collective, &algorithms), count, world).boxed();
        let of = CollectiveCase { inputs, seed, ..CollectiveCase::new(collective, "", dtype, op, world, 0) };
        sequence_with(of, shot, groups, 3..12)
    })
}

/// The sequences of `steps` steps on `groups` groups that are like `of`, except for their calls and for which rank is late.
pub(crate) fn sequence_with(
    of: CollectiveCase,
    shot: BoxedStrategy<CallSpec>,
    groups: u32,
    steps: Range<usize>,
) -> impl Strategy<Value = CollectiveCase> {
    let items = proptest::collection::vec(item(shot, groups), steps);
    (items, proptest::option::of(skew(of.world))).prop_map(move |(calls, skew)| {
        let mut case = CollectiveCase { calls, skew, ..of.clone() };
        // Reports count a sequence under the algorithm that it calls first.
        let first = case.shots().next().map(|shot| shot.algorithm.clone());
        case.algorithm = first.expect("a sequence has calls");
        case
    })
}

fn item(shot: BoxedStrategy<CallSpec>, groups: u32) -> impl Strategy<Value = Item> {
    let eager = (shot.clone(), 0..groups).prop_map(|(shot, group)| Item::Eager(CallSpec { group, ..shot }));
    let graph = (proptest::collection::vec(shot, 1..4), 1..5u32, 0..groups).prop_map(|(calls, replays, group)| Item::Graph {
        calls: calls.into_iter().map(|shot| CallSpec { group, ..shot }).collect(),
        replays,
    });
    prop_oneof![3 => eager, 1 => graph]
}

pub(crate) fn shot<C: Strategy<Value = u64>>(
    (collective, algorithms): (Collective, &[String]),
    count: C,
    world: u32,
) -> impl Strategy<Value = CallSpec> + use<C> {
    let algorithm = proptest::sample::select(algorithms.to_vec());
    let root = if collective.has_root() { (0..world).boxed() } else { Just(0).boxed() };
    let in_place = if collective.has_in_place() { proptest::bool::weighted(0.3).boxed() } else { Just(false).boxed() };
    (algorithm, count, root, proptest::sample::select(vec![0u64, 0, 0, 1, 5]), in_place)
        .prop_map(|(algorithm, count, root, offset, in_place)| CallSpec { algorithm, count, root, offset, in_place, group: 0 })
}

pub(crate) fn skew(world: u32) -> impl Strategy<Value = Skew> {
    let site = proptest::option::of(proptest::sample::select(&Site::ALL[..]));
    (0..world, proptest::sample::select(vec![10u32, 50, 200, 1000]), site).prop_map(|(rank, microseconds, site)| Skew {
        rank,
        microseconds,
        site,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{REGISTRY, conformance::Case};

    #[test]
    fn generated_sequences_read_back() {
        let from = Source::all(&REGISTRY);
        let of_others: Vec<CollectiveCase> =
            Collective::ALL.into_iter().flat_map(|collective| sequences_of(from, collective, 20, 3)).collect();
        for case in sequences(from, 50, 3).into_iter().chain(sequences_over_multicast(from, 20, 3)).chain(of_others) {
            assert_eq!(Case::resolve(&case.to_string(), &REGISTRY), Ok(case.into()));
        }
    }
}
