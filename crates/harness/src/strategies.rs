//! Strategies of proptest for tests of one's own: cases, sequences of calls and worlds, of the algorithms of a [registry](Registry).
//!
//! ```
//! use passmuster_harness::{algorithms::Registry, cargo_test::judge, collective::Collective, strategies};
//! use proptest::prelude::*;
//!
//! proptest! {
//!     #![proptest_config(ProptestConfig::with_cases(4))]
//!     # /*
//!     #[test]
//!     # */
//!     fn any_call_is_right(case in strategies::cases(&passmuster_harness::registry(passmuster_kernels::catalogue()), Collective::AllReduce, "one_shot", 2..=4)) {
//!         prop_assert_eq!(judge(&passmuster_harness::registry(passmuster_kernels::catalogue()), &case.into()), Ok(()));
//!     }
//! }
//! # any_call_is_right();
//! ```
//!
//! What fails becomes smaller as the harness's own findings do: fewer calls, a smaller world, fewer elements, a simpler type.

use std::{ops::RangeInclusive, sync::Arc};

use proptest::{
    prelude::*,
    sample::select,
    strategy::{NewTree, ValueTree},
    test_runner::TestRunner,
};

use crate::conformance::{
    CollectiveCase, Graph, InputClass,
    lists::Source,
    lists::sequences::{sequence_of, skew},
    shrink::{Descent, boundary_counts},
};
use passmuster_plan::{
    algorithms::{Algorithm, Registry},
    collective::{Collective, DType, ReduceOp, Shape},
    plan::{Call, MAX_WORLD},
};

/// Elements of a slot up to which counts are drawn anywhere; beyond, only the counts at which kernels go wrong are.
const MOST_ANYWHERE: u64 = 3000;

/// World sizes, one rank and as many as kernels can address included.
pub fn worlds() -> impl Strategy<Value = u32> {
    1..=MAX_WORLD as u32
}

/// Calls of an algorithm on `worlds` ranks, each with a graph of its own: every type and operator that it does, counts at the edges of packs, tiles and
/// slices and between them, offsets, in place, roots, inputs of every class, one rank that may be late.
///
/// # Panics
/// Where the registry has no such algorithm, or it does no type and operator at all.
pub fn cases(
    registry: &Registry,
    collective: Collective,
    algorithm: &str,
    worlds: RangeInclusive<u32>,
) -> impl Strategy<Value = CollectiveCase> + use<> {
    let found = known(registry, collective, algorithm);
    let name = found.name().to_owned();
    let kinds = kinds(&*found, DType::ALL, collective.operators());
    assert!(!kinds.is_empty(), "{collective}/{algorithm} does no type and operator");
    let drawn =
        (select(kinds), worlds, select(&InputClass::ALL[..]), 1..=0xffff_u64).prop_flat_map(move |((dtype, op), world, inputs, seed)| {
            let count = prop_oneof![select(boundary_counts(dtype, world.into())), 0..MOST_ANYWHERE];
            let root = if collective.has_root() { (0..world).boxed() } else { Just(0).boxed() };
            let in_place = if collective.has_in_place() { any::<bool>().boxed() } else { Just(false).boxed() };
            let graph = (1..=3_u32, 2..=3_u32).prop_map(|(calls, replays)| Graph { calls, replays });
            (count, root, in_place, select(vec![0_u64, 0, 1, 3, 5, 8]), graph, proptest::option::weighted(0.25, skew(world))).prop_map({
                let of = CollectiveCase::new(collective, &name, dtype, op, world, 0);
                move |(count, root, in_place, offset, graph, skew)| CollectiveCase {
                    root,
                    in_place,
                    offset,
                    graph,
                    skew,
                    inputs,
                    seed,
                    count,
                    ..of.clone()
                }
            })
        });
    Simplified(drawn.prop_filter("more ranks than it takes", move |case| supports(&*found, case.shape(case.count), (case.dtype, case.op))))
}

/// Sequences of three to eleven calls or graphs on one or two groups of two to eight ranks, in which an algorithm takes turns with the others of its
/// collective: each leaves the group to the next.
///
/// # Panics
/// Where the registry has no such algorithm, or it does none of the common types with every common operator.
pub fn sequences(registry: &Registry, collective: Collective, algorithm: &str) -> impl Strategy<Value = CollectiveCase> + use<> {
    let found = known(registry, collective, algorithm);
    let ops = collective.common_operators();
    let mut dtypes = DType::COMMON.to_vec();
    dtypes.retain(|&dtype| kinds(&*found, [dtype], ops).len() == ops.len());
    assert!(!dtypes.is_empty(), "{collective}/{algorithm} does no common type with every common operator");
    let source = Source::all(registry);
    let others = source.contenders(collective);
    // Every second call is of the algorithm.
    let turns = [vec![found.name(); others.len().max(1)], others].concat();
    let drawn = sequence_of(source, collective, turns, dtypes, ops);
    Simplified(drawn.prop_filter("no call of the algorithm", move |case| case.shots().any(|shot| shot.algorithm == found.name())))
}

