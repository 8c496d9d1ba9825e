use std::collections::HashSet;

use approx::assert_abs_diff_eq;
use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::REGISTRY;
use passmuster_plan::{
    collective::{ReduceOp, reduce_in_order, reduce_per_hop},
    plan::Op,
};

fn payload(class: InputClass, dtype: DType, world: u32) -> Payload {
    Payload { class, dtype, world, seed: 0x9f3c, call: 3, transform: Transform::None }
}

fn at<T: Element>(payload: &Payload, index: u64) -> Vec<T> {
    (0..payload.world).map(|rank| payload.element(rank, index)).collect()
}

#[test]
fn names_are_parsed_and_unknown_ones_refused() {
    for class in InputClass::ALL {
        assert_eq!(class.to_string().parse(), Ok(class));
    }
    assert_eq!(
        "random".parse::<InputClass>().unwrap_err().to_string(),
        "unknown input class `random`: expected one of tagged, natural, probe, special"
    );
}

/// The bits that devices make too: a change here makes recorded results worthless.
#[test]
fn first_elements_of_every_class() {
    let mut text = String::new();
    for class in InputClass::ALL {
        for dtype in DType::ALL {
            for rank in 0..2 {
                let size = dtype.size() as usize;
                let bytes = payload(class, dtype, 4).bytes(rank, 0..8);
                let words = bytes.chunks(size).map(|e| e.iter().rev().map(|b| format!("{b:02x}")).collect::<String>());
                text += &format!("{class:<8} {dtype:<5} rank {rank}: {}\n", words.collect::<Vec<_>>().join(" "));
            }
        }
    }
    insta::assert_snapshot!(text);
}

proptest! {
    /// If this fails, an exact comparison of tagged sums would raise false alarms for some order.
    #[test]
    fn tagged_sums_are_exact_in_every_order(seed: u64, world in 1u32..=72, index: u64, other in 0u32..100, turn in 0usize..72) {
        for dtype in DType::ALL {
            for transform in [Transform::None, Transform::Negate, Transform::Scale(2), Transform::Plus(other)] {
                let wraps = match transform {
                    Transform::Scale(_) => !dtype.is_float(),
                    Transform::Negate => !dtype.is_signed(),
                    _ => false,
                };
                if wraps {
                    continue;
                }
                let payload = Payload { seed, transform, ..payload(InputClass::Tagged, dtype, world) };
                with_element!(dtype, T => {
                    let mut values = at::<T>(&payload, index);
                    let exact: f64 = values.iter().map(|x| x.to_f64()).sum();
                    for _ in 0..2 {
                        values.rotate_left(turn % world as usize);
                        prop_assert_eq!(reduce_in_order(ReduceOp::Sum, &values).to_f64(), exact);
                        prop_assert_eq!(reduce_per_hop(ReduceOp::Sum, &values).to_f64(), exact);
                        values.reverse();
                    }
                });
            }
        }
    }

    /// Filling in parts gives the whole.
    #[test]
    fn ranges_are_parts_of_one_sequence(seed: u64, start in 0u64..1 << 40, length in 0u64..40) {
        for dtype in DType::ALL {
            let payload = Payload { seed, ..payload(InputClass::Special, dtype, 5) };
            let parts: Vec<u8> = (start..start + length).flat_map(|i| payload.bytes(2, i..i + 1)).collect();
            prop_assert_eq!(payload.bytes(2, start..start + length), parts);
        }
    }
}

#[test]
fn threads_make_the_same_bytes() {
    let payload = payload(InputClass::Tagged, DType::BF16, 3);
    let (count, at) = (THREADING_PAYS + 17, THREADING_PAYS / 2 - 3);
    let bytes = payload.bytes(1, 0..count);
    assert_eq!(bytes.len() as u64, 2 * count);
    assert_eq!(bytes[2 * at as usize..2 * at as usize + 20], payload.bytes(1, at..at + 10));
    assert_eq!(bytes[bytes.len() - 20..], payload.bytes(1, count - 10..count));
}

