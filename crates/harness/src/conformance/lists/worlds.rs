//! What the lists have of more ranks than a host has GPUs: up to those of an NVLink domain.

use super::{
    super::{
        collective_case::{CallSpec, CollectiveCase, Item},
        inputs::InputClass,
    },
    Source, draws, keyed, modest_counts, supported, turn_of,
};
use passmuster_plan::{
    algorithms::Algorithm,
    collective::{Collective, DType, ReduceOp, Shape},
    plan::{Call, MAX_RANKS, MAX_WORLD},
};

/// More ranks than a host has GPUs: the first number beyond, the first that is more than GPUs are tested with, and on to the most.
const WORLDS: [u32; 5] = [9, MAX_WORLD as u32 + 1, 32, 64, LARGEST];

/// The most ranks of a group.
const LARGEST: u32 = MAX_RANKS as u32;

/// The most elements that all ranks of a call have together here, in the larger of input and output. With many ranks, each has few.
const ELEMENTS: u64 = 16_000;

/// Elements of a call whose ranks all have several packs of each slice.
const SEVERAL_PACKS: u64 = 32 << 10;

/// Some algorithms of each kind at 17 ranks and at the most: a call or two each.
pub(super) fn smoke(seed: u64) -> Vec<CollectiveCase> {
    let of = [
        (Collective::AllReduce, "one_shot", DType::BF16),
        (Collective::AllReduce, "two_shot_push", DType::E4M3),
        (Collective::AllGather, "ll", DType::U8),
        (Collective::ReduceScatter, "push", DType::F32),
        (Collective::AllToAll, "copy_engine", DType::I64),
    ];
    let case = |(turn, (collective, algorithm, dtype)): (usize, (Collective, &str, DType))| {
        let world = if turn == 0 { LARGEST } else { MAX_WORLD as u32 + 1 };
        calls((collective, algorithm), (dtype, collective.operators()[0]), world, InputClass::Natural, seed)
    };
    of.into_iter().enumerate().map(case).collect()
}

/// Every algorithm at every world, with types, operators and classes of inputs in turn: calls of counts at which slices are cut differently, one of
/// them in place where there is such a one and with another root. At the largest world also slices of several packs, what is done by size, parts, and
/// pre-multiplied sums.
pub(super) fn merge(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    let mut cases = Vec::new();
    for collective in Collective::ALL {
        for algorithm in from.under_test(collective) {
            cases.extend(WORLDS.into_iter().enumerate().flat_map(|(turn, world)| of_algorithm(from, algorithm, (turn, world), seed)));
        }
        for name in [from.chooser(collective), from.staging(collective)].into_iter().flatten() {
            let kind = (DType::BF16, collective.operators()[0]);
            cases.push(calls((collective, name), kind, LARGEST, InputClass::Natural, seed));
        }
    }
    let sums = (DType::BF16, ReduceOp::Sum);
    for algorithm in from.under_test(Collective::AllReduce).filter(|algorithm| slices(*algorithm)) {
        let of = (Collective::AllReduce, algorithm.name());
        let mut case = calls(of, sums, LARGEST, InputClass::Natural, seed);
        case.calls = vec![Item::Eager(call(algorithm.name(), SEVERAL_PACKS))];
        cases.push(case);
    }
    for algorithm in from.under_test(Collective::AllToAll) {
        let mut case = calls((Collective::AllToAll, algorithm.name()), (DType::I8, ReduceOp::Copy), LARGEST, InputClass::Tagged, seed);
        case.counts = Some(draws("parts", &case, seed).draw());
        cases.push(case);
    }
    for collective in [Collective::AllReduce, Collective::ReduceScatter, Collective::Reduce] {
        let mut case = calls((collective, "push"), (DType::F16, ReduceOp::PremulSum), LARGEST, InputClass::Tagged, seed);
        // Whole packs: what senders multiply.
        case.calls = vec![Item::Eager(call("push", 8))];
        cases.push(case);
    }
    cases
}

