use half::bf16;
use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::conformance::{InputClass, Transform};
use passmuster_plan::{
    collective::{Collective, E4M3, E5M2, Roundings, reduce_in_order, reduce_per_hop},
    contract::Order,
};

fn payload(class: InputClass, dtype: DType, world: u32) -> Payload {
    Payload { class, dtype, world, seed: 7, call: 1, transform: Transform::None }
}

fn shape(payload: &Payload, count: u64) -> Shape {
    Shape::new(Collective::AllReduce, payload.world, count)
}

/// The result that `reduce` gives, on all ranks.
fn outputs<T: Element>(payload: &Payload, count: u64, reduce: impl Fn(u64, &[T]) -> T) -> Vec<Vec<u8>> {
    outputs_of(ReduceOp::Sum, payload, count, reduce)
}

/// The same of what ranks contribute to this operator.
fn outputs_of<T: Element>(op: ReduceOp, payload: &Payload, count: u64, reduce: impl Fn(u64, &[T]) -> T) -> Vec<Vec<u8>> {
    let ranks = payload.contributions(op);
    let output: Vec<u8> = (0..count)
        .flat_map(|index| {
            let inputs: Vec<T> = ranks.iter().map(|rank| rank.element(index)).collect();
            reduce(index, &inputs).bits().to_le_bytes()[..size_of::<T>()].to_vec()
        })
        .collect();
    vec![output; payload.world as usize]
}

const NCCL_RING: Contract = Contract { order: Order::Any, roundings: Roundings::PerHop, special_values: false, ..Contract::ORDERED };
const ROTATED: Contract = Contract { order: Order::AnyRotation, special_values: false, ..Contract::ORDERED };

/// A false alarm on a conforming result would make every report worthless.
#[rstest]
fn conforming_results_pass(#[values(1, 2, 3, 8, 16)] world: u32) {
    for (dtype, op) in DType::ALL.into_iter().flat_map(|dtype| ReduceOp::ALL.map(|op| (dtype, op))) {
        conforming_reductions_pass(dtype, op, world);
    }
}

fn conforming_reductions_pass(dtype: DType, op: ReduceOp, world: u32) {
    for class in InputClass::ALL {
        for transform in [Transform::None, Transform::Negate, Transform::Scale(2), Transform::Plus(5)] {
            let payload = Payload { transform, ..payload(class, dtype, world) };
            with_element!(dtype, T => {
                let ordered = outputs_of::<T>(op, &payload, 400, |_, x| reduce_in_order(op, x));
                assert_eq!(compare(&Contract::ORDERED, op, &payload, &shape(&payload, 400), &ordered), None, "{dtype} {op} {class} ordered");
                assert_eq!(compare(&ROTATED, op, &payload, &shape(&payload, 400), &ordered), None, "{dtype} {op} {class} first rotation");
                let rotated = outputs_of::<T>(op, &payload, 400, |index, x| {
                    let mut x = x.to_vec();
                    x.rotate_left(index as usize % world as usize);
                    reduce_in_order(op, &x)
                });
                assert_eq!(compare(&ROTATED, op, &payload, &shape(&payload, 400), &rotated), None, "{dtype} {op} {class} rotated");
                let per_hop = outputs_of::<T>(op, &payload, 400, |_, x| reduce_per_hop(op, x));
                assert_eq!(compare(&NCCL_RING, op, &payload, &shape(&payload, 400), &per_hop), None, "{dtype} {op} {class} per hop");
            });
        }
    }
}

/// Beyond 2^53, neighbours are one number in f64.
#[test]
fn integers_of_64_bits_are_shown_to_the_last_digit() {
    let payload = payload(InputClass::Natural, DType::I64, 2);
    let results = outputs::<i64>(&payload, 40, |index, x| reduce_in_order(ReduceOp::Max, x) - i64::from(index == 7));
    let mismatch = compare(&Contract::ORDERED, ReduceOp::Max, &payload, &shape(&payload, 40), &results).expect("wrong");
    let sample = &mismatch.samples[0];
    let [expected, got] = [&sample.expected, &sample.got].map(|shown| shown.value.parse::<i64>().expect("an integer"));
    assert_eq!((mismatch.wrong, expected - got, sample.error), (1, 1, Some(1.0)));
    assert!(sample.inputs.contains(&sample.expected.value));
}

