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
    Source, keyed, modest_counts,
};
use passmuster_plan::{
    collective::{Collective, DType, ReduceOp},
    machine::Site,
};

/// Which sequences a list has of a collective. Each is of a cast, which are some algorithms that take turns, and of a type. An algorithm or a type more brings
/// casts of its own and changes no other sequence.
#[derive(Clone, Copy)]
pub(super) struct Sequences<'a> {
    /// What tells them from those of other lists.
    pub role: &'a str,
    /// Algorithms of a cast at most.
    pub largest: u32,
    /// Sequences of each cast and type.
    pub of_each: u32,
    /// One in `one_in` of them.
    pub one_in: u64,
}

impl<'a> Sequences<'a> {
    /// One of each cast of at most three, and type.
    pub(super) fn of(role: &'a str) -> Sequences<'a> {
        Sequences { role, largest: 3, of_each: 1, one_in: 1 }
    }
}

/// Sequences of a collective's calls whose kernels synchronise.
pub(super) fn sequences(from: Source<'_>, collective: Collective, wanted: Sequences<'_>, seed: u64) -> Vec<CollectiveCase> {
    among(from, collective, from.contenders(collective), wanted, seed)
}

/// The same of some of them.
pub(super) fn among(
    from: Source<'_>,
    collective: Collective,
    algorithms: Vec<&str>,
    wanted: Sequences<'_>,
    seed: u64,
) -> Vec<CollectiveCase> {
    let of = casts(algorithms, wanted.largest);
    drawn(from, collective, of, from.common_dtypes(), collective.common_operators(), wanted, seed)
}

/// Sequences in which each of these kernels takes turns with a copy engine, which makes about every second call.
pub(super) fn by_copy_engine(
    from: Source<'_>,
    (collective, engine): (Collective, &str),
    kernels: &[&str],
    wanted: Sequences<'_>,
    seed: u64,
) -> Vec<CollectiveCase> {
    let alone = kernels.is_empty().then(|| vec![engine]);
    let of = kernels.iter().map(|&kernel| vec![engine, kernel]).chain(alone);
    drawn(from, collective, of, from.common_dtypes(), collective.common_operators(), wanted, seed)
}

/// Sequences of all-reduces in which an algorithm that uses multicast addresses takes turns with one that does not, or with another that does: apart from the
/// others, for a machine without such addresses can do nothing of a sequence that has one.
pub(super) fn over_multicast(from: Source<'_>, wanted: Sequences<'_>, seed: u64) -> Vec<CollectiveCase> {
    let collective = Collective::AllReduce;
    let (multimem, others) = (from.contenders_over_multicast(collective), from.contenders(collective));
    let mixed = multimem.iter().flat_map(|&one| others.iter().map(move |&other| vec![one, other]));
    let of = casts(multimem.clone(), 2).into_iter().chain(mixed);
    let dtypes = from.dtypes().filter(|dtype| [DType::F32, DType::F16, DType::BF16].contains(dtype));
    drawn(from, collective, of, dtypes, &[ReduceOp::Sum], wanted, seed)
}

/// Every set of at most `largest` of some algorithms.
fn casts(mut algorithms: Vec<&str>, largest: u32) -> Vec<Vec<&str>> {
    algorithms.sort_unstable();
    let sets = (1..1_u64 << algorithms.len()).filter(|set| set.count_ones() <= largest);
    let of = |set: u64| algorithms.iter().enumerate().filter(move |(place, _)| set >> place & 1 == 1).map(|(_, &name)| name).collect();
    sets.map(of).collect()
}

fn drawn<'n>(
    from: Source<'_>,
    collective: Collective,
    casts: impl IntoIterator<Item = Vec<&'n str>>,
    dtypes: impl Iterator<Item = DType> + Clone,
    ops: &'static [ReduceOp],
    Sequences { role, of_each, one_in, .. }: Sequences<'_>,
    seed: u64,
) -> Vec<CollectiveCase> {
    let mut all = Vec::new();
    for cast in casts {
        for (dtype, number) in dtypes.clone().flat_map(|dtype| (0..of_each).map(move |number| (dtype, number))) {
            let mut choice = keyed(format_args!("{role}: {collective}/{} {dtype}, sequence {number}", cast.join("+")), seed);
            if choice.one_in(one_in) {
                let key: Vec<u8> = (0..4).flat_map(|_| choice.draw().to_le_bytes()).collect();
                let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &key));
                let strategy = sequence_of(from, collective, cast.clone(), vec![dtype], ops);
                let mut next = || strategy.new_tree(&mut runner).expect("the strategy rejects nothing").current();
                let calls_all = |case: &CollectiveCase| cast.iter().all(|name| case.shots().any(|shot| shot.algorithm == *name));
                all.extend(std::iter::repeat_with(&mut next).find(calls_all));
            }
        }
    }
    all
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
    let most = from.modest_elements(collective, algorithms.iter().map(String::as_str));
    let kind = (
        proptest::sample::select(dtypes),
        proptest::sample::select(ops),
        2..=8u32,
        1..=2u32,
        proptest::sample::select(&InputClass::ALL[..]),
        1..=0xffffu64,
    );
    kind.prop_flat_map(move |(dtype, op, world, groups, inputs, seed)| {
        let count = proptest::sample::select(modest_counts(collective, dtype, world, most));
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
        let all = Collective::ALL.into_iter().flat_map(|collective| sequences(from, collective, Sequences::of("a test"), 3));
        for case in all.chain(over_multicast(from, Sequences::of("a test"), 3)) {
            assert_eq!(Case::resolve(&case.to_string(), &REGISTRY), Ok(case.into()));
        }
    }

    /// If this fails, what an algorithm leaves to the next is not tried for some pair of them.
    #[test]
    fn every_cast_takes_turns() {
        assert_eq!(casts(vec!["c", "a", "b"], 2), [vec!["a"], vec!["b"], vec!["a", "b"], vec!["c"], vec!["a", "c"], vec!["b", "c"]]);
        let from = Source::all(&REGISTRY);
        let all = sequences(from, Collective::AllReduce, Sequences::of("a test"), 0);
        let names = from.contenders(Collective::AllReduce);
        for (one, other) in names.iter().flat_map(|one| names.iter().map(move |other| (one, other))) {
            let has = |case: &CollectiveCase, name: &str| case.shots().any(|shot| shot.algorithm == name);
            assert!(all.iter().any(|case| has(case, one) && has(case, other)), "{one} {other}");
        }
    }
}
