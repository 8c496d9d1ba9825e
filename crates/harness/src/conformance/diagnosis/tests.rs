//! Eighteen value bugs, as a study of other suites' inputs and tolerances had them, applied to the reference: what notices them, and
//! what is said about them.

use half::bf16;
use rstest::rstest;

use super::{numbers::sum_truncated, *};
use crate::conformance::{Mismatch, Transform, compare};
use passmuster_plan::{
    collective::{Collective, Element, reduce_in_order},
    contract::Contract,
    with_element,
};

const WORLD: u32 = 8;
const COUNT: u64 = 16_384;
const SHAPE: Shape = Shape::new(Collective::AllReduce, WORLD, COUNT);
const SLICE: u64 = COUNT / WORLD as u64;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bug {
    RankDropped,
    RankDroppedInOnePack,
    RankTwice,
    ShiftByOnePack,
    SlicesSwapped,
    StalePeer,
    StalePack,
    TailZero,
    RowScaled,
    AllZero,
    /// For f32, whose accumulator has the element's type: partial sums rounded to bf16.
    RoundedPerHop,
    Truncated,
    OwnerFirst,
    OneUlp,
    NanDropped,
    SubnormalsFlushed,
    /// A rank's -0 is taken for "not there yet" and read as +0.
    NegativeZeroLost,
    Saturated,
}

use Bug::*;

const BUGS: [Bug; 18] = [
    RankDropped,
    RankDroppedInOnePack,
    RankTwice,
    ShiftByOnePack,
    SlicesSwapped,
    StalePeer,
    StalePack,
    TailZero,
    RowScaled,
    AllZero,
    RoundedPerHop,
    Truncated,
    OwnerFirst,
    OneUlp,
    NanDropped,
    SubnormalsFlushed,
    NegativeZeroLost,
    Saturated,
];

/// What a kernel with the bug gives for element `index`.
fn result<T: Element<Acc = f32>>(bug: Bug, payload: &Payload, index: u64) -> T {
    let lanes = 16 / size_of::<T>() as u64;
    let draw = |rank: u32, index: u64| payload.element::<T>(rank, index);
    let at = |index: u64| (0..WORLD).map(|rank| draw(rank, index)).collect::<Vec<T>>();
    let sum = |inputs: &[T]| reduce_in_order(ReduceOp::Sum, inputs);
    let previous = |rank: u32| payload.of_call(payload.call - 1).element::<T>(rank, index);
    let mut inputs = at(index);
    let right = sum(&inputs);
    let Format { sign, infinity, largest, normal, .. } = Format::of(T::DTYPE);
    let flush = |x: T| if x.bits() & !sign < normal { T::of_bits(x.bits() & sign) } else { x };
    match bug {
        RankDroppedInOnePack if index / lanes != 700 => right,
        StalePack if index / lanes != 700 => right,
        RankDropped | RankDroppedInOnePack => {
            inputs.remove(3);
            sum(&inputs)
        }
        RankTwice => {
            inputs[5] = inputs[4];
            sum(&inputs)
        }
        ShiftByOnePack => sum(&at((index + lanes) % COUNT)),
        SlicesSwapped => match index / SLICE {
            2 => sum(&at(index + 3 * SLICE)),
            5 => sum(&at(index - 3 * SLICE)),
            _ => right,
        },
        StalePeer | StalePack => {
            inputs[2] = previous(2);
            sum(&inputs)
        }
        TailZero => {
            if index >= COUNT - 64 {
                T::of_bits(0)
            } else {
                right
            }
        }
        RowScaled => {
            if index / 128 == 77 {
                T::narrow(right.widen() * 1.061)
            } else {
                right
            }
        }
        AllZero => T::of_bits(0),
        RoundedPerHop => {
            let round = |x: f32| bf16::from_f32(x).to_f32();
            T::narrow(inputs.iter().map(|x| x.widen()).reduce(|a, b| round(a + b)).expect("eight ranks"))
        }
        Truncated => sum_truncated(&inputs),
        OwnerFirst => {
            inputs.rotate_left((index / SLICE) as usize);
            sum(&inputs)
        }
        OneUlp => T::of_bits((right.bits() + 1) & (sign << 1).wrapping_sub(1)),
        NanDropped => {
            inputs.iter_mut().filter(|x| x.is_nan()).for_each(|x| *x = T::of_bits(0));
            sum(&inputs)
        }
        SubnormalsFlushed => {
            inputs.iter_mut().for_each(|x| *x = flush(*x));
            flush(sum(&inputs))
        }
        NegativeZeroLost => {
            inputs.iter_mut().filter(|x| x.bits() == sign).for_each(|x| *x = T::of_bits(0));
            sum(&inputs)
        }
        Saturated if Some(right.bits() & !sign) == infinity && inputs.iter().all(|x| x.to_f64().is_finite()) => {
            T::of_bits(largest | right.bits() & sign)
        }
        Saturated => right,
    }
}