/// NCCL combines 8-bit floats in f16 and rounds from there, at every hop; averages it scales before or after.
fn ring_in_f16<T: Element<Acc = f32>>(op: ReduceOp, inputs: &[T]) -> T {
    let round = |x: f32| T::narrow(half::f16::from_f32(x).to_f32());
    let world = inputs.len() as f32;
    let scaled = inputs.iter().map(|x| if op == ReduceOp::Avg { round(x.widen() / world) } else { *x });
    let combine = |a: T, b: T| round(if op == ReduceOp::Prod { a.widen() * b.widen() } else { a.widen() + b.widen() });
    scaled.reduce(combine).expect("a group has at least one rank")
}

#[rstest]
fn rings_of_eight_bit_floats_in_f16_pass(
    #[values(ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Avg)] op: ReduceOp,
    #[values(2, 3, 8, 16)] world: u32,
) {
    for class in InputClass::ALL {
        let e4m3 = payload(class, DType::E4M3, world);
        let results = outputs::<E4M3>(&e4m3, 1000, |_, x| ring_in_f16(op, x));
        assert_eq!(compare(&NCCL_RING, op, &e4m3, &shape(&e4m3, 1000), &results), None, "e4m3 {class}");
        let e5m2 = payload(class, DType::E5M2, world);
        let results = outputs::<E5M2>(&e5m2, 1000, |_, x| ring_in_f16(op, x));
        assert_eq!(compare(&NCCL_RING, op, &e5m2, &shape(&e5m2, 1000), &results), None, "e5m2 {class}");
    }
}

/// What a library may do that multiplies and adds at once, or each in its own type: a false alarm on it would make `peer_reference` worthless.
#[rstest]
fn rings_that_multiply_on_the_way_pass(#[values(2, 3, 8, 16)] world: u32) {
    for class in InputClass::ALL {
        let single = payload(class, DType::F32, world);
        let fused = |index: u64, _: &[f32]| {
            let operands = (0..world).map(|rank| (single.element::<f32>(rank, index), f32::of_bits(single.factor(rank))));
            operands.fold(-0.0, |sum: f32, (x, factor)| x.mul_add(factor, sum))
        };
        let results = outputs(&single, 1000, fused);
        assert_eq!(compare(&NCCL_RING, ReduceOp::PremulSum, &single, &shape(&single, 1000), &results), None, "f32 {class}");
        let narrow = payload(class, DType::E4M3, world);
        let in_f16 = |index: u64, _: &[E4M3]| {
            let product = |rank| {
                let factor = E4M3::of_bits(narrow.factor(rank)).to_f32();
                E4M3::from_f32(half::f16::from_f32(narrow.element::<E4M3>(rank, index).to_f32() * factor).to_f32())
            };
            ring_in_f16(ReduceOp::Sum, &(0..world).map(product).collect::<Vec<_>>())
        };
        let results = outputs(&narrow, 1000, in_f16);
        assert_eq!(compare(&NCCL_RING, ReduceOp::PremulSum, &narrow, &shape(&narrow, 1000), &results), None, "e4m3 {class}");
    }
}

