//! What the lists have of more ranks than a host has GPUs: up to those of an NVLink domain.

use super::{
    super::{
        collective_case::{CallSpec, CollectiveCase, Item},
        inputs::InputClass,
    },
    Choice, Source, modest_counts, supported,
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

/// Turns in which every type has met every operator of any collective.
const KINDS: usize = DType::ALL.len() * ReduceOp::ALL.len();

/// Elements of a call whose ranks all have several packs of each slice.
const SEVERAL_PACKS: u64 = 32 << 10;

fn choice(seed: u64) -> Choice {
    Choice::of_seed(seed ^ 0x776f_726c_6473)
}

/// Some algorithms of each kind at 17 ranks and at the most: a call or two each.
pub(super) fn smoke(seed: u64) -> Vec<CollectiveCase> {
    let mut choice = choice(seed);
    let of = [
        (Collective::AllReduce, "one_shot", DType::BF16),
        (Collective::AllReduce, "two_shot_push", DType::E4M3),
        (Collective::AllGather, "ll", DType::U8),
        (Collective::ReduceScatter, "push", DType::F32),
        (Collective::AllToAll, "copy_engine", DType::I64),
    ];
    let case = |(turn, (collective, algorithm, dtype)): (usize, (Collective, &str, DType))| {
        let world = if turn == 0 { LARGEST } else { MAX_WORLD as u32 + 1 };
        calls((collective, algorithm), (dtype, collective.operators()[0]), world, InputClass::Natural, seed, &mut choice)
    };
    of.into_iter().enumerate().map(case).collect()
}

/// Every algorithm at every world, each time with the next type, operator and class of inputs: calls of counts at which slices are cut differently, one of
/// them in place where there is such a one and with another root. At the largest world also slices of several packs, what is done by size, parts, and
/// pre-multiplied sums.
pub(super) fn merge(from: Source<'_>, seed: u64) -> Vec<CollectiveCase> {
    let mut choice = choice(seed);
    let mut cases = Vec::new();
    let mut turn = 0;
    for collective in Collective::ALL {
        for algorithm in from.under_test(collective) {
            for world in WORLDS {
                for _ in 0..if algorithm.protocol().is_by_copy_engine() { 1 } else { 2 } {
                    // What multimem does not reduce is left to the next turn.
                    let case = (turn..turn + KINDS).find_map(|at| {
                        turn = at + 1;
                        let ops = collective.operators();
                        let kind = (DType::ALL[at % DType::ALL.len()], ops[at / DType::ALL.len() % ops.len()]);
                        // Types come round as often as classes would: what is left over goes on.
                        let inputs = InputClass::ALL[(at + at / DType::ALL.len()) % InputClass::ALL.len()];
                        supported(from, calls((collective, algorithm.name()), kind, world, inputs, seed, &mut choice))
                    });
                    cases.extend(case);
                }
            }
        }
        for name in [from.chooser(collective), from.staging(collective)].into_iter().flatten() {
            cases.push(calls(
                (collective, name),
                (DType::BF16, collective.operators()[0]),
                LARGEST,
                InputClass::Natural,
                seed,
                &mut choice,
            ));
        }
    }
    let sums = (DType::BF16, ReduceOp::Sum);
    for algorithm in from.under_test(Collective::AllReduce).filter(|algorithm| slices(*algorithm)) {
        let of = (Collective::AllReduce, algorithm.name());
        let mut case = calls(of, sums, LARGEST, InputClass::Natural, seed, &mut choice);
        case.calls = vec![Item::Eager(call(algorithm.name(), SEVERAL_PACKS))];
        cases.push(case);
    }
    for algorithm in from.under_test(Collective::AllToAll) {
        let mut case =
            calls((Collective::AllToAll, algorithm.name()), (DType::I8, ReduceOp::Copy), LARGEST, InputClass::Tagged, seed, &mut choice);
        case.counts = Some(choice.draw());
        cases.push(case);
    }
    for collective in [Collective::AllReduce, Collective::ReduceScatter, Collective::Reduce] {
        let mut case = calls((collective, "push"), (DType::F16, ReduceOp::PremulSum), LARGEST, InputClass::Tagged, seed, &mut choice);
        // Whole packs: what senders multiply.
        case.calls = vec![Item::Eager(call("push", 8))];
        cases.push(case);
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
    choice: &mut Choice,
) -> CollectiveCase {
    let counts = modest_counts(collective, dtype, world, ELEMENTS);
    let mut case = CollectiveCase::new(collective, algorithm, dtype, op, world, 0);
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
    case.inputs = inputs;
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
        assert!((250..=380).contains(&cases.len()), "{}", cases.len());
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
