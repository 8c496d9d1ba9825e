//! What the lists have of pre-multiplied sums: every type with every algorithm that reduces, and what else a case has in turn.

use super::{
    super::{collective_case::CollectiveCase, inputs::InputClass},
    LARGEST_WORLD, MODEST_ELEMENTS, Source, draws, modest, modest_counts,
    sequences::{self, Sequences},
    supported, turn_of, vary,
};
use passmuster_plan::{
    collective::{Collective, DType, ReduceOp, Shape},
    plan::Call,
};

const OP: ReduceOp = ReduceOp::PremulSum;

fn collectives() -> impl Iterator<Item = Collective> {
    Collective::ALL.into_iter().filter(|collective| collective.operators().contains(&OP))
}

/// One in `every` combinations of algorithm and type, and some sequences of each collective.
fn cases(from: Source<'_>, every: u64, worlds: &[u32], peered: bool, wanted: Sequences<'_>, seed: u64) -> Vec<CollectiveCase> {
    let algorithms = collectives().flat_map(|collective| from.under_test(collective));
    let mut cases = Vec::new();
    for (algorithm, dtype) in algorithms.flat_map(|algorithm| from.dtypes().map(move |dtype| (algorithm, dtype))) {
        let (collective, name) = (algorithm.collective(), algorithm.name());
        let turn = turn_of(collective, name);
        let (world, inputs) = (worlds[(turn + dtype as usize) % worlds.len()], InputClass::ALL[(turn / worlds.len() + dtype as usize) % 4]);
        let (mut case, mut choice) = modest(from, wanted.role, (collective, name), (dtype, OP), world, inputs, seed);
        if !choice.one_in(every) {
            continue;
        }
        case.peer = (peered && world > 1 && choice.one_in(2)).then(|| from.peer(collective, dtype, OP, &mut choice)).flatten();
        cases.extend(supported(from, case));
    }
    let sequence = |case| CollectiveCase { op: OP, ..case };
    cases.extend(collectives().flat_map(|collective| sequences::sequences(from, collective, wanted, seed)).map(sequence));
    cases
}

/// The algorithms under test whose kernels multiply what they load, of whole packs of a type.
fn fusing<'r>(from: Source<'r>, collective: Collective, dtype: DType) -> impl Iterator<Item = &'r str> {
    let (call, _) = Call::standalone(Shape::new(collective, 2, 16 / dtype.size()), dtype, OP).expect("a pack fits");
    from.under_test(collective).filter(move |algorithm| algorithm.fuses_premul(&call)).map(|algorithm| algorithm.name())
}

/// Every collective with those of its algorithms, and the types that they multiply.
fn fused<'r>(from: Source<'r>) -> impl Iterator<Item = (Collective, &'r str, DType)> {
    let types = move |collective| {
        let multiplied = |dtype: &DType| [DType::BF16, DType::F32, DType::F16, DType::E4M3, DType::E5M2].contains(dtype);
        from.dtypes().filter(multiplied).map(move |dtype| (collective, dtype))
    };
    let of = move |(collective, dtype)| fusing(from, collective, dtype).map(move |algorithm| (collective, algorithm, dtype));
    collectives().flat_map(types).flat_map(of)
}

/// Calls of whole packs, which some algorithms multiply themselves, of the types that they have kernels for: one pack a slice, a tile, several, and in
/// bf16 enough packs that blocks have several tiles.
fn of_packs(from: Source<'_>, worlds: &[u32], seed: u64) -> Vec<CollectiveCase> {
    let mut cases = Vec::new();
    for (collective, algorithm, dtype) in fused(from) {
        for &world in worlds {
            let pack = 16 / dtype.size();
            let most = MODEST_ELEMENTS / u64::from(world * world.min(Shape::new(collective, world, 1).slots().0 as u32));
            let mut case = CollectiveCase::new(collective, algorithm, dtype, OP, world, 0);
            let mut choice = draws("packs", &case, seed);
            case.count = choice.of(&[1, 2, 60, 513, 1025]).min(most / pack) * pack;
            vary(from, &mut case, &mut choice);
            case.offset = choice.of(&[0, pack]);
            case.inputs = choice.of(&InputClass::ALL);
            case.seed = seed;
            case.peer = (world > 1 && choice.one_in(4)).then(|| from.peer(collective, dtype, OP, &mut choice)).flatten();
            cases.extend(supported(from, case));
        }
    }
    let large = |(collective, world, count): (Collective, u32, u64)| {
        let case = move |algorithm| CollectiveCase::new(collective, algorithm, DType::BF16, OP, world, count);
        let of = move |case| CollectiveCase { inputs: InputClass::Natural, in_place: collective != Collective::Reduce, seed, ..case };
        fusing(from, collective, DType::BF16).map(case).map(of)
    };
    let counts = [(Collective::AllReduce, 2, 1 << 18), (Collective::ReduceScatter, 3, 1 << 16), (Collective::Reduce, 3, 1 << 17)];
    cases.extend(counts.into_iter().flat_map(large).filter(|case| worlds.contains(&case.world)));
    cases.extend(
        counts.into_iter().flat_map(|(collective, _, _)| large((collective, 4, 4 << 20))).filter(|case| worlds.contains(&case.world)),
    );
    cases
}

