//! Recorded numerics: what the reference gives for a fixed list of payloads, in hexadecimal, the same on every machine.
//!
//! Nothing here runs a kernel. The snapshot pins three things at once: the generator of inputs (which kernels/conformance/inputs.cuh
//! repeats on devices), the arithmetic of the reference (accumulator, rounding, min and max of zeros and NaN), and the order that
//! [`Contract::ORDERED`] promises. If a line changes, one of them has changed: seeds in old case ids give other inputs, results of
//! earlier records can no longer be compared, and kernels that passed would now fail, or the other way round. That is never an accident
//! to be accepted with `cargo insta accept`: it is a new version of the contract or of the inputs, and has to say so.

use passmuster_harness::conformance::{Expected, InputClass, Payload, Transform, oracle, report::table};
use passmuster_plan::{
    collective::{DType, Element, ReduceOp},
    contract::Contract,
    modules::fnv1a64,
    with_element,
};

/// Elements of each result.
const COUNT: u64 = 64;
/// Elements of each that the table shows.
const SHOWN: usize = 8;

const SUM: ReduceOp = ReduceOp::Sum;

/// The pinned combinations: every type and class as a sum over eight ranks, every operator and type over three, and what depends on
/// the world size.
fn combinations() -> Vec<(DType, ReduceOp, u32, InputClass)> {
    let mut all = Vec::new();
    for dtype in DType::ALL {
        all.extend(InputClass::ALL.map(|class| (dtype, SUM, 8, class)));
    }
    for op in [ReduceOp::Avg, ReduceOp::Min, ReduceOp::Max, ReduceOp::Prod] {
        all.extend(DType::ALL.map(|dtype| (dtype, op, 3, InputClass::Special)));
    }
    all.extend([1, 2, 5, 16].map(|world| (DType::BF16, SUM, world, InputClass::Probe)));
    all.extend(DType::ALL.map(|dtype| (dtype, ReduceOp::Prod, 5, InputClass::Natural)));
    all.extend([2, 16].map(|world| (DType::F32, ReduceOp::Avg, world, InputClass::Natural)));
    all
}

fn payload(dtype: DType, world: u32, class: InputClass) -> Payload {
    Payload { class, dtype, world, seed: 1, call: 0, transform: Transform::None }
}

/// The bits of the result that the contract allows, element by element. NaN are all written as the same one: their payloads are
/// nobody's promise, and hosts differ in them.
fn reference<T: Element>(op: ReduceOp, payload: &Payload) -> Vec<u64> {
    let oracle = oracle(&Contract::ORDERED, op, payload.dtype, payload.class);
    (0..COUNT)
        .map(|index| {
            let inputs: Vec<T> = (0..payload.world).map(|rank| payload.element(rank, index)).collect();
            let Expected::Bits(want) = oracle.expect(&inputs) else { panic!("{op} of {}: the order decides the bits", payload.dtype) };
            if want.is_nan() { quiet_nan(T::DTYPE) } else { want.bits() }
        })
        .collect()
}

fn quiet_nan(dtype: DType) -> u64 {
    match dtype {
        DType::F32 => 0x7fc0_0000,
        DType::F16 => 0x7e00,
        DType::BF16 => 0x7fc0,
        DType::F64 => 0x7ff8_0000_0000_0000,
        DType::E4M3 => 0x7f,
        DType::E5M2 => 0x7e,
        _ => unreachable!("integers have no NaN"),
    }
}

#[test]
fn the_reference_has_not_changed() {
    let rows: Vec<Vec<String>> = combinations()
        .into_iter()
        .map(|(dtype, op, world, class)| {
            let bits = with_element!(dtype, T => reference::<T>(op, &payload(dtype, world, class)));
            let size = dtype.size() as usize;
            let bytes: Vec<u8> = bits.iter().flat_map(|element| element.to_le_bytes()[..size].to_vec()).collect();
            let shown: Vec<String> = bits[..SHOWN].iter().map(|element| format!("{element:0width$x}", width = 2 * size)).collect();
            let digest = format!("{:016x}", fnv1a64(&bytes));
            vec![dtype.to_string(), op.to_string(), world.to_string(), class.to_string(), digest, shown.join(" ")]
        })
        .collect();
    let header = ["dtype", "op", "w", "inputs", "fnv1a64", "first elements"];
    insta::assert_snapshot!(table::aligned(&header, header.len(), &rows));
}

/// How many of 4096 bf16 sums over eight ranks come out otherwise when the sum starts at another rank, for each of those.
fn changed_by_rotation(class: InputClass) -> Vec<usize> {
    use half::bf16;
    use passmuster_plan::collective::reduce_in_order;
    let payload = payload(DType::BF16, 8, class);
    (1..8)
        .map(|by| {
            let differs = |index: &u64| {
                let mut inputs: Vec<bf16> = (0..8).map(|rank| payload.element(rank, *index)).collect();
                let ascending = reduce_in_order(SUM, &inputs);
                inputs.rotate_left(by);
                reduce_in_order(SUM, &inputs).to_bits() != ascending.to_bits()
            };
            (0..4096).filter(differs).count()
        })
        .collect()
}

/// Natural bf16 values have so few bits that f32 holds their sums exactly, or nearly so: a wrong order would pass on them. That is why
/// there are probes, on which every rotation shows.
#[test]
fn probes_show_the_order_that_natural_bf16_inputs_hide() {
    assert_eq!(changed_by_rotation(InputClass::Natural), [0; 7]);
    let probe = changed_by_rotation(InputClass::Probe);
    assert!(probe.iter().all(|&changed| changed > 1000), "{probe:?}");
}
