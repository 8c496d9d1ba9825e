//! What the lists have of the types and operators that kernels do not specialise: each of them with every algorithm, and what else a case has in
//! turn, so that each type meets every world size and input class somewhere.

use super::{
    super::{collective_case::CollectiveCase, inputs::InputClass},
    LARGEST_WORLD, Source, draws, modest, turn_of,
};
use passmuster_plan::collective::{Collective, DType, ReduceOp};

/// Every combination that is not common, but for [pre-multiplied sums](premultiplied).
fn reductions(from: Source<'_>) -> impl Iterator<Item = (DType, ReduceOp)> {
    let is_common = |dtype, op| DType::COMMON.contains(&dtype) && ReduceOp::COMMON.contains(&op);
    let all = from.dtypes().flat_map(|dtype| ReduceOp::ALL.map(|op| (dtype, op)));
    all.filter(move |&(dtype, op)| !is_common(dtype, op) && op != ReduceOp::PremulSum)
}

/// The types that are not common, copied.
fn copies(from: Source<'_>) -> impl Iterator<Item = (DType, ReduceOp)> {
    from.dtypes().filter(|dtype| !DType::COMMON.contains(dtype)).map(|dtype| (dtype, ReduceOp::Copy))
}

/// Every algorithm with each combination of its collective that is not common. Multicast has none of them.
fn all<'r>(from: Source<'r>) -> Vec<(Collective, &'r str, DType, ReduceOp)> {
    let mut all = Vec::new();
    for collective in Collective::ALL {
        let combinations: Vec<_> = if collective.operators()[0].reduces() { reductions(from).collect() } else { copies(from).collect() };
        for algorithm in from.under_test(collective).filter(|algorithm| !algorithm.uses_multicast()) {
            all.extend(combinations.iter().map(|&(dtype, op)| (collective, algorithm.name(), dtype, op)));
        }
    }
    all
}

/// Products of small integers overflow a float with few ranks, and then tell nothing.
fn classes(dtype: DType, op: ReduceOp) -> [InputClass; 4] {
    match op {
        ReduceOp::Prod if dtype.is_float() => [InputClass::Natural, InputClass::Special, InputClass::Natural, InputClass::Probe],
        _ => InputClass::ALL,
    }
}

/// One in `every` combinations, at one of these worlds; with peers, every second time.
fn cases(from: Source<'_>, role: &str, every: u64, worlds: &[u32], peered: bool, seed: u64) -> Vec<CollectiveCase> {
    let mut cases = Vec::new();
    for (collective, algorithm, dtype, op) in all(from) {
        let turn = turn_of(collective, algorithm);
        let world = worlds[(turn + dtype as usize + 5 * op as usize) % worlds.len()];
        let inputs = classes(dtype, op)[(turn / worlds.len() + dtype as usize + op as usize) % 4];
        let (mut case, mut choice) = modest(from, role, (collective, algorithm), (dtype, op), world, inputs, seed);
        if !choice.one_in(every) {
            continue;
        }
        case.peer = (peered && choice.one_in(2) && world > 1).then(|| from.peer(collective, dtype, op, &mut choice)).flatten();
        cases.push(case);
    }
    cases
}

/// One in fifteen combinations, on a few ranks.
pub(super) fn smoke(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    cases(from, "kinds, smoke", 15, &[2, 3, 4, 8, 1], false, seed)
}

/// Two cases of each combination, one among few ranks and without a peer, and those of [`overflowing`].
pub(super) fn merge(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    let mut cases = cases(from, "kinds", 1, &[1, 2, 3, 4, 5, 6, 7, 8, LARGEST_WORLD], true, seed);
    cases.extend(few(from, seed));
    cases.extend(overflowing(from, seed));
    cases
}

/// Each combination among two to four ranks, with inputs of all signs and sizes, of more than one tile: what treats a type as another shows there.
fn few(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    let case = |(collective, algorithm, dtype, op): (Collective, &str, DType, ReduceOp)| {
        let turn = turn_of(collective, algorithm) + dtype as usize + op as usize;
        let inputs = [InputClass::Natural, InputClass::Special][turn % 2];
        modest(from, "few ranks", (collective, algorithm), (dtype, op), 2 + turn as u32 % 3, inputs, seed).0
    };
    all(from).into_iter().map(case).collect()
}

