//! The way down from a failing case to the smallest that still fails.

use std::time::{Duration, Instant};

use proptest::strategy::ValueTree;

use super::{
    collective_case::{CollectiveCase, Graph, Item, Skew},
    inputs::InputClass,
};
use passmuster_plan::collective::{DType, ReduceOp};

/// A case of which there are simpler ones.
pub trait Simplify: Clone + std::fmt::Debug {
    /// Neighbours that are simpler than it, the most welcome first.
    fn simpler(&self) -> Vec<Self>;
}

impl Simplify for CollectiveCase {
    fn simpler(&self) -> Vec<CollectiveCase> {
        simpler(self)
    }
}

/// The smallest case found that still fails, and how many were tried.
pub struct Shrunk<C> {
    /// The case.
    pub case: C,
    /// What it was judged to be.
    pub failure: String,
    /// Cases run on the way.
    pub tried: u32,
}

/// The most cases that are run on the way to a smaller one.
const MOST_TRIED: u32 = 400;

/// Looks for a smaller case that still fails, as proptest shrinks: fewer calls first, then a smaller world, fewer elements, a simpler dtype, no skew,
/// tagged inputs. `fails` runs a case and says how it fails, if it does. Begins no further case after `budget`.
pub fn shrink<C: Simplify>(case: &C, failure: String, budget: Duration, mut fails: impl FnMut(&C) -> Option<String>) -> Shrunk<C> {
    let start = Instant::now();
    let mut descent = Descent::from(case.clone());
    let mut smallest = Shrunk { case: case.clone(), failure, tried: 0 };
    let mut smaller = descent.simplify();
    while smaller && smallest.tried < MOST_TRIED && start.elapsed() < budget {
        smallest.tried += 1;
        let candidate = descent.current();
        smaller = match fails(&candidate) {
            Some(failure) => {
                (smallest.case, smallest.failure) = (candidate, failure);
                descent.simplify()
            }
            None => descent.complicate(),
        };
    }
    smallest
}

/// The way down from a case that fails, as proptest goes it: to the first of its [simpler](Simplify::simpler) neighbours that fails as well, and on from there.
#[derive(Clone, Debug)]
pub(crate) struct Descent<C> {
    /// The last that is known to fail; at first, what was drawn.
    failing: C,
    /// What is tried in its place.
    tried: Option<C>,
    /// Neighbours of the failing one that are still to be tried, the most welcome last.
    untried: Vec<C>,
}

impl<C> From<C> for Descent<C> {
    fn from(failing: C) -> Descent<C> {
        Descent { failing, tried: None, untried: Vec::new() }
    }
}

impl<C: Simplify> ValueTree for Descent<C> {
    type Value = C;

    fn current(&self) -> C {
        self.tried.as_ref().unwrap_or(&self.failing).clone()
    }

    /// What is current fails.
    fn simplify(&mut self) -> bool {
        self.failing = self.tried.take().unwrap_or_else(|| self.failing.clone());
        self.untried = self.failing.simpler();
        self.untried.reverse();
        self.complicate()
    }

    /// What was tried does not fail.
    fn complicate(&mut self) -> bool {
        self.tried = self.untried.pop();
        self.tried.is_some()
    }
}

/// Neighbours of a case that are simpler than it, the most welcome first.
fn simpler(case: &CollectiveCase) -> Vec<CollectiveCase> {
    let mut out = Vec::new();
    let mut push = |change: &dyn Fn(&mut CollectiveCase)| {
        let mut simpler = case.clone();
        change(&mut simpler);
        // A change may leave the case as it was, or make it one that cannot be written down.
        if simpler != *case && simpler.to_string().parse::<CollectiveCase>().as_ref() == Ok(&simpler) {
            out.push(simpler);
        }
    };
    if let [Item::Eager(only)] = &case.calls[..] {
        push(&|c| {
            (c.algorithm, c.count, c.root) = (only.algorithm.clone(), only.count, only.root);
            (c.offset, c.in_place) = (only.offset, only.in_place);
            c.calls.clear();
        });
    }
    for start in 0..case.calls.len() {
        if case.calls.len() > 1 {
            push(&|c| drop(c.calls.remove(start)));
        }
    }
    for index in 0..case.calls.len() {
        push(&|c| {
            if let Item::Graph { calls, replays } = &mut c.calls[index] {
                if calls.len() > 1 { calls.truncate(1) } else { *replays = 1.max(*replays / 2) }
            }
        });
    }
    push(&|c| c.graph = Graph { calls: 1, replays: 0 });
    push(&|c| c.peer = None);
    for world in [2, 3, case.world.saturating_sub(1)] {
        if world >= 2 && world < case.world {
            push(&|c| {
                c.world = world;
                c.root = c.root.min(world - 1);
                c.calls.iter_mut().flat_map(Item::shots_mut).for_each(|shot| shot.root = shot.root.min(world - 1));
                c.skew = c.skew.map(|s| Skew { rank: s.rank.min(world - 1), ..s });
            });
        }
    }
    for fewer in counts_below(case, case.count) {
        push(&|c| c.count = fewer);
    }
    for index in 0..case.calls.len() {
        push(&|c| {
            for shot in c.calls[index].shots_mut() {
                shot.count = counts_below(case, shot.count).first().copied().unwrap_or(shot.count);
                shot.offset = 0;
                shot.in_place = false;
            }
        });
        push(&|c| c.calls[index].shots_mut().iter_mut().for_each(|shot| (shot.offset, shot.in_place) = (0, false)));
    }
    if case.calls.len() == 1 {
        // Of several, each on its way down would take more tries than there are.
        for fewer in case.shots().flat_map(|shot| counts_below(case, shot.count)) {
            push(&|c| c.calls[0].shots_mut().iter_mut().for_each(|shot| shot.count = shot.count.min(fewer)));
        }
    }
    for index in 0..case.calls.len() {
        push(&|c| c.calls[index].shots_mut().iter_mut().for_each(|shot| shot.root = 0));
    }
    push(&|c| c.root = 0);
    push(&|c| c.counts = None);
    push(&|c| c.offset = 0);
    push(&|c| c.in_place = false);
    push(&|c| c.dtype = DType::F32);
    push(&|c| c.op = ReduceOp::Sum);
    push(&|c| c.skew = None);
    push(&|c| c.inputs = InputClass::Tagged);
    push(&|c| c.seed = 0);
    out
}