/// If this fails, a report on a kernel that multiplies by a wrong factor, twice or not at all does not say so, or says something else.
#[rstest]
#[case::none(|x, _, _, _| x, "no rank has multiplied")]
#[case::twice(|x, own, _, _| x * own * own, "every rank has multiplied twice")]
#[case::another_s(|x, own, next, rank| x * if rank == 2 { next } else { own }, "rank 2 has rank 0's factor")]
#[case::not_multiplied(|x, own, _, rank| if rank == 1 { x } else { x * own }, "rank 1 has not multiplied")]
fn wrong_factors_are_named(
    #[case] product: fn(f32, f32, f32, u32) -> f32,
    #[case] explanation: &str,
    #[values(InputClass::Tagged, InputClass::Natural)] class: InputClass,
) {
    let payload = payload(class, DType::F32, 3);
    let factor = |rank: u32| f32::of_bits(payload.factor(rank % 3));
    let results = outputs(&payload, 200, |_, x: &[f32]| {
        let products: Vec<f32> = (0..3).zip(x).map(|(rank, &x)| product(x, factor(rank), factor(rank + 1), rank)).collect();
        reduce_in_order(ReduceOp::Sum, &products)
    });
    let mismatch = compare(&Contract::ORDERED, ReduceOp::PremulSum, &payload, &shape(&payload, 200), &results).expect("wrong");
    assert_eq!(mismatch.diagnosis[0].explanation, explanation);
    let factors: Vec<&str> =
        mismatch.samples[0].inputs.iter().filter_map(|input| input.split_once('*')).map(|(_, factor)| factor).collect();
    assert_eq!(factors, [0, 1, 2].map(|rank| text(factor(rank))), "a report shows them");
}

/// PyTorch's conversions do not saturate. The report on a kernel that rounds as they do says so.
#[test]
fn overflow_that_does_not_saturate_is_named() {
    let payload = payload(InputClass::Special, DType::E4M3, 4);
    let results = outputs::<E4M3>(&payload, 1000, |_, x| {
        let sum: f32 = x.iter().map(|x| x.to_f32()).sum();
        if sum.abs() > 464.0 { E4M3::from_bits(0x7f) } else { E4M3::from_f32(sum) }
    });
    let mismatch = compare(&Contract::ORDERED, ReduceOp::Sum, &payload, &shape(&payload, 1000), &results).expect("wrong");
    assert_eq!(mismatch.diagnosis[0].explanation, "an infinity or a NaN instead of the largest finite number");
}

#[rstest]
#[case::rounding_per_hop_breaks_one_rounding(ROTATED, InputClass::Natural, true)]
#[case::tagged_sums_hide_it(ROTATED, InputClass::Tagged, false)]
#[case::a_ring_may(NCCL_RING, InputClass::Natural, false)]
fn contracts_decide_what_is_wrong(#[case] contract: Contract, #[case] class: InputClass, #[case] caught: bool) {
    let payload = payload(class, DType::BF16, 8);
    let outputs = outputs::<bf16>(&payload, 2000, |_, x| reduce_per_hop(ReduceOp::Sum, x));
    assert_eq!(compare(&contract, ReduceOp::Sum, &payload, &shape(&payload, 2000), &outputs).is_some(), caught);
}

#[test]
fn a_report_says_where_what_and_why() {
    let payload = payload(InputClass::Tagged, DType::BF16, 8);
    let outputs = outputs::<bf16>(&payload, 1040, |index, x| {
        let missing = if index >= 1032 { x[3] } else { bf16::ZERO };
        bf16::from_f32(reduce_in_order(ReduceOp::Sum, x).to_f32() - missing.to_f32())
    });
    let mismatch = compare(&Contract::ORDERED, ReduceOp::Sum, &payload, &shape(&payload, 1040), &outputs).expect("wrong");
    insta::assert_snapshot!(mismatch);
    let json = serde_json::to_string(&mismatch).expect("serializable");
    let read: Mismatch = serde_json::from_str(&json).expect("what was written");
    assert_eq!(read.to_string(), mismatch.to_string());
}

/// Values that JSON has no numbers for must not break a record.
#[test]
fn reports_of_special_values_survive_json() {
    let payload = payload(InputClass::Special, DType::F32, 4);
    let outputs = outputs::<f32>(&payload, 300, |_, _| f32::NAN);
    let mismatch = compare(&Contract::ORDERED, ReduceOp::Sum, &payload, &shape(&payload, 300), &outputs).expect("wrong");
    let json = serde_json::to_string(&mismatch).expect("serializable");
    assert_eq!(serde_json::from_str::<Mismatch>(&json).expect("what was written").to_string(), mismatch.to_string());
}

