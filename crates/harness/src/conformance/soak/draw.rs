//! What a round is: drawn by proptest, from the strategies that sequences of the merge list come from.

use proptest::{
    prelude::*,
    sample::select,
    strategy::ValueTree,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use super::{
    super::{
        collective_case::{CallSpec, CollectiveCase, Graph},
        inputs::InputClass,
        lists::{Source, sequences},
        scenario,
        shrink::boundary_counts,
    },
    Part, Round, Soak,
};
use passmuster_emulator::choice::Choice;
use passmuster_plan::{
    algorithms::{Algorithm, Registry},
    collective::{Collective, DType, ReduceOp, Shape},
    plan::{MAX_RANKS, MAX_WORLD},
};

/// Sequences that run together at most, and groups of each.
const MOST_PARTS: usize = 3;
const MOST_GROUPS: u32 = 2;

/// The types that most calls are of.
const COMMON: [DType; 3] = [DType::BF16, DType::F16, DType::F32];

/// Elements of a slot up to which counts are drawn anywhere.
const MOST_ANYWHERE: u64 = 3000;

pub(super) fn round(registry: &Registry, soak: Soak, number: u64) -> Round {
    let right = |world: &u32| (1..=MAX_RANKS).contains(&(*world as usize));
    assert!(!soak.worlds.is_empty() && soak.worlds.iter().all(right), "worlds {:?}: each has 1 to {MAX_RANKS} ranks", soak.worlds);
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&soak.seed.to_le_bytes());
    seed[8..16].copy_from_slice(&number.to_le_bytes());
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let mut drawn = |strategy: BoxedStrategy<CollectiveCase>| strategy.new_tree(&mut runner).expect("few calls are rejected").current();
    let mut choice = Choice::of_seed(soak.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let cases: Vec<CollectiveCase> =
        (0..1 + choice.draw() % MOST_PARTS as u64).map(|_| drawn(sequence(registry, &soak, &mut choice))).collect();

    let groups: u64 = cases.iter().map(|case| u64::from(case.groups())).sum();
    // As many streams as groups, so that some have one to themselves and others share.
    let streams = |case: &CollectiveCase, choice: &mut Choice| (0..case.groups()).map(|_| (choice.draw() % groups) as usize).collect();
    let parts: Vec<Part> = cases.into_iter().map(|case| Part { streams: streams(&case, &mut choice), case }).collect();
    let all: Vec<usize> = (0..parts.len()).collect();
    let runs = if choice.one_in(2) {
        let first = all.iter().copied().filter(|&part| part == 0 || choice.one_in(2)).collect();
        vec![first, all]
    } else {
        vec![all]
    };
    Round { soak, number, parts, runs, order: choice.draw() }
}

/// Sequences of one collective's calls.
fn sequence(registry: &Registry, soak: &Soak, choice: &mut Choice) -> BoxedStrategy<CollectiveCase> {
    let collective = choice.of(&Collective::ALL);
    let world = choice.of(&soak.worlds);
    let kinds = kinds(registry, collective, world, soak.multicast);
    // Half of what is drawn is what most people call.
    let ops = collective.common_operators();
    let (common, others): (Vec<Kind>, Vec<Kind>) =
        kinds.into_iter().partition(|((dtype, op), _)| COMMON.contains(dtype) && ops[..1].contains(op));
    let kinds = [&common, &others].into_iter().filter(|kinds| !kinds.is_empty()).map(|kinds| select(kinds.clone()));
    let kinds = proptest::strategy::Union::new(kinds);
    let registry = registry.clone();
    let (bytes, counts) = (soak.bytes, (collective == Collective::AllToAll && choice.one_in(3)).then(|| choice.draw() % (1 << 16)));
    (kinds, 1..=MOST_GROUPS, select(&InputClass::ALL[..]), 1..=0xffff_u64)
        .prop_flat_map(move |(((dtype, op), algorithms), groups, inputs, seed)| {
            let of = CollectiveCase { inputs, seed, counts, ..CollectiveCase::new(collective, "", dtype, op, world, 0) };
            let (known, registry) = (of.clone(), registry.clone());
            let shot = sequences::shot((collective, &algorithms), count(collective, dtype, world, bytes), world)
                .prop_filter("its algorithm does not do it", move |shot| does(&registry, &known, shot));
            sequences::sequence_with(of, shot.boxed(), groups, 2..9)
        })
        .prop_map(late_where_it_can_be)
        .boxed()
}

/// Elements of a slot: at the edges of packs and tiles, anywhere below some thousands, and now and then as many as bytes allow.
fn count(collective: Collective, dtype: DType, world: u32, bytes: u64) -> impl Strategy<Value = u64> + use<> {
    let most = bytes / (Shape::new(collective, world, 1).larger() * dtype.size());
    let mut edges = boundary_counts(dtype, world.into());
    edges.retain(|&count| count <= most);
    let large = (0..=most.max(1).ilog2()).prop_flat_map(move |power| (1u64 << power)..=most.min(2 << power).max(1u64 << power));
    prop_oneof![4 => select(edges), 2 => 0..=MOST_ANYWHERE.min(most), 1 => large]
}

type Kind = ((DType, ReduceOp), Vec<String>);

/// The types and operators of a collective, each with the algorithms that do it on `world` ranks.
fn kinds(registry: &Registry, collective: Collective, world: u32, multicast: bool) -> Vec<Kind> {
    let takes_part = |algorithm: &&dyn Algorithm| (multicast || !algorithm.uses_multicast()) && !algorithm.numbers_calls();
    let all: Vec<&str> = Source::all(registry).under_test(collective).filter(takes_part).map(|own| own.name()).collect();
    let pairs = DType::ALL.into_iter().flat_map(|dtype| collective.operators().iter().map(move |&op| (dtype, op)));
    let of_pair = |(dtype, op): (DType, ReduceOp)| {
        let does = |name: &&str| scenario::supports(registry, &CollectiveCase::new(collective, name, dtype, op, world, 1)).is_ok();
        let names: Vec<_> = all.iter().copied().filter(does).map(str::to_owned).collect();
        (!names.is_empty()).then_some(((dtype, op), names))
    };
    pairs.filter_map(of_pair).collect()
}

/// Whether the algorithm of a call of a sequence does it.
fn does(registry: &Registry, of: &CollectiveCase, shot: &CallSpec) -> bool {
    let CallSpec { algorithm, count, root, offset, in_place, .. } = shot.clone();
    let graph = Graph { calls: 1, replays: 0 };
    scenario::supports(registry, &CollectiveCase { algorithm, count, root, offset, in_place, graph, ..of.clone() }).is_ok()
}

/// The same case. Among more ranks than a host has GPUs, a late rank is late on its host.
fn late_where_it_can_be(mut case: CollectiveCase) -> CollectiveCase {
    if case.world as usize > MAX_WORLD {
        case.skew.iter_mut().for_each(|skew| skew.site = None);
    }
    case
}