fn judge(bug: Option<Bug>, class: InputClass, dtype: DType, seed: u64) -> Option<Mismatch> {
    let payload = Payload { class, dtype, world: WORLD, seed, call: 3, transform: Transform::None };
    let element = |index| -> u64 {
        let reference = |index| (0..WORLD).map(move |rank| (rank, index));
        match (dtype, bug) {
            (DType::F32, Some(bug)) => result::<f32>(bug, &payload, index).bits(),
            (DType::BF16, Some(bug)) => result::<bf16>(bug, &payload, index).bits(),
            _ => with_element!(dtype, T => {
                let inputs: Vec<T> = reference(index).map(|(rank, index)| payload.element(rank, index)).collect();
                reduce_in_order(ReduceOp::Sum, &inputs).bits()
            }),
        }
    };
    let output: Vec<u8> = (0..COUNT).flat_map(|index| element(index).to_le_bytes().into_iter().take(dtype.size() as usize)).collect();
    compare(&Contract::ORDERED, ReduceOp::Sum, &payload, &SHAPE, &vec![output; WORLD as usize])
}

/// Which of the four classes notice each bug. If a column loses a cross, a class has become blind; a row without one is a bug that
/// passes; and a cross in the first row is a false alarm.
#[rstest]
#[case::bf16(DType::BF16)]
#[case::f32(DType::F32)]
fn every_bug_is_noticed_and_nothing_else(#[case] dtype: DType) {
    let mut table = format!("{:<22}{}\n", dtype.name(), InputClass::ALL.map(|class| format!("{:<9}", class.name())).concat().trim_end());
    for bug in [None].into_iter().chain(BUGS.map(Some)) {
        let noticed = InputClass::ALL.map(|class| judge(bug, class, dtype, 42).is_some());
        assert_eq!(noticed.contains(&true), bug.is_some(), "{bug:?} noticed by {noticed:?}");
        let name = bug.map_or("none".into(), |bug| format!("{bug:?}"));
        table += &format!("{name:<22}{}", noticed.map(|yes| format!("{:<9}", if yes { "x" } else { "-" })).concat().trim_end());
        table.push('\n');
    }
    insta::with_settings!({ snapshot_suffix => dtype.name() }, { insta::assert_snapshot!(table) });
}