/// A payload that repeats would let stale data pass.
#[test]
fn every_call_and_rank_has_its_own_payload() {
    for (dtype, class) in DType::ALL.into_iter().flat_map(|dtype| InputClass::ALL.map(|class| (dtype, class))) {
        let mut seen = HashSet::new();
        for call in 0..16 {
            let payload = payload(class, dtype, 8).of_call(call);
            // Probes give all but two ranks one of few values, so all ranks together are what must be fresh.
            assert!(seen.insert((0..8).flat_map(|rank| payload.bytes(rank, 0..64)).collect::<Vec<u8>>()), "{dtype} {class} call {call}");
        }
        let ranks: HashSet<Vec<u8>> = (0..16).map(|rank| payload(InputClass::Tagged, dtype, 16).bytes(rank, 0..64)).collect();
        assert_eq!(ranks.len(), 16, "{dtype}");
    }
}

/// A rank that held zeros only could be left out of every sum.
/// If this fails, a rank's factor could be left out, be another's, or be taken twice, and the numbers would be the same.
#[test]
fn factors_of_ranks_differ_and_tell_when_they_are_missing() {
    for dtype in DType::ALL {
        for class in [InputClass::Tagged, InputClass::Natural] {
            let payload = payload(class, dtype, 4);
            let factors: Vec<u64> = (0..4).map(|rank| payload.factor(rank)).collect();
            assert!(factors.windows(2).all(|pair| pair[0] != pair[1]), "{dtype} {class}: {factors:x?}");
            with_element!(dtype, T => for bits in factors {
                let factor = T::of_bits(bits);
                assert!(multiplied(factor, factor) != factor, "{dtype} {class}: {factor:?} is its own square");
                assert!(!dtype.is_float() || factor.to_f64().abs() <= 1.0, "{dtype} {class}: {factor:?}");
            });
        }
    }
    let probe = payload(InputClass::Probe, DType::F32, 4);
    assert!((1..4).all(|rank| probe.factor(rank) == probe.factor(0)), "the large pair would not cancel");
}

#[test]
fn every_rank_tags_elements_of_every_type() {
    for (dtype, world) in DType::ALL.into_iter().flat_map(|dtype| [1, 2, 5, 8, 16, 17, 72].map(|world| (dtype, world))) {
        let payload = payload(InputClass::Tagged, dtype, world);
        let (_, holders) = tagged_reach(dtype, world);
        for rank in 0..world {
            let tags = payload.bytes(rank, 0..800).chunks(dtype.size() as usize).filter(|e| e.iter().any(|byte| *byte != 0)).count() as u32;
            assert!(tags > 300 * holders / world, "{dtype} rank {rank} of {world}: {tags}");
        }
    }
}

#[rstest]
fn natural_data_is_about_normal(#[values(DType::F32, DType::BF16, DType::F16, DType::F64, DType::E4M3, DType::E5M2)] dtype: DType) {
    let payload = payload(InputClass::Natural, dtype, 8);
    with_element!(dtype, T => {
        let values: Vec<f64> = payload.elements::<T>(5, 0..40_000).iter().map(|x| x.to_f64()).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / values.len() as f64;
        assert_abs_diff_eq!(mean, 0.0, epsilon = 0.025);
        assert_abs_diff_eq!(variance.sqrt(), 1.1547, epsilon = 0.02);
        assert!(values.iter().all(|x| x.abs() <= 4.0));
    });
}

#[rstest]
fn probes_tell_the_order(
    #[values(3, 4, 5, 8, 16, 72)] world: u32,
    #[values(DType::F32, DType::BF16, DType::F16, DType::F64, DType::E5M2)] dtype: DType,
) {
    let payload = payload(InputClass::Probe, dtype, world);
    let differing = with_element!(dtype, T => (0..1000)
        .filter(|&index| {
            let mut values = at::<T>(&payload, index);
            let ordered = reduce_in_order(ReduceOp::Sum, &values);
            values.rotate_left(1);
            ordered.bits() != reduce_in_order(ReduceOp::Sum, &values).bits()
        })
        .count());
    let least = match world {
        // Rotating by one changes nothing where the first rank is small and stays outside the pair: a third of all elements, of three ranks.
        3 => 300,
        // One rank's number is seldom a half of the last of the three bits of what seventy add up to.
        72 if dtype == DType::E5M2 => 200,
        _ => 500,
    };
    assert!(differing >= least, "{differing} of 1000");
}