/// A strategy whose failing cases shrink by a [`Descent`]. Draw by draw, proptest would not know that a root is a rank, or that one call fewer is worth more
/// than a smaller count.
#[derive(Clone, Debug)]
struct Simplified<S>(S);

impl<S: Strategy<Value = CollectiveCase>> Strategy for Simplified<S> {
    type Tree = Descent<CollectiveCase>;
    type Value = CollectiveCase;

    fn new_tree(&self, runner: &mut TestRunner) -> NewTree<Self> {
        Ok(self.0.new_tree(runner)?.current().into())
    }
}

fn known(registry: &Registry, collective: Collective, algorithm: &str) -> Arc<dyn Algorithm> {
    registry.find(collective, algorithm).unwrap_or_else(|error| panic!("{error}"))
}

/// The types and operators, of these, that an algorithm does.
fn kinds(algorithm: &dyn Algorithm, dtypes: impl IntoIterator<Item = DType>, ops: &[ReduceOp]) -> Vec<(DType, ReduceOp)> {
    let all = dtypes.into_iter().flat_map(|dtype| ops.iter().map(move |&op| (dtype, op)));
    all.filter(|&kind| supports(algorithm, Shape::new(algorithm.collective(), 2, 1), kind)).collect()
}

fn supports(algorithm: &dyn Algorithm, shape: Shape, (dtype, op): (DType, ReduceOp)) -> bool {
    Call::standalone(shape, dtype, op).is_ok_and(|(call, _)| algorithm.supports(&call).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        REGISTRY,
        cargo_test::judge,
        conformance::{Item, List},
    };
    use proptest::test_runner::{Config, TestCaseError, TestError};
    use rstest::rstest;

    fn runner(cases: u32) -> TestRunner {
        TestRunner::new_with_rng(
            Config { cases, failure_persistence: None, ..Config::default() },
            proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
        )
    }

    /// If this fails, a case that is drawn is not the one that its report reproduces, or is one that the algorithm does not do.
    #[rstest]
    #[case(Collective::AllReduce, "two_shot_push")]
    #[case(Collective::Broadcast, "push")]
    #[case(Collective::AllToAll, "copy_engine")]
    fn what_is_drawn_is_a_case_that_passes(#[case] collective: Collective, #[case] algorithm: &str) {
        let both = prop_oneof![cases(&REGISTRY, collective, algorithm, 1..=3), sequences(&REGISTRY, collective, algorithm)];
        let result = runner(12).run(&both, |case| {
            prop_assert_eq!(case.to_string().parse(), Ok(case.clone()));
            prop_assert!(case.shots().map(|shot| &shot.algorithm).chain([&case.algorithm]).any(|name| name == algorithm));
            prop_assert_eq!(judge(&REGISTRY, &case.into()), Ok(()));
            Ok(())
        });
        assert_eq!(result, Ok(()));
    }

    /// If this fails, proptest goes down another way than findings do, or stops at a case that is no smallest one.
    #[test]
    fn failures_shrink_as_findings_do() {
        let failing = |case: CollectiveCase| {
            let fails = case.world >= 3 && case.shots().any(|shot| shot.count > 8);
            if fails { Err(TestCaseError::fail("it fails")) } else { Ok(()) }
        };
        let Err(TestError::Fail(_, smallest)) = runner(256).run(&sequences(&REGISTRY, Collective::AllReduce, "two_shot"), failing) else {
            panic!("no sequence failed")
        };
        let [Item::Eager(call)] = &smallest.calls[..] else { panic!("{smallest}") };
        assert_eq!((smallest.world, call.count, smallest.inputs, smallest.seed), (3, 9, InputClass::Tagged, 0), "{smallest}");
    }

    #[test]
    #[should_panic(expected = "unknown algorithm `tow_shot` of all_reduce")]
    fn an_algorithm_that_there_is_not_is_named() {
        assert!(!List::Smoke.cases(&REGISTRY, 0).is_empty());
        let _ = cases(&REGISTRY, Collective::AllReduce, "tow_shot", 1..=2);
    }
}