#[test]
fn ranks_that_differ_are_named() {
    let payload = payload(InputClass::Natural, DType::F32, 4);
    let mut outputs = outputs::<f32>(&payload, 100, |_, x| reduce_in_order(ReduceOp::Sum, x));
    assert_eq!(ranks_disagree(&outputs, DType::F32), None);
    outputs[2][4 * 60] ^= 1;
    let mismatch = compare(&Contract::ORDERED, ReduceOp::Sum, &payload, &shape(&payload, 100), &outputs).expect("wrong");
    assert_eq!((mismatch.wrong, &mismatch.ranks[..], mismatch.ranks_agree), (1, &[2][..], false));
    assert_eq!(mismatch.first, ElementPos { index: 60, byte: 240, pack: 15, lane: 0, owner: Some(2) });
    let difference = ranks_disagree(&outputs, DType::F32).expect("different");
    assert_eq!((difference.wrong, &difference.ranks[..], difference.first), (1, &[2][..], mismatch.first));
    insta::assert_snapshot!(difference.to_string().lines().next().expect("a line"),
        @"  1 of 100 elements differ on ranks 2 from rank 0; required: all ranks have the same bits");
}

/// What the collectives with slots give, from the reference: it passes, and every flipped bit is noticed on its rank alone.
#[rstest]
#[case(Collective::AllGather, ReduceOp::Copy, Contract::COPIED)]
#[case(Collective::AllToAll, ReduceOp::Copy, Contract::COPIED)]
#[case(Collective::ReduceScatter, ReduceOp::Avg, Contract::ORDERED)]
#[case(Collective::ReduceScatter, ReduceOp::Max, Contract::ORDERED)]
fn collectives_with_slots_are_judged_rank_by_rank(#[case] collective: Collective, #[case] op: ReduceOp, #[case] contract: Contract) {
    for class in InputClass::ALL {
        let (payload, shape) = (payload(class, DType::BF16, 3), Shape::new(collective, 3, 50));
        let inputs: Vec<Vec<u8>> = (0..3).map(|rank| payload.bytes(rank, 0..shape.input())).collect();
        let mut outputs = shape.results(DType::BF16, op, &inputs);
        assert_eq!(compare(&contract, op, &payload, &shape, &outputs), None, "{class}");
        outputs[1][2 * 20] ^= 1;
        if bf16::from_bytes(&outputs[1][40..42]).is_nan() && op.reduces() {
            continue;
        }
        let mismatch = compare(&contract, op, &payload, &shape, &outputs).expect("wrong");
        assert_eq!((mismatch.wrong, mismatch.first.index, &mismatch.ranks[..]), (1, 20, &[1][..]), "{class}");
        assert_eq!(mismatch.first.owner.is_some(), collective.gives_all_ranks_the_same());
    }
}

/// If this fails, ranks that get no result are judged, or the one that gets it is not.
#[test]
fn only_the_root_of_a_reduce_is_judged() {
    let (payload, shape) = (payload(InputClass::Natural, DType::F32, 3), Shape::new(Collective::Reduce, 3, 50).with_root(1));
    let inputs: Vec<Vec<u8>> = (0..3).map(|rank| payload.bytes(rank, 0..50)).collect();
    let mut outputs = shape.results(DType::F32, ReduceOp::Sum, &inputs);
    for rank in [0, 2] {
        outputs[rank] = vec![0x7b; 200];
    }
    assert_eq!(compare(&Contract::ORDERED, ReduceOp::Sum, &payload, &shape, &outputs), None);
    outputs.swap(1, 2);
    let mismatch = compare(&Contract::ORDERED, ReduceOp::Sum, &payload, &shape, &outputs).expect("wrong");
    assert_eq!((mismatch.wrong, &mismatch.ranks[..]), (50, &[1][..]));
    assert!(mismatch.to_string().contains("diagnosis   not written: the poison byte 0x7b is still there"), "{mismatch}");
}