/// Counts at which kernels go wrong: around packs, blocks of packs, slices of the world, and nothing at all.
pub(crate) fn boundary_counts(dtype: DType, world: u64) -> Vec<u64> {
    let pack = 16 / dtype.size();
    let tile = 512 * pack;
    let mut counts = vec![0, 1, 2, 3, world - 1, world, world + 1];
    for edge in [pack, pack * world, tile, tile * world] {
        counts.extend([edge - 1, edge, edge + 1]);
    }
    counts.extend([1040, 3 * tile + 5, 2 * tile * world + pack + 1]);
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Smaller counts worth trying: boundaries of packs and blocks, and halves.
fn counts_below(case: &CollectiveCase, count: u64) -> Vec<u64> {
    let mut counts: Vec<u64> = boundary_counts(case.dtype, case.world.into()).into_iter().filter(|&c| c > 0 && c < count).collect();
    if count > 1 {
        counts.push(count / 2);
    }
    counts.sort_unstable();
    counts.dedup();
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shrunk(id: &str, fails: impl Fn(&CollectiveCase) -> bool) -> String {
        let case: CollectiveCase = id.parse().unwrap();
        shrink(&case, "it fails".into(), Duration::from_secs(5), |c| fails(c).then(|| "it fails".into())).case.to_string()
    }

    #[test]
    fn shrinks_to_what_the_failure_needs() {
        let id = "all_reduce/two_shot:bf16,avg:w=8:n=32769:off=3:in_place:graph=3x2:inputs=probe:skew=r5+20us@end:seed=9f3c";
        assert_eq!(shrunk(id, |c| c.world >= 3 && c.count > 8), "all_reduce/two_shot:f32,sum:w=3:n=9:graph=1x0");
    }

    #[test]
    fn a_sequence_loses_the_calls_that_do_not_matter() {
        let id = "all_reduce/one_shot:f32,sum:w=4:calls=one_shot.7+two_shot.9+[two_shot.5+one_shot.1]x4+two_shot.33.in_place";
        let needs_graph = |c: &CollectiveCase| c.calls.iter().any(|i| matches!(i, Item::Graph { .. }));
        assert_eq!(shrunk(id, needs_graph), "all_reduce/one_shot:f32,sum:w=2:graph=1x0:calls=[two_shot.1]x1");
    }

    #[test]
    fn roots_stay_ranks_of_smaller_worlds() {
        let id = "reduce/pull:f32,sum:w=8:n=33:root=7";
        assert_eq!(shrunk(id, |c| c.root > 0), "reduce/pull:f32,sum:w=2:n=1:root=1:graph=1x0");
        let id = "broadcast/push:f32,copy:w=8:calls=push.7.root5+push.9";
        assert_eq!(shrunk(id, |c| c.shots().any(|shot| shot.root > 0)), "broadcast/push:f32,copy:w=2:graph=1x0:calls=push.1.root1");
    }

    #[test]
    fn a_failure_that_does_not_come_back_keeps_its_case() {
        let id = "all_reduce/two_shot:bf16,sum:w=8:n=1040";
        assert_eq!(shrunk(id, |_| false), id);
    }

    /// If this fails, a budget is overrun or what was found within it is lost.
    #[test]
    fn the_search_ends_with_what_it_has() {
        let case: CollectiveCase = "all_reduce/two_shot:bf16,avg:w=8:n=32769:off=3:in_place".parse().unwrap();
        let hurried = shrink(&case, "it fails".into(), Duration::ZERO, |_| Some("it fails, too".into()));
        assert_eq!((hurried.case, hurried.failure.as_str(), hurried.tried), (case.clone(), "it fails", 0));
        let mut runs = 0;
        let first = shrink(&case, "it fails".into(), Duration::from_secs(5), |_| {
            runs += 1;
            (runs == 1).then(|| "it fails, too".into())
        });
        assert!(first.case != case && first.failure == "it fails, too" && first.tried == runs);
    }
}