/// 8-bit floats of special values on a few ranks, enough for some of their sums and means to overflow: what does saturates, and other inputs do not come
/// near.
fn overflowing(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    let overflows = |&&(collective, algorithm, dtype, op): &&(Collective, &str, DType, ReduceOp)| {
        dtype.is_float()
            && dtype.size() == 1
            && [ReduceOp::Sum, ReduceOp::Avg].contains(&op)
            && !from.contenders_by_copy_engine(collective).contains(&algorithm)
    };
    let case = |&(collective, algorithm, dtype, op): &(Collective, &str, DType, ReduceOp)| {
        let turn = turn_of(collective, algorithm) + dtype as usize + op as usize;
        let new = CollectiveCase::new(collective, algorithm, dtype, op, 2 + turn as u32 % 3, 48 + turn as u64 % 8);
        CollectiveCase { inputs: InputClass::Special, seed: draws("overflowing", &new, seed).draw() % (1 << 16), ..new }
    };
    all(from).iter().filter(overflows).map(case).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::REGISTRY;

    /// If this fails, a type or an operator could be wrong in some kernel, or for some number of ranks, and no list would say so.
    #[test]
    fn every_type_and_operator_meets_every_algorithm_world_and_class() {
        let from = Source::all(&REGISTRY);
        let cases = merge(from, 0);
        assert!((900..=1700).contains(&cases.len()), "{}", cases.len());
        let any = |is: &dyn Fn(&CollectiveCase) -> bool| cases.iter().any(is);
        for (collective, algorithm, dtype, op) in all(from) {
            assert!(
                any(&|c| (c.collective, &*c.algorithm, c.dtype, c.op) == (collective, algorithm, dtype, op)),
                "{algorithm} {dtype} {op}"
            );
        }
        for (dtype, op) in copies(from) {
            for world in (1..=8).chain([LARGEST_WORLD]) {
                assert!(any(&|c| (c.dtype, c.world) == (dtype, world)), "{dtype} {world}");
            }
            for inputs in InputClass::ALL {
                assert!(any(&|c| (c.dtype, c.inputs) == (dtype, inputs) && c.op != op), "{dtype} {inputs}");
            }
            assert!(any(&|c| c.dtype == dtype && c.in_place) && any(&|c| c.dtype == dtype && c.peer.is_some()), "{dtype}");
        }
        for world in (2..=8).chain([LARGEST_WORLD]) {
            assert!(any(&|c| (c.op, c.world) == (ReduceOp::Prod, world)), "products of {world} ranks");
        }
        for (collective, algorithm, dtype, op) in all(from) {
            if [DType::E4M3, DType::E5M2].contains(&dtype)
                && [ReduceOp::Sum, ReduceOp::Avg].contains(&op)
                && !from.contenders_by_copy_engine(collective).contains(&algorithm)
            {
                let overflows = |c: &CollectiveCase| {
                    let is = (c.collective, &*c.algorithm, c.dtype, c.op) == (collective, algorithm, dtype, op);
                    is && c.world > 1 && c.inputs == InputClass::Special
                };
                assert!(any(&overflows), "{algorithm} {dtype} {op}");
            }
        }
    }

    #[test]
    fn smoke_has_a_few_of_every_kind() {
        let cases = smoke(Source::all(&REGISTRY), 0);
        assert!((25..=60).contains(&cases.len()), "{}", cases.len());
        let seen = |is: &dyn Fn(&CollectiveCase) -> bool| cases.iter().any(is);
        assert!(seen(&|c| c.dtype == DType::E4M3) && seen(&|c| c.dtype == DType::E5M2) && seen(&|c| c.op == ReduceOp::Prod));
        assert!(Collective::ALL.iter().all(|&of| seen(&|c| c.collective == of)));
    }
}