/// A pair of ranks that is never picked is an order that is never told.
#[rstest]
fn probes_pick_every_pair_alike(#[values(3, 4, 7, 16)] world: u32) {
    let payload = payload(InputClass::Probe, DType::F32, world);
    let (pairs, each) = (u64::from(world * (world - 1)), 200);
    let mut picked = std::collections::HashMap::new();
    for index in 0..pairs * each {
        let values = at::<f32>(&payload, index);
        let holder = |large: f32| values.iter().position(|x| *x == large).expect("a large value");
        *picked.entry((holder(2f32.powi(30)), holder(-(2f32.powi(30))))).or_insert(0u64) += 1;
    }
    assert_eq!(picked.len() as u64, pairs);
    // Five standard deviations either way.
    assert!(picked.values().all(|times| times.abs_diff(each) < 71), "{picked:?}");
}

/// Every situation that the class is for must appear, or the properties that rest on it are checked on nothing.
#[rstest]
fn special_values_appear(#[values(DType::F32, DType::BF16, DType::F16, DType::F64, DType::E4M3, DType::E5M2)] dtype: DType) {
    let payload = payload(InputClass::Special, dtype, 8);
    let format = Format::of(dtype);
    let Format { sign, infinity, normal, .. } = format;
    with_element!(dtype, T => {
        // In 8 bits, twice as many neighbours share a situation.
        let elements = if dtype.size() == 1 { 8000 } else { 2000 };
        let all: Vec<Vec<T>> = (0..elements).map(|index| at::<T>(&payload, index)).collect();
        let count = |holds: &dyn Fn(&[T]) -> bool| all.iter().filter(|values| holds(values)).count();
        let sum = |values: &[T]| reduce_in_order(ReduceOp::Sum, values);
        assert!(count(&|v| v.iter().all(|x| x.bits() == sign)) > 50, "all -0");
        assert!(count(&|v| v.iter().filter(|x| x.bits() == 0).count() == 1 && sum(v).bits() == 0) > 50, "one +0");
        assert!(count(&|v| v.iter().filter(|x| x.is_nan()).count() == 1) > 100, "one NaN");
        assert!(count(&|v| v.iter().all(|x| x.is_nan())) > 50, "all NaN");
        let overflows = |v: &[T]| sum(v).bits() & !sign == format.overflow(dtype) && v.iter().all(|x| x.to_f64().is_finite());
        assert!(count(&overflows) > 50, "overflow");
        let cancelled = count(&|v| sum(v).is_nan() && !v.iter().any(|x| x.is_nan()));
        assert!(if infinity.is_some() { cancelled > 50 } else { cancelled == 0 }, "infinities that cancel");
        assert!(count(&|v| v.iter().all(|x| x.bits() & !sign < normal && x.bits() & !sign != 0)) > 50, "subnormals");
        assert!(count(&|v| v.iter().any(|x| x.bits() == normal) && sum(v).bits() & !sign < normal) > 50, "a subnormal difference");
        let one_and_half_ulp = |v: &[T]| v.iter().map(|x| x.to_f64()).sum::<f64>() == 1.0 + passmuster_plan::collective::unit_roundoff(dtype);
        // In f64 the tie cannot be told from its rounding.
        assert!(dtype == DType::F64 || count(&one_and_half_ulp) > 50, "ties");
    });
}