/// A report that says whose element stands where another's should.
#[test]
fn a_wrong_slot_is_named() {
    let explained = |collective, op, contract: &Contract, wrong: &dyn Fn(&mut Vec<Vec<u8>>)| {
        let (payload, shape) = (payload(InputClass::Natural, DType::F32, 4), Shape::new(collective, 4, 40));
        let inputs: Vec<Vec<u8>> = (0..4).map(|rank| payload.bytes(rank, 0..shape.input())).collect();
        let mut outputs = shape.results(DType::F32, op, &inputs);
        wrong(&mut outputs);
        compare(contract, op, &payload, &shape, &outputs).expect("wrong").to_string()
    };
    let gathered = explained(Collective::AllGather, ReduceOp::Copy, &Contract::COPIED, &|outputs| {
        outputs.iter_mut().for_each(|output| output.copy_within(160..320, 480));
    });
    assert!(gathered.contains("diagnosis   rank 1's input stands there (100 %"), "{gathered}");
    assert!(gathered.contains("owner rank 3") && gathered.contains("  r3: "), "{gathered}");
    let scattered = explained(Collective::ReduceScatter, ReduceOp::Sum, &Contract::ORDERED, &|outputs| outputs[2] = outputs[0].clone());
    assert!(scattered.contains("diagnosis   the result that rank 0 should have (100 %"), "{scattered}");
    assert!(scattered.contains("wrong on rank 2\n") && !scattered.contains("owner"), "{scattered}");
    let broadcast = explained(Collective::Broadcast, ReduceOp::Copy, &Contract::COPIED, &|outputs| {
        let of_rank_2 = payload(InputClass::Natural, DType::F32, 4).bytes(2, 0..40);
        outputs.fill(of_rank_2);
    });
    assert!(broadcast.contains("diagnosis   rank 2's input stands there (100 %"), "{broadcast}");
    let exchanged = explained(Collective::AllToAll, ReduceOp::Copy, &Contract::COPIED, &|outputs| outputs[3] = outputs[1].clone());
    assert!(exchanged.contains("diagnosis   the result that rank 1 should have (100 %"), "{exchanged}");
}

#[test]
fn a_changed_element_of_one_rank_binds_all_others() {
    let relation: Relation<()> = Relation::EqualBut(Destination { rank: Some(1), index: 7 });
    assert_eq!((relation.on(1), relation.on(0)), (relation, Relation::Equal));
}

