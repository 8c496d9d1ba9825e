//! What the lists have of algorithms that use multicast addresses: fewer cases than of the others, for it is the switch that adds and copies.

use super::{
    super::{collective_case::CollectiveCase, inputs::InputClass},
    LARGEST_WORLD, Source, boundary_counts, draws, modest, root, sample,
    sequences::{self, Sequences},
    supported, turn_of,
};
use passmuster_plan::collective::{Collective, DType, ReduceOp};

/// The collectives other than all-reduce that have such algorithms.
pub(super) fn others(from: Source<'_>) -> impl Iterator<Item = Collective> {
    Collective::ALL.into_iter().filter(move |&of| of != Collective::AllReduce && !from.contenders_over_multicast(of).is_empty())
}

/// bf16 and f32 at four world sizes, with the input classes in turn.
pub(super) fn smoke(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    let mut cases = Vec::new();
    for collective in [Collective::AllReduce].into_iter().chain(others(from)) {
        for algorithm in from.contenders_over_multicast(collective) {
            for dtype in [DType::BF16, DType::F32] {
                for (turn, world) in [2, 3, 4, 8].into_iter().enumerate() {
                    let inputs = InputClass::ALL[(turn_of(collective, algorithm) + turn) % InputClass::ALL.len()];
                    cases.push(modest(from, "smoke", (collective, algorithm), (dtype, collective.operators()[0]), world, inputs, seed).0);
                }
            }
        }
    }
    cases
}

/// Every type and operator at six world sizes; of all-reduce with every input class, of the others with the classes in turn; the boundary
/// counts on three ranks; of all-reduce also sequences.
pub(super) fn merge(from: Source<'_>, collective: Collective, seed: u64) -> Vec<CollectiveCase> {
    let is_all_reduce = collective == Collective::AllReduce;
    let mut cases = Vec::new();
    for algorithm in from.contenders_over_multicast(collective) {
        for (dtype, op) in reductions_of(from, collective, algorithm) {
            for (turn, world) in [2, 3, 4, 6, 8, LARGEST_WORLD].into_iter().enumerate() {
                let in_turn = InputClass::ALL[(dtype as usize + op as usize + turn) % InputClass::ALL.len()];
                let classes = if is_all_reduce { InputClass::ALL.to_vec() } else { vec![in_turn] };
                for inputs in classes {
                    cases.push(modest(from, "kinds", (collective, algorithm), (dtype, op), world, inputs, seed).0);
                }
            }
        }
        for dtype in [DType::BF16, DType::F32] {
            for count in boundary_counts(dtype, 3) {
                let mut case = CollectiveCase::new(collective, algorithm, dtype, collective.operators()[0], 3, count);
                case.inputs = InputClass::Natural;
                let mut choice = draws("edges", &case, seed);
                case.offset = choice.of(&[0, 0, 1]);
                case.root = root(&case, &mut choice);
                case.seed = seed;
                cases.extend(supported(from, case));
            }
        }
    }
    if is_all_reduce {
        cases.extend(sequences::over_multicast(from, Sequences::of("merge"), seed));
    }
    cases
}

/// Types and operators that an algorithm does.
fn reductions_of(from: Source<'_>, collective: Collective, algorithm: &str) -> Vec<(DType, ReduceOp)> {
    let algorithm = from.registry.find(collective, algorithm).expect("a name from the list");
    let all = from.common_dtypes().flat_map(|dtype| collective.common_operators().iter().map(move |&op| (dtype, op)));
    all.filter(|&(dtype, op)| algorithm.supports(&sample(collective, dtype, op)).is_ok()).collect()
}