#[rstest]
#[case(RankDropped, InputClass::Tagged, "rank 3's contribution is missing")]
#[case(RankDropped, InputClass::Natural, "rank 3's contribution is missing")]
#[case(RankDroppedInOnePack, InputClass::Natural, "rank 3's contribution is missing")]
#[case(RankTwice, InputClass::Tagged, "rank 4 is counted twice, rank 5 not at all")]
#[case(RankTwice, InputClass::Natural, "rank 4 is counted twice, rank 5 not at all")]
#[case(SlicesSwapped, InputClass::Tagged, "the slices of ranks 2 and 5 are swapped")]
#[case(StalePeer, InputClass::Tagged, "rank 2's data is that of call 2, the one before")]
#[case(StalePack, InputClass::Natural, "rank 2's data is that of call 2, the one before")]
#[case(TailZero, InputClass::Natural, "zero")]
#[case(AllZero, InputClass::Natural, "zero")]
#[case(RowScaled, InputClass::Natural, "the result times 1.06")]
#[case(Truncated, InputClass::Natural, "truncated instead of rounded to nearest")]
#[case(OwnerFirst, InputClass::Probe, "added in another order: the slice's owner first, then round")]
#[case(OneUlp, InputClass::Natural, "one ulp off")]
#[case(SubnormalsFlushed, InputClass::Special, "subnormals are flushed to zero")]
#[case(NegativeZeroLost, InputClass::Special, "+0 where -0 was expected")]
#[case(NanDropped, InputClass::Special, "a NaN was lost")]
#[case(Saturated, InputClass::Special, "the largest finite number instead of an infinity")]
fn the_cause_is_named(#[case] bug: Bug, #[case] class: InputClass, #[case] cause: &str, #[values(DType::BF16, DType::F32)] dtype: DType) {
    let mismatch = judge(Some(bug), class, dtype, 42).expect("noticed");
    let best = mismatch.diagnosis.first().unwrap_or_else(|| panic!("no diagnosis\n{mismatch}"));
    assert!(best.explanation.starts_with(cause) && best.coverage > 0.9, "{mismatch}");
}

/// The distance depends on the lanes of a pack, and per-hop rounding on the type: these two have cases of their own.
#[test]
fn shifts_and_roundings_are_named_per_type() {
    for (dtype, lanes) in [(DType::BF16, 8), (DType::F32, 4)] {
        let mismatch = judge(Some(ShiftByOnePack), InputClass::Natural, dtype, 42).expect("noticed");
        assert_eq!(mismatch.diagnosis[0].explanation, format!("element i holds the result of element i+{lanes}"), "{mismatch}");
    }
    let mismatch = judge(Some(RoundedPerHop), InputClass::Natural, DType::BF16, 42).expect("noticed");
    assert_eq!(mismatch.diagnosis[0].explanation, "rounded to the element type at every addition, in rank order");
}

/// Bugs that leave ranks with different results.
#[rstest]
#[case::own_input(|payload: &Payload, rank, _: &[u8]| payload.bytes(rank, 0..COUNT), "each rank's own input, not reduced")]
#[case::one_rank_alone(|payload: &Payload, _, _: &[u8]| payload.bytes(6, 0..COUNT), "rank 6's input alone")]
#[case::not_written(
    |_: &Payload, rank, right: &[u8]| if rank == 2 { vec![CANARY; right.len()] } else { right.to_vec() },
    "not written: the canary byte 0xc5 is still there"
)]
#[case::poisoned(
    |_: &Payload, rank, right: &[u8]| if rank == 2 { vec![0x7b; right.len()] } else { right.to_vec() },
    "not written: the poison byte 0x7b is still there"
)]
#[case::previous_result(
    |payload: &Payload, rank, right: &[u8]| if rank == 2 { reference(&payload.of_call(2)) } else { right.to_vec() },
    "the result of call 2, the one before"
)]
#[case::counted_once_too_often(
    |payload: &Payload, _, right: &[u8]| {
        let sums = right.as_chunks::<4>().0.iter().map(|sum| f32::from_le_bytes(*sum));
        (0..).zip(sums).flat_map(|(index, sum)| (sum + payload.element::<f32>(4, index)).to_le_bytes()).collect()
    },
    "rank 4 is counted twice"
)]
fn ranks_that_miss_the_result_are_explained(#[case] output: fn(&Payload, u32, &[u8]) -> Vec<u8>, #[case] cause: &str) {
    let payload = Payload { class: InputClass::Natural, dtype: DType::F32, world: WORLD, seed: 1, call: 3, transform: Transform::None };
    let right = reference(&payload);
    let outputs: Vec<Vec<u8>> = (0..WORLD).map(|rank| output(&payload, rank, &right)).collect();
    let mismatch = compare(&Contract::ORDERED, ReduceOp::Sum, &payload, &SHAPE, &outputs).expect("noticed");
    assert_eq!((mismatch.diagnosis[0].explanation.as_str(), mismatch.diagnosis[0].coverage), (cause, 1.0), "{mismatch}");
}

