//! What the lists have of all-to-all-v.

use super::{
    super::{collective_case::CollectiveCase, inputs::InputClass},
    Choice, LARGEST_WORLD, Source, modest, sequences,
};
use passmuster_plan::{
    algorithms::{Algorithm, Protocol},
    collective::{Collective, DType},
};

const COLLECTIVE: Collective = Collective::AllToAll;

/// The algorithms that do them, those last that send lines: the seeds of committed records go by that order. Those of Lamport packs take slots of one length only.
fn algorithms<'r>(from: Source<'r>) -> Vec<&'r str> {
    let takes_parts = |algorithm: &&dyn Algorithm| !algorithm.uses_multicast() && algorithm.protocol() != Protocol::Packs;
    let mut all: Vec<_> = from.under_test(COLLECTIVE).filter(takes_parts).collect();
    all.sort_by_key(|algorithm| algorithm.protocol() == Protocol::Lines);
    all.into_iter().map(|algorithm| algorithm.name()).collect()
}

fn cases(from: Source<'_>, dtypes: &[DType], worlds: &[u32], peered: bool, sequences: usize, seed: u64) -> Vec<CollectiveCase> {
    let mut choice = Choice::of_seed(seed ^ 0x70_6172_7473);
    let op = COLLECTIVE.operators()[0];
    let mut cases = Vec::new();
    for algorithm in algorithms(from) {
        for (row, &dtype) in dtypes.iter().enumerate() {
            for (turn, &world) in worlds.iter().enumerate() {
                let inputs = InputClass::ALL[(row + turn) % InputClass::ALL.len()];
                let mut case = modest(from, (COLLECTIVE, algorithm), (dtype, op), world, inputs, seed, &mut choice);
                case.counts = Some(choice.draw() % (1 << 16));
                case.peer = (peered && world > 1 && choice.one_in(2)).then(|| from.peer(COLLECTIVE, dtype, op, &mut choice)).flatten();
                cases.push(case);
            }
        }
    }
    let by_copy_engine = from.contenders_by_copy_engine(COLLECTIVE).into_iter();
    let sequences =
        by_copy_engine.flat_map(|algorithm| sequences::sequences_by_copy_engine(from, (COLLECTIVE, algorithm), sequences, seed));
    for (number, mut case) in sequences.enumerate() {
        case.counts = Some(number as u64);
        cases.push(case);
    }
    cases
}

/// bf16 on a few ranks.
pub(super) fn smoke(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    cases(from, &[DType::BF16], &[2, 3, 4, 8], false, 1, seed)
}

/// Elements of every width at every world size.
pub(super) fn merge(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    let dtypes = [DType::BF16, DType::F32, DType::F64, DType::E4M3];
    cases(from, &dtypes, &[1, 2, 3, 4, 5, 6, 7, 8, LARGEST_WORLD], true, 8, seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::REGISTRY;

    #[test]
    fn every_width_meets_every_world_and_parts_of_no_elements() {
        let from = Source::all(&REGISTRY);
        let cases = merge(from, 0);
        assert!((100..=170).contains(&cases.len()), "{}", cases.len());
        let any = |is: &dyn Fn(&CollectiveCase) -> bool| cases.iter().any(is);
        for algorithm in algorithms(from) {
            for world in (1..=8).chain([LARGEST_WORLD]) {
                for size in [1, 2, 4, 8] {
                    assert!(any(&|c| (&*c.algorithm, c.world, c.dtype.size()) == (algorithm, world, size)), "{algorithm} {world} {size}");
                }
            }
            let parts = |c: &CollectiveCase| c.shape(c.count).counts.expect("all of these cases have parts");
            assert!(any(&|c| c.count > 0 && (0..c.world).any(|rank| parts(c).sent(rank).sum::<u64>() == 0)), "a rank sends nothing");
            assert!(any(&|c| c.count > 9 && (0..c.world).any(|rank| parts(c).of(rank, rank) == 0)), "a rank keeps nothing");
            assert!(any(&|c| c.algorithm == algorithm && c.peer.is_some()) && any(&|c| c.algorithm == algorithm && c.calls.len() > 2));
        }
    }
}