/// Threads must neither lose nor repeat an element.
#[test]
fn large_outputs_are_scanned_whole() {
    let payload = payload(InputClass::Tagged, DType::I32, 2);
    let count = THREADING_PAYS + 5;
    let mut outputs = outputs::<i32>(&payload, count, |_, x| reduce_in_order(ReduceOp::Sum, x));
    assert_eq!(compare(&Contract::ORDERED, ReduceOp::Sum, &payload, &shape(&payload, count), &outputs), None);
    for index in (0..count as usize).step_by(100) {
        outputs.iter_mut().for_each(|output| output[4 * index] ^= 0x10);
    }
    let mismatch = compare(&Contract::ORDERED, ReduceOp::Sum, &payload, &shape(&payload, count), &outputs).expect("wrong");
    assert_eq!((mismatch.wrong, mismatch.last.index), (count.div_ceil(100), count / 100 * 100));
    assert_eq!(mismatch.samples.iter().map(|s| s.index).collect::<Vec<_>>(), (0..8).map(|i| i * 100).collect::<Vec<_>>());
    assert_eq!((mismatch.diagnosis[0].explanation.as_str(), mismatch.diagnosis[0].coverage), ("one bit is flipped", 1.0));
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

const fn everywhere(index: u64) -> Destination {
    Destination { rank: None, index }
}

#[rstest]
#[case::equal(Relation::Equal, &[1.0, f32::NAN], &[1.0, -f32::NAN], None)]
#[case::zeros_differ(Relation::Equal, &[0.0], &[-0.0], Some(0))]
#[case::zeros_are_equal_as_numbers(Relation::EqualValue, &[0.0, -0.0, f32::NAN], &[-0.0, 0.0, -f32::NAN], None)]
#[case::other_numbers_are_not(Relation::EqualValue, &[1.0, 0.0], &[1.0, f32::from_bits(1)], Some(1))]
#[case::free_element(Relation::EqualBut(everywhere(1)), &[1.0, 2.0], &[1.0, 5.0], None)]
#[case::other_element(Relation::EqualBut(everywhere(0)), &[1.0, 2.0], &[1.0, 5.0], Some(1))]
#[case::negated(Relation::Negated, &[1.0, 0.0], &[-1.0, 0.0], None)]
#[case::not_negated(Relation::Negated, &[1.0, 2.0], &[-1.0, 2.0], Some(1))]
#[case::scaled(Relation::Scaled(3), &[1.5, f32::INFINITY], &[12.0, f32::INFINITY], None)]
#[case::scaled_wrong(Relation::Scaled(3), &[1.5], &[12.000001], Some(0))]
#[case::scaled_overflow(Relation::Scaled(3), &[f32::MAX], &[f32::MAX], None)]
#[case::scaled_subnormal(Relation::Scaled(1), &[f32::from_bits(3)], &[f32::from_bits(7)], None)]
#[case::scaled_rounded_up_to_normal(Relation::Scaled(1), &[f32::MIN_POSITIVE], &[(2.0 * f32::MIN_POSITIVE).next_down()], None)]
#[case::scaled_subnormal_wrong(Relation::Scaled(1), &[f32::from_bits(3)], &[f32::from_bits(9)], Some(0))]
fn relations(#[case] relation: Relation<&[u8]>, #[case] base: &[f32], #[case] other: &[f32], #[case] first: Option<u64>) {
    let broken = relation_broken(relation, DType::F32, &bytes(base), &bytes(other));
    assert_eq!(broken.map(|difference| difference.first.index), first);
}

/// If this fails, a record names another element or bit than the first one that is wrong.
#[test]
fn a_difference_names_its_first_element_and_bit() {
    let difference = relation_broken(Relation::Equal, DType::F32, &bytes(&[1.0, 1.0, 2.0]), &bytes(&[1.0, 5.0, 3.0])).expect("different");
    // 0x3f800000 and 0x40a00000.
    assert_eq!(difference.place(2), Some(Place { rank: 2, element: 1, bit: Some(21) }));
}

/// If this fails, a report of an output that several threads scan leaves out ranks, or wrong elements that it should explain.
#[test]
fn parts_of_a_scan_are_added_up() {
    let part = |from: u64, ranks: u128| {
        let mut tally = Tally::default();
        (from..from + 3).for_each(|index| tally.add(index, ranks));
        tally
    };
    let mut all = part(0, 0b01);
    all.append(Tally::default());
    all.append(part(100, 0b10));
    assert_eq!((all.wrong, all.ranks, all.first, all.last), (6, 0b11, Some(0), 102));
    let each = [(0, 1), (1, 1), (2, 1), (100, 2), (101, 2), (102, 2)];
    assert_eq!((&all.head[..], &all.places[..]), (&each[..], &each[..]));
}

/// Negation, scaling, independence and additivity must hold of what a conforming algorithm gives, or they raise false alarms.
#[rstest]
fn relations_hold_of_the_reference(#[values(DType::F32, DType::F16, DType::BF16, DType::F64, DType::E4M3, DType::E5M2)] dtype: DType) {
    with_element!(dtype, T => {
        let result = |class, transform, call| {
            let payload = Payload { transform, call, ..payload(class, dtype, 6) };
            outputs::<T>(&payload, 3000, |_, x| reduce_in_order(ReduceOp::Avg, x)).swap_remove(0)
        };
        for class in [InputClass::Tagged, InputClass::Natural, InputClass::Probe] {
            let base = result(class, Transform::None, 1);
            assert_eq!(relation_broken(Relation::Negated, dtype, &base, &result(class, Transform::Negate, 1)), None, "{class}");
            assert_eq!(relation_broken(Relation::Scaled(2), dtype, &base, &result(class, Transform::Scale(2), 1)), None, "{class}");
            let flipped = result(class, Transform::Flip { rank: 3, index: 1234 }, 1);
            assert_eq!(relation_broken(Relation::EqualBut(everywhere(1234)), dtype, &base, &flipped), None, "{class}");
        }
        let sum = |transform, call| {
            let payload = Payload { transform, call, ..payload(InputClass::Tagged, dtype, 6) };
            outputs::<T>(&payload, 500, |_, x| reduce_in_order(ReduceOp::Sum, x)).swap_remove(0)
        };
        let (x, y, both) = (sum(Transform::None, 1), sum(Transform::None, 2), sum(Transform::Plus(2), 1));
        assert_eq!(relation_broken(Relation::Plus(&y), dtype, &x, &both), None);
        assert!(relation_broken(Relation::Plus(&x), dtype, &x, &both).is_some());
    });
}

proptest! {
    /// Any bit of any rank's result counts, where the contract decides the bits.
    #[test]
    fn every_flipped_bit_is_noticed(
        class in proptest::sample::select(&InputClass::ALL[..]),
        dtype in proptest::sample::select(&DType::ALL[..]),
        op in proptest::sample::select(&ReduceOp::ALL[..]),
        (rank, index, bit, everywhere) in (0usize..5, 0u64..40, 0u64..64, any::<bool>()),
    ) {
        let payload = payload(class, dtype, 5);
        let at = index * dtype.size() + bit / 8 % dtype.size();
        let (was_nan, is_nan, outputs) = with_element!(dtype, T => {
            let mut outputs = outputs_of::<T>(op, &payload, 40, |_, x| reduce_in_order(op, x));
            let was_nan = read::<T>(&outputs[rank], index).is_nan();
            for (other, output) in outputs.iter_mut().enumerate() {
                if everywhere || other == rank {
                    output[at as usize] ^= 1 << (bit % 8);
                }
            }
            (was_nan, read::<T>(&outputs[rank], index).is_nan(), outputs)
        });
        let mismatch = compare(&Contract::ORDERED, op, &payload, &shape(&payload, 40), &outputs);
        // The payload of a NaN is nobody's promise.
        if was_nan && is_nan {
            prop_assert_eq!(mismatch, None);
        } else {
            let mismatch = mismatch.expect("a flipped bit");
            prop_assert_eq!((mismatch.wrong, mismatch.first.index, mismatch.first.byte), (1, index, index * dtype.size()));
            let ranks: Vec<u32> = if everywhere { (0..5).collect() } else { vec![rank as u32] };
            prop_assert_eq!(mismatch.ranks, ranks);
        }
    }
}

/// If this fails, a relation between calls says nothing about numbers that are large, or saturated ones are findings.
#[test]
fn scaling_exempts_overflow_only() {
    let bf16s = |values: &[f32]| values.iter().flat_map(|&value| bf16::from_f32(value).to_le_bytes()).collect::<Vec<u8>>();
    let wrong =
        |base: f32, other: f32| relation_broken(Relation::Scaled(1), DType::BF16, &bf16s(&[base]), &bf16s(&[other])).map(|d| d.wrong);
    let largest = bf16::MAX.to_f32();
    for large in [1.0, 1e20, 1e37, largest / 4.0] {
        assert_eq!(wrong(large, bf16::from_f32(large).to_f32() * 2.0), None, "{large}");
        assert_eq!(wrong(large, bf16::from_f32(large).to_f32() * 1.5), Some(1), "{large}");
    }
    // What overflows is not compared, and nothing else is exempt: a bf16 does not saturate.
    assert_eq!((wrong(largest, f32::INFINITY), wrong(largest / 4.0, largest / 4.0)), (None, Some(1)));
    let e4m3 = |value: f32| vec![E4M3::from_f32(value).bits() as u8];
    let wrong = |base: f32, other: f32| relation_broken(Relation::Scaled(1), DType::E4M3, &e4m3(base), &e4m3(other)).map(|d| d.wrong);
    // 448 is the largest: it may stand for more.
    assert_eq!([wrong(208.0, 416.0), wrong(208.0, 384.0), wrong(240.0, 448.0), wrong(104.0, 192.0)], [None, Some(1), None, Some(1)]);
}