fn reference(payload: &Payload) -> Vec<u8> {
    (0..COUNT)
        .flat_map(|index| {
            let inputs: Vec<f32> = (0..WORLD).map(|rank| payload.element(rank, index)).collect();
            reduce_in_order(ReduceOp::Sum, &inputs).to_le_bytes()
        })
        .collect()
}

/// One element that lacks its sign is +0, which is what a product of zeros is, too. If this fails, it is reported as another operator.
#[test]
fn a_lost_sign_of_zero_is_told_as_that() {
    // The only sum among these that is -0.
    let payload = Payload { transform: Transform::Negate, ..of_two(InputClass::Tagged) };
    let sums = (0..COUNT).map(|index| reduce_in_order(ReduceOp::Sum, &[payload.element::<bf16>(0, index), payload.element(1, index)]));
    let output: Vec<bf16> = sums.map(|sum| if sum.to_bits() == 0x8000 { bf16::ZERO } else { sum }).collect();
    assert_eq!(told(&payload, &output), ["+0 where -0 was expected (100 % of wrong elements fit)"]);
}

/// A zero or two that other bugs would make as well are reported as zeros. Many zeros from a rank that is left out are reported as that.
#[test]
fn a_few_zeros_are_no_other_bug() {
    let payload = of_two(InputClass::Tagged);
    let with_zeros = |most: usize| {
        let mut left = most;
        let element = |index| {
            let [first, second] = [0, 1].map(|rank| payload.element::<bf16>(rank, index));
            let lost = first == bf16::ZERO && second != bf16::ZERO && left > 0;
            left -= usize::from(lost);
            if lost { first } else { reduce_in_order(ReduceOp::Sum, &[first, second]) }
        };
        told(&payload, &(0..COUNT).map(element).collect::<Vec<bf16>>())
    };
    assert_eq!(with_zeros(1), ["zero (100 % of wrong elements fit)"]);
    let many = with_zeros(50);
    assert!(many.iter().any(|told| told.starts_with("rank 1's contribution is missing (100 %")), "{many:?}");
}

fn of_two(class: InputClass) -> Payload {
    Payload { class, dtype: DType::BF16, world: 2, seed: 5, call: 3, transform: Transform::None }
}

/// What is reported of two ranks that both have this output.
fn told(payload: &Payload, output: &[bf16]) -> Vec<String> {
    explained(&mismatch_of_two(payload, output))
}

fn mismatch_of_two(payload: &Payload, output: &[bf16]) -> Mismatch {
    let bytes: Vec<u8> = output.iter().flat_map(|element| element.to_le_bytes()).collect();
    let shape = Shape::new(Collective::AllReduce, 2, COUNT);
    compare(&Contract::ORDERED, ReduceOp::Sum, payload, &shape, &[bytes.clone(), bytes]).expect("noticed")
}

/// What is said of results of eight ranks in f32, which all have.
fn mismatch(class: InputClass, op: ReduceOp, output: impl Fn(&Payload, u64) -> f32) -> Mismatch {
    let payload = Payload { class, dtype: DType::F32, world: WORLD, seed: 1, call: 3, transform: Transform::None };
    let bytes: Vec<u8> = (0..COUNT).flat_map(|index| output(&payload, index).to_le_bytes()).collect();
    compare(&Contract::ORDERED, op, &payload, &SHAPE, &vec![bytes; WORLD as usize]).expect("noticed")
}

fn reduced(op: ReduceOp, payload: &Payload, index: u64) -> f32 {
    reduce_in_order(op, &(0..WORLD).map(|rank| payload.element(rank, index)).collect::<Vec<f32>>())
}

/// All that is said, with the shares.
fn explained(mismatch: &Mismatch) -> Vec<String> {
    mismatch.diagnosis.iter().map(Diagnosis::to_string).collect()
}

/// If this fails, half of the wrong elements are not looked at, though there are few.
#[test]
fn each_of_a_few_elements_is_looked_at() {
    let told = mismatch(InputClass::Natural, ReduceOp::Sum, |payload, index| match index {
        10 => f32::from_bits(0xc5c5_c5c5),
        20 => f32::from_bits(0x7b7b_7b7b),
        _ => reduced(ReduceOp::Sum, payload, index),
    });
    let of = |what: &str, byte: &str| format!("not written: the {what} byte {byte} is still there (50 % of wrong elements fit)");
    assert_eq!(explained(&told), [of("canary", "0xc5"), of("poison", "0x7b")]);
}