/// A few of them, on a few ranks.
pub(super) fn smoke(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    let few = Sequences { one_in: 40, largest: 2, ..Sequences::of("products, smoke") };
    let mut cases = cases(from, 13, &[2, 3, 4, 8, 1], false, few, seed);
    cases.extend(of_packs(from, &[2, 3], seed).into_iter().filter(|case| case.count <= 1 << 13 && case.peer.is_none()));
    cases
}

/// One case of each combination, of which multicast has fewer, and the counts at which the kernel that multiplies may go wrong.
pub(super) fn merge(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    let some = Sequences { one_in: 10, largest: 2, ..Sequences::of("products") };
    let mut cases = cases(from, 1, &[1, 2, 3, 4, 5, 6, 7, 8, LARGEST_WORLD], true, some, seed);
    let (collective, dtype, world) = (Collective::AllReduce, DType::BF16, 2);
    let fuses: Vec<&str> = fusing(from, collective, dtype).collect();
    for algorithm in from.under_test(collective).map(|algorithm| algorithm.name()).filter(|name| !fuses.contains(name)) {
        cases.extend(modest_counts(collective, dtype, world, MODEST_ELEMENTS).into_iter().enumerate().filter_map(|(number, count)| {
            let case = CollectiveCase::new(collective, algorithm, dtype, OP, world, count);
            supported(from, CollectiveCase { inputs: InputClass::Natural, offset: [0, 1, 3][number % 3], seed, ..case })
        }));
    }
    cases.extend(of_packs(from, &[1, 2, 3, 4, 5, 6, 7, 8, LARGEST_WORLD], seed));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::REGISTRY;

    /// If this fails, a type could be multiplied wrongly, or its products summed so, and no list would say so.
    #[test]
    fn every_type_meets_every_algorithm_and_what_else_cases_have() {
        let from = Source::all(&REGISTRY);
        let cases = merge(from, 0);
        assert!((400..=620).contains(&cases.len()), "{}", cases.len());
        let any = |is: &dyn Fn(&CollectiveCase) -> bool| cases.iter().any(is);
        for algorithm in collectives().flat_map(|collective| from.under_test(collective)).filter(|algorithm| !algorithm.uses_multicast()) {
            for dtype in DType::ALL {
                let of = (algorithm.collective(), algorithm.name(), dtype);
                assert!(any(&|c| (c.collective, &*c.algorithm, c.dtype) == of), "{of:?}");
            }
        }
        for dtype in DType::ALL {
            assert!(any(&|c| c.dtype == dtype && c.peer.is_some()) && any(&|c| c.dtype == dtype && c.in_place), "{dtype}");
            assert!(InputClass::ALL.iter().all(|&inputs| any(&|c| (c.dtype, c.inputs) == (dtype, inputs))), "{dtype}");
        }
        for collective in collectives() {
            assert!(any(&|c| c.collective == collective && c.in_place) && any(&|c| c.collective == collective && !c.calls.is_empty()));
        }
        for world in (1..=8).chain([LARGEST_WORLD]) {
            assert!(any(&|c| c.world == world), "{world} ranks");
        }
        assert!(any(&|c| c.algorithm.starts_with("multimem")));
        // What senders multiply is whole packs.
        assert!(fused(from).count() >= 15);
        for (collective, algorithm, dtype) in fused(from) {
            let in_packs = |c: &CollectiveCase| c.count > 0 && [c.count, c.offset].iter().all(|n| (n * dtype.size()).is_multiple_of(16));
            for world in (1..=8).chain([LARGEST_WORLD]) {
                let of = (collective, algorithm, dtype, world);
                assert!(any(&|c| (c.collective, &*c.algorithm, c.dtype, c.world) == of && in_packs(c)), "{of:?}");
            }
        }
    }
}