/// The cases of an algorithm at the `turn`th world: of the types whose turn it is there; if it does none of these, of the type
/// that its key gives.
fn of_algorithm(from: Source<'_>, algorithm: &dyn Algorithm, (turn, world): (usize, u32), seed: u64) -> Vec<CollectiveCase> {
    let (collective, name) = (algorithm.collective(), algorithm.name());
    let ops = collective.operators();
    let of_type = |dtype: DType| {
        let key = |op: ReduceOp| keyed(format_args!("worlds: {collective}/{name} {dtype} {op} w={world}"), seed).draw();
        let mut ops = ops.to_vec();
        ops.sort_by_key(|&op| key(op));
        let case = |op| {
            let inputs = InputClass::ALL[(key(op) >> 32) as usize % InputClass::ALL.len()];
            supported(from, calls((collective, name), (dtype, op), world, inputs, seed))
        };
        ops.into_iter().find_map(case)
    };
    let begin = turn_of(collective, name);
    let is_due = |dtype: &DType| (begin + *dtype as usize) % WORLDS.len() == turn;
    let cases: Vec<CollectiveCase> = from.dtypes().filter(is_due).filter_map(of_type).collect();
    if cases.is_empty() {
        let mut all: Vec<DType> = from.dtypes().collect();
        all.sort_by_key(|dtype| keyed(format_args!("worlds: {collective}/{name} {dtype} w={world}"), seed).draw());
        return all.into_iter().find_map(of_type).into_iter().collect();
    }
    cases
}

/// Whether ranks exchange slices, so that less than all inputs comes to each. Not those that poll lines: large calls of theirs take longer, and no more.
fn slices(algorithm: &dyn Algorithm) -> bool {
    let call = Call::standalone(Shape::new(Collective::AllReduce, LARGEST, 1), DType::BF16, ReduceOp::Sum).expect("one element fits").0;
    !algorithm.protocol().polls_data() && algorithm.link_bytes(&call).is_some_and(|bytes| bytes <= 2 * call.bytes())
}

/// Two calls of boundary counts, the second elsewhere: in place where there is such a one, off a pack's start, with another root.
fn calls(
    (collective, algorithm): (Collective, &str),
    (dtype, op): (DType, ReduceOp),
    world: u32,
    inputs: InputClass,
    seed: u64,
) -> CollectiveCase {
    let counts = modest_counts(collective, dtype, world, ELEMENTS);
    let mut case = CollectiveCase { inputs, ..CollectiveCase::new(collective, algorithm, dtype, op, world, 0) };
    let mut choice = draws("worlds", &case, seed);
    let mut root = || if collective.has_root() { choice.draw() as u32 % world } else { 0 };
    let roots = [root(), root()];
    let first = CallSpec { root: roots[0], ..call(algorithm, choice.of(&counts)) };
    let second = CallSpec {
        root: roots[1],
        offset: choice.of(&[0, 1, 3]),
        in_place: collective.has_in_place(),
        ..call(algorithm, choice.of(&counts))
    };
    case.calls = vec![Item::Eager(first), Item::Eager(second)];
    case.seed = seed.wrapping_add(choice.draw() % 0xffff);
    case
}

fn call(algorithm: &str, count: u64) -> CallSpec {
    CallSpec { algorithm: algorithm.into(), count, root: 0, offset: 0, in_place: false, group: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::REGISTRY;

    /// If this fails, some algorithm is judged among no more ranks than a host has GPUs, and nobody notices.
    #[test]
    fn every_algorithm_meets_every_world() {
        let from = Source::all(&REGISTRY);
        let cases = merge(from, 0);
        assert!((300..=500).contains(&cases.len()), "{}", cases.len());
        for collective in Collective::ALL {
            for algorithm in from.under_test(collective) {
                for world in WORLDS {
                    let is = |c: &&CollectiveCase| (c.collective, &*c.algorithm, c.world) == (collective, algorithm.name(), world);
                    assert!(cases.iter().any(|c| is(&c)), "{collective}/{} w={world}", algorithm.name());
                }
            }
        }
        for dtype in DType::ALL {
            let classes = InputClass::ALL.iter().filter(|&&class| cases.iter().any(|c| (c.dtype, c.inputs) == (dtype, class)));
            assert!(classes.count() > 0, "{dtype}");
            let wide = |c: &CollectiveCase| c.dtype == dtype && c.world > MAX_WORLD as u32 && c.op.reduces();
            assert!(cases.iter().any(wide), "sums of {dtype} among more ranks than {MAX_WORLD}");
        }
        assert!(cases.iter().any(|c| c.counts.is_some() && c.world == LARGEST));
        assert!(cases.iter().any(|c| c.op == ReduceOp::PremulSum && c.world == LARGEST));
    }
}