/// If this fails, slices of ranks are blamed in which nothing is wrong.
#[test]
fn other_slices_are_not_blamed() {
    let told = mismatch(InputClass::Natural, ReduceOp::Sum, |payload, index| {
        reduced(ReduceOp::Sum, payload, if index < SLICE { index + 3 * SLICE } else { index })
    });
    assert_eq!(explained(&told), ["the slices of ranks 0 and 3 are swapped (100 % of wrong elements fit)"]);
}

#[test]
fn averages_divided_twice_are_told_as_that() {
    let told = mismatch(InputClass::Natural, ReduceOp::Avg, |payload, index| reduced(ReduceOp::Avg, payload, index) / WORLD as f32);
    assert_eq!(told.diagnosis[0].to_string(), "divided by the world size twice (100 % of wrong elements fit)");
}

/// Results that are a factor off but for 2^-21 of it, eight roundings of f32; the largest, by which the factor is known, are not.
#[test]
fn factors_allow_eight_roundings() {
    let payload = Payload { class: InputClass::Tagged, dtype: DType::F32, world: WORLD, seed: 1, call: 3, transform: Transform::None };
    let largest = (0..COUNT).map(|index| reduced(ReduceOp::Sum, &payload, index).abs()).fold(0.0, f32::max);
    let told = mismatch(InputClass::Tagged, ReduceOp::Sum, |payload, index| {
        let sum = reduced(ReduceOp::Sum, payload, index);
        // Others have no f32 so far off.
        let is_short = (sum.abs() as u32) >> (sum.abs() as u32).trailing_zeros().min(31) <= 7;
        if is_short && sum.abs() < largest { 2.0 * sum * (1.0 + 2.0_f32.powi(-21)) } else { 2.0 * sum }
    });
    assert_eq!(told.diagnosis[0].to_string(), "the result times 2.0000 (100 % of wrong elements fit)");
}

/// If this fails, a report says that a factor was ruled out where none can be: zeros have any.
#[test]
fn factors_of_zeros_are_not_ruled_out() {
    let payload = of_two(InputClass::Tagged);
    let sums = (0..COUNT).map(|index| reduce_in_order(ReduceOp::Sum, &[payload.element::<bf16>(0, index), payload.element(1, index)]));
    let output: Vec<bf16> = sums.map(|sum| if sum == bf16::ZERO { bf16::ONE } else { sum }).collect();
    let told = mismatch_of_two(&payload, &output);
    assert!(told.wrong >= 4, "{told}");
    assert!(!told.ruled_out.contains(&"scale".to_owned()), "{:?}", told.ruled_out);
}

/// What does not fit is said, so that nobody looks there.
#[test]
fn what_does_not_fit_is_ruled_out() {
    let mismatch = judge(Some(RankDropped), InputClass::Natural, DType::F32, 42).expect("noticed");
    for family in ["stale call", "shift", "swapped slices", "duplicate rank", "zero", "not written", "order"] {
        assert!(mismatch.ruled_out.iter().any(|ruled_out| ruled_out == family), "{family}: {:?}", mismatch.ruled_out);
    }
    assert!(!mismatch.ruled_out.iter().any(|ruled_out| ruled_out == "missing rank"));
}

#[rstest]
#[case::ties_go_down(&[1.0, f32::EPSILON * 0.5], 1.0)]
#[case::above_the_tie(&[1.0 + f32::EPSILON, f32::EPSILON * 0.75], 1.0 + f32::EPSILON)]
#[case::just_below_one(&[1.0, -1e-30], 1.0 - f32::EPSILON * 0.5)]
#[case::negative(&[-1.0, 1e-30], -1.0 + f32::EPSILON * 0.5)]
#[case::exact(&[1.5, 0.25], 1.75)]
fn truncated_sums(#[case] inputs: &[f32], #[case] sum: f32) {
    assert_eq!(sum_truncated(inputs), sum);
}