/// If this fails, no float input has a word that kernels of packs without flags have for something else.
#[rstest]
fn rare_words_of_32_bits_appear_in_all_types(
    #[values(DType::F64, DType::F32, DType::F16, DType::BF16, DType::E4M3, DType::E5M2)] dtype: DType,
    #[values(0x8000_0000, 0xfffa_fffa, 0xffff_ffff, 0x7fff_ffff, 0x7fff_fffe)] rare: u32,
) {
    let payload = payload(InputClass::Special, dtype, 2);
    // In narrow types several elements have to be of the rank that has the word.
    let bytes = payload.bytes(0, 0..64_000);
    assert!(bytes.chunks(4).filter(|word| *word == rare.to_le_bytes()).count() > 4);
}

#[rstest]
#[case::negate(Transform::Negate, -1.0)]
#[case::scale(Transform::Scale(2), 4.0)]
#[case::scale_down(Transform::Scale(-1), 0.5)]
fn transforms_relate_payloads(#[case] transform: Transform, #[case] factor: f64) {
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
        let base = payload(InputClass::Natural, dtype, 4);
        let other = Payload { transform, ..base };
        with_element!(dtype, T => for index in 0..200 {
            assert_eq!(other.element::<T>(1, index).to_f64(), base.element::<T>(1, index).to_f64() * factor);
        });
    }
}

#[test]
fn sums_of_payloads_and_flips_of_one_element() {
    let base = payload(InputClass::Tagged, DType::F32, 4);
    let plus = Payload { transform: Transform::Plus(9), ..base };
    let flip = Payload { transform: Transform::Flip { rank: 2, index: 77 }, ..base };
    for index in 0..100 {
        let other: f32 = base.of_call(9).element(2, index);
        assert_eq!(plus.element::<f32>(2, index), base.element::<f32>(2, index) + other);
        assert_eq!(flip.element::<f32>(2, index) != base.element::<f32>(2, index), index == 77, "{index}");
        assert_eq!(flip.element::<f32>(1, index), base.element::<f32>(1, index));
    }
}

#[test]
fn integers_negate_and_scale_by_wrapping() {
    let base = payload(InputClass::Special, DType::I32, 4);
    let negated = Payload { transform: Transform::Negate, ..base };
    let natural = payload(InputClass::Natural, DType::I32, 4);
    let scaled = Payload { transform: Transform::Scale(2), ..natural };
    for index in 0..100 {
        assert_eq!(negated.element::<i32>(0, index), base.element::<i32>(0, index).wrapping_neg());
        assert_eq!(scaled.element::<i32>(0, index), natural.element::<i32>(0, index).wrapping_mul(4));
    }
}

/// Each width has its own extremes, and unsigned types theirs.
#[test]
fn special_integers_are_the_extremes_of_their_type() {
    for dtype in DType::ALL.into_iter().filter(|dtype| !dtype.is_float()) {
        let payload = payload(InputClass::Special, dtype, 2);
        let top = 1u64 << (8 * dtype.size() - 1);
        let drawn: HashSet<u64> = with_element!(dtype, T => payload.elements::<T>(1, 0..400).iter().map(|x| x.bits()).collect());
        for extreme in [0, 1, top - 1, top, top | 1, top - 2, top | (top - 1)] {
            assert!(drawn.contains(&extreme), "{dtype} {extreme:#x}");
        }
    }
}

#[rstest]
fn launches_are_of_kernels_that_exist(#[values(0, 1, 1 << 30)] count: u64) {
    for dtype in DType::ALL {
        let region = Region::new("input", 8, count * dtype.size());
        let Op::Launch(launch) = payload(InputClass::Natural, dtype, 4).fill(1, region, count) else { panic!("a launch") };
        assert_eq!(REGISTRY.library().check(&launch), Ok(()));
        assert!((1..=1024).contains(&launch.grid.total()));
    }
}

#[test]
fn a_flip_is_filled_on_its_rank_only() {
    let payload = Payload { transform: Transform::Flip { rank: 1, index: 5 }, ..payload(InputClass::Natural, DType::F32, 2) };
    let region = Region::new("input", 0, 64);
    assert!(payload.fill(1, region.clone(), 16).to_string().ends_with("2, 3, 4, 5u64)"));
    assert!(payload.fill(0, region, 16).to_string().ends_with("2, 3, 0, 0u64)"));
}
