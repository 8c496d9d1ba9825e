//! What the lists have of `auto`: calls on both sides of each size at which its choice changes, and sequences that change it call by call.

use super::{
    super::{
        collective_case::{CallSpec, CollectiveCase, Graph, Item},
        inputs::InputClass,
    },
    LARGEST_WORLD, Source, draws, vary,
};
use passmuster_plan::collective::{Collective, DType, Shape};

/// Bytes of the larger of input and output, of all ranks together, up to which there are cases: more would take the emulator seconds each. Of a
/// collective that changes its choice at none of these, the fewest at which it does.
const MOST: u64 = 1 << 20;

/// The sizes at which the choice changes and that have cases: those of worlds that were measured.
pub(super) fn tried(from: Source<'_>, collective: Collective, world: u32) -> impl Iterator<Item = u64> {
    let switches = from.registry.apart(collective).map(|algorithm| algorithm.switches()).find(|switches| !switches.is_empty());
    let switches = switches.unwrap_or_default();
    let of_all_ranks = |&(ranks, bytes): &(u32, u64)| bytes * u64::from(ranks);
    let most = switches.iter().map(of_all_ranks).min().map_or(0, |least| least.max(MOST));
    switches.into_iter().filter(move |switch| switch.0 == world && of_all_ranks(switch) <= most).map(|(_, bytes)| bytes)
}

/// The counts on both sides of a threshold.
fn around(collective: Collective, dtype: DType, world: u32, threshold: u64) -> [u64; 2] {
    let last = threshold / (Shape::new(collective, world, 1).larger() * dtype.size());
    [last, last + 1]
}

/// Cases at every threshold of every collective, and of few elements on 1 to 8 and 16 ranks.
pub(super) fn merge(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    let mut cases = Vec::new();
    for collective in Collective::ALL {
        let Some(algorithm) = from.chooser(collective) else { continue };
        let op = collective.operators()[0];
        for world in (1..=8).chain([LARGEST_WORLD]) {
            // The choice is made by bytes: the largest type has the fewest elements of them.
            let dtype = DType::F64;
            let new = |dtype, count| CollectiveCase { seed, ..CollectiveCase::new(collective, algorithm, dtype, op, world, count) };
            let counts: Vec<u64> =
                tried(from, collective, world).flat_map(|threshold| around(collective, dtype, world, threshold)).chain([0, 33]).collect();
            for &count in &counts {
                let mut choice = draws("chosen", &new(dtype, count), seed);
                let dtype = if count > 33 { dtype } else { choice.of(&[DType::BF16, DType::F32]) };
                let mut case = CollectiveCase { inputs: choice.of(&InputClass::ALL), ..new(dtype, count) };
                vary(from, &mut case, &mut choice);
                if count > 33 {
                    // Sequences have graphs; six calls and more of such a size take the emulator seconds.
                    case.graph = Graph::default();
                }
                cases.push(case);
            }
            let mut choice = draws("chosen in turn", &new(dtype, 0), seed);
            let mut shot = |in_place| {
                let in_place = in_place && collective.has_in_place();
                CallSpec { algorithm: algorithm.into(), count: choice.of(&counts), offset: 0, in_place, group: 0, root: 0 }
            };
            let graph = Item::Graph { calls: vec![shot(false), shot(false)], replays: 3 };
            let calls = vec![Item::Eager(shot(false)), Item::Eager(shot(true)), graph, Item::Eager(shot(false)), Item::Eager(shot(false))];
            cases.push(CollectiveCase { calls, ..new(dtype, 0) });
        }
    }
    cases
}
