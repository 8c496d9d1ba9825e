//! What the lists have of all-to-all-v.

use super::{
    super::{collective_case::CollectiveCase, inputs::InputClass},
    LARGEST_WORLD, Source, modest,
    sequences::{self, Sequences},
};
use passmuster_plan::{
    algorithms::{Algorithm, Protocol},
    collective::{Collective, DType},
};

const COLLECTIVE: Collective = Collective::AllToAll;

/// The algorithms that do them. Those of Lamport packs take slots of one length only.
fn algorithms<'r>(from: Source<'r>) -> Vec<&'r str> {
    let takes_parts = |algorithm: &&dyn Algorithm| !algorithm.uses_multicast() && algorithm.protocol() != Protocol::Packs;
    from.under_test(COLLECTIVE).filter(takes_parts).map(|algorithm| algorithm.name()).collect()
}

fn cases(from: Source<'_>, dtypes: &[DType], worlds: &[u32], peered: bool, wanted: Sequences<'_>, seed: u64) -> Vec<CollectiveCase> {
    let op = COLLECTIVE.operators()[0];
    let mut cases = Vec::new();
    for algorithm in algorithms(from) {
        for &dtype in dtypes {
            for (turn, &world) in worlds.iter().enumerate() {
                let inputs = InputClass::ALL[(dtype as usize + turn) % InputClass::ALL.len()];
                let (mut case, mut choice) = modest(from, wanted.role, (COLLECTIVE, algorithm), (dtype, op), world, inputs, seed);
                case.counts = Some(choice.draw() % (1 << 16));
                case.peer = (peered && world > 1 && choice.one_in(2)).then(|| from.peer(COLLECTIVE, dtype, op, &mut choice)).flatten();
                cases.push(case);
            }
        }
    }
    let engines = from.contenders_by_copy_engine(COLLECTIVE);
    let kernels: Vec<&str> = algorithms(from).into_iter().filter(|name| !engines.contains(name)).collect();
    let sequences = engines.into_iter().flat_map(|engine| sequences::by_copy_engine(from, (COLLECTIVE, engine), &kernels, wanted, seed));
    let sequences = sequences.chain(sequences::among(from, COLLECTIVE, kernels.clone(), wanted, seed));
    cases.extend(sequences.map(|case| CollectiveCase { counts: Some(case.seed), ..case }));
    cases
}

/// bf16 on a few ranks.
pub(super) fn smoke(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    cases(from, &[DType::BF16], &[2, 3, 4, 8], false, Sequences { one_in: 10, ..Sequences::of("parts, smoke") }, seed)
}

/// Elements of every width at every world size.
pub(super) fn merge(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    let dtypes = [DType::BF16, DType::F32, DType::F64, DType::E4M3];
    cases(from, &dtypes, &[1, 2, 3, 4, 5, 6, 7, 8, LARGEST_WORLD], true, Sequences::of("parts"), seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::REGISTRY;

    #[test]
    fn every_width_meets_every_world_and_parts_of_no_elements() {
        let from = Source::all(&REGISTRY);
        let cases = merge(from, 0);
        assert!((100..=230).contains(&cases.len()), "{}", cases.len());
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
