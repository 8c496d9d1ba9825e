use proptest::prelude::*;

use super::super::{
    format::Parts,
    tensor_core::{Element, Elements, MOST_DEPTH, Rule, Sum, Unit, multiply},
};
use super::*;
use crate::choice::Choice;

/// One sum of products of f32 values that the types have exactly, by a rule.
fn sum(rule: &Rule, [of_a, of_b]: [Format; 2], products: &[(f32, f32)], c: u32) -> u32 {
    let narrowed = |format: Format, value: f32| {
        let bits = if format == Format::F32 {
            value.to_bits().into()
        } else {
            format.round(value < 0.0, significand(value), exponent(value), false, Rounding::Nearest)
        };
        bits as u32
    };
    let (mut a, mut b) = ([0; MOST_DEPTH], [0; MOST_DEPTH]);
    for (k, &(first, second)) in products.iter().enumerate() {
        (a[k], b[k]) = (narrowed(of_a, first), narrowed(of_b, second));
    }
    let mut sums = [c];
    multiply(rule, products.len(), [&[a], &[b]], [false; 2], &mut sums);
    sums[0]
}

fn significand(value: f32) -> u128 {
    if value == 0.0 { 0 } else { u128::from(value.to_bits() & 0x7f_ffff | 0x80_0000) }
}

fn exponent(value: f32) -> i32 {
    (value.to_bits() >> 23 & 0xff) as i32 - 150
}

fn halves(unit: Unit, kind: Sum) -> Rule {
    Rule::of(unit, Element::F16, Element::F16, kind)
}

/// Products of ones and powers of two, in half precision to single.
fn of_powers(products: &[i32], c: f32) -> f32 {
    let products: Vec<(f32, f32)> = products.iter().map(|&power| (2.0_f32.powi(power / 2), 2.0_f32.powi(power - power / 2))).collect();
    f32::from_bits(sum(&halves(Unit::Warpgroup, Sum::F32), [Format::F16; 2], &products, c.to_bits()))
}

/// If one of these fails, a constant of the model is another one: how wide terms are, how they and results are cut, and that all of a block are added at once.
#[test]
fn terms_have_25_bits_and_are_cut() {
    let unit = 2.0_f32.powi(-23);
    assert_eq!(of_powers(&[0, -24, -24], 0.0), 1.0 + unit);
    assert_eq!(of_powers(&[0, -25, -25, -25, -25], 0.0), 1.0 + unit);
    assert_eq!(of_powers(&[0, -26, -26, -26, -26, -26, -26, -26, -26], 0.0), 1.0, "they are cut one by one");
    assert_eq!(of_powers(&[0, -25, -25, -25], 0.0), 1.0, "the result is cut, not rounded");
    assert_eq!(of_powers(&[-26, -26, 0], 0.0), 1.0, "no order is among them");
    // Towards zero, of negative terms too.
    assert_eq!(of_powers(&[-26], -1.0), -1.0);
    assert_eq!(of_powers(&[-25], -1.0), -(1.0 - unit / 2.0));
    assert_eq!(of_powers(&[-24, -24], -1.0), -(1.0 - unit));
}

/// The largest exponent is that of factors: a product that carries makes no term narrower.
#[test]
fn exponents_are_those_of_factors() {
    let rule = halves(Unit::Warp, Sum::F32);
    // The first product, the sum that cancels it, and what is left of a second one of 2^-25.
    let of = |first: (f32, f32), c: f32| {
        let products = [first, (2.0_f32.powi(-12), 2.0_f32.powi(-13))];
        f32::from_bits(sum(&rule, [Format::F16; 2], &products, c.to_bits()))
    };
    assert_eq!(of((1.5, 1.25), -1.875), 2.0_f32.powi(-25));
    assert_eq!(of((1.5, 1.5), -2.0), 0.25, "the sum has exponent 1");
    assert_eq!(of((1.5, 1.5), -1.25), 1.0, "cut from the result alone");
}

#[test]
fn fp8_of_warpgroups_is_narrow() {
    let of = |unit: Unit, c: f32, small: f32| {
        let rule = Rule::of(unit, Element::E5m2, Element::E4m3, Sum::F32);
        f32::from_bits(sum(&rule, [Format::E5M2, Format::E4M3], &[(1.0, 1.0), (small, 2.0_f32.powi(-6))], c.to_bits()))
    };
    assert_eq!(of(Unit::Warpgroup, 0.0, 2.0_f32.powi(-7)), 1.0 + 2.0_f32.powi(-13));
    assert_eq!(of(Unit::Warpgroup, 0.0, 2.0_f32.powi(-8)), 1.0);
    assert_eq!(of(Unit::Warp, 0.0, 2.0_f32.powi(-8)), 1.0 + 2.0_f32.powi(-14));
    assert_eq!(of(Unit::Warpgroup, f32::from_bits(0x3f80_03ff), 0.0), 2.0);
}

#[test]
fn sums_in_halves_are_rounded_to_nearest() {
    let of = |small: f32| sum(&halves(Unit::Warpgroup, Sum::F16), [Format::F16; 2], &[(1.0, 1.0), (small, 2.0_f32.powi(-8))], 0);
    assert_eq!(of(2.0_f32.powi(-3)), 0x3c00, "a tie goes to even");
    assert_eq!(of(2.0_f32.powi(-3) * 1.5), 0x3c01);
    assert_eq!(sum(&halves(Unit::Warp, Sum::F16), [Format::F16; 2], &[(256.0, 255.9375), (1.0, 16.0)], 0), 0x7c00);
}

#[test]
fn what_is_no_number_and_what_is_too_large() {
    let rule = Rule::of(Unit::Warp, Element::Bf16, Element::Bf16, Sum::F32);
    let of = |a: u32, b: u32, c: u32| {
        let (mut first, mut second) = ([0x3f80; MOST_DEPTH], [0x3f80; MOST_DEPTH]);
        (first[3], second[3]) = (a, b);
        let mut sums = [c];
        multiply(&rule, 16, [&[first], &[second]], [false; 2], &mut sums);
        sums[0]
    };
    let (infinity, nan, one) = (0x7f80, 0x7fff_ffff, 0x3f80);
    assert_eq!(of(infinity, one, 0), 0x7f80_0000);
    assert_eq!(of(infinity, 0x8000 | one, 0), 0xff80_0000);
    assert_eq!(of(infinity, 0, 0), nan, "infinity times zero");
    assert_eq!(of(infinity, one, 0xff80_0000), nan, "infinities of both signs");
    assert_eq!(of(0x7fc1, one, 0), nan);
    assert_eq!(of(one, one, 0xff80_0001), nan);
    assert_eq!(of(one, one, 0xff80_0000), 0xff80_0000);
    assert_eq!(of(0x7f7f, 0x7f7f, 0), 0x7f80_0000, "past the largest");
    assert_eq!(of(0x7f7f, one, 0x7f7f_0000), 0x7f80_0000);
    // A product may be past it, if the sum is not.
    let mut sums = [0];
    let (mut first, mut second) = ([0; MOST_DEPTH], [0; MOST_DEPTH]);
    (first[0], first[1], second[0], second[1]) = (0x7f00, 0xff00, 0x7f00, 0x7f00);
    multiply(&rule, 16, [&[first], &[second]], [false; 2], &mut sums);
    assert_eq!(sums, [0]);
}

/// If this fails, a row of zeros hides an infinity or a NaN of the other factor.
#[test]
fn zeros_times_what_is_no_number_are_nan() {
    let zeros = [0; MOST_DEPTH];
    for special in [0x7c00, 0xfc00, 0x7e00] {
        let mut other = [0x3c00; MOST_DEPTH];
        other[5] = special;
        for factors in [[&[zeros], &[other]], [&[other], &[zeros]]] {
            let mut sums = [0];
            multiply(&halves(Unit::Warp, Sum::F32), 16, factors.map(|rows| &rows[..]), [false; 2], &mut sums);
            assert_eq!(sums, [0x7fff_ffff], "{special:#x}");
        }
    }
}

/// If this fails, an algorithm is blamed for what no hardware does: sums are at least of single precision.
#[test]
fn no_drawn_rule_is_less_precise_than_single() {
    let mut products = [(0.0, 0.0); 16];
    products[3] = (1.0, 2.0_f32.powi(-23));
    for seed in 0..100 {
        let rule = halves(Unit::Warp, Sum::F32).drawn(&mut Choice::of_seed(seed), 16);
        assert_eq!(sum(&rule, [Format::F16; 2], &products, 0x3f80_0000), 0x3f80_0001, "{rule:?}");
    }
}

#[test]
fn integers_are_exact_and_wrap_around_or_stop() {
    let of = |a: (Element, u32), b: (Element, u32), saturate: bool, c: i32| {
        let rule = Rule::of(Unit::Warpgroup, a.0, b.0, Sum::S32 { saturate });
        let mut sums = [c as u32];
        multiply(&rule, 32, [&[[a.1; MOST_DEPTH]], &[[b.1; MOST_DEPTH]]], [false; 2], &mut sums);
        sums[0] as i32
    };
    use Element::{S8, U8};
    assert_eq!(of((S8, 0x80), (U8, 0xff), false, 5), 32 * -128 * 255 + 5);
    assert_eq!(of((U8, 0xff), (S8, 0xff), false, 0), 32 * -255);
    assert_eq!(of((U8, 0xff), (U8, 0xff), false, i32::MAX), i32::MAX.wrapping_add(32 * 255 * 255));
    assert_eq!(of((U8, 0xff), (U8, 0xff), true, i32::MAX), i32::MAX);
    assert_eq!(of((U8, 0xff), (S8, 0x80), true, i32::MIN + 1), i32::MIN);
}

/// Tuples of the ledger as one H200 had them (driver 580.159.04), of forms that another model had wrong: a row, a column and a sum, as words of 8 bytes.
#[test]
fn what_an_h200_gave() {
    let tuples = [
        (
            "mma.sync.m16n8k32.f32.e5m2.e5m2.f32",
            "0xbcbcbd3d3c3c3d3c 0xbcbc3cbcbe3fbcbf 0x3d3c3f3f3ebc3ebc 0xbd3f3e3f3f3c3d3d 0xbcbfbd3cbf3d3fbe 0x3fbe3e3cbfbebebf 0xbfbdbebfbfbdbf3f 0x3cbf3cbcbcbcbcbd 0xbe9591f8",
            0xc16bac90,
        ),
        (
            "mma.sync.m16n8k32.f32.e5m2.e5m2.f32",
            "0x079b8caaa4072213 0x8f1814a44c1707b4 0xab908b1193108c16 0x140fab37a41caf9f 0x20241a25943396b6 0xa41017a448302282 0x132a188d8b9b2798 0x18341f2da7932b8e 0xc3000000",
            0x3ce12000,
        ),
        (
            "mma.sync.m16n8k32.f32.e5m2.e5m2.f32",
            "0xd05046c6ab2b4bcb 0xd35357d743c3d555 0xc7472dad54d4d454 0xb737a929af2f30b0 0x3e3f28283838cdcc 0xb3b3c0c1cdcdbfbf 0x2e2ed4d4b0b0c0c0 0xbcbc3e3ecfceb1b0 0x3cd749b0",
            0x41075ba5,
        ),
        (
            "mma.sync.m16n8k32.f16.e4m3.e4m3.f16",
            "0x0c0945103200cbb8 0x30b4573a9f2047a0 0x17afb84410a830c0 0xa0900f3e4717d7ac 0x2fa09857cf8b91d0 0xd1c88bc2adc50385 0xc947bd16b7431354 0x9fbecf3f884d9090 0x3950",
            0xcd76,
        ),
        (
            "mma.sync.m16n8k32.f16.e4m3.e4m3.f16",
            "0x88c0d05648800fb8 0x4c44a0a4312680b0 0xab303ca01fa0060f 0x53a0189e18298130 0x3428c8505007c08e 0x10bf3e2a02479430 0x90d0488348901422 0xd08f3b970ca81cc8 0xc9a6",
            0x5478,
        ),
        (
            "mma.sync.m16n8k32.f16.e4m3.e4m3.f16",
            "0xa518c825d7a7b050 0x0e9708b32cca88a2 0x089c00b89dbbbfac 0x4b90c1c0a88b8127 0x9f4018b540a63852 0x089c041e86a08a24 0x83aab09c07bfc0bf 0x00be8046b51a4848 0xba75",
            0x524a,
        ),
        (
            "mma.sync.m16n8k16.f16.e5m2.e4m3.f16",
            "0x3fb4bf33c1b047c5 0xc3afaf43bb3e38bb 0x202fc79938d122cf 0x1cafced020215732 0xcfff",
            0xc84a,
        ),
        (
            "mma.sync.m16n8k16.f32.e4m3.e5m2.f32",
            "0xb2329f1fbf3f2faf 0xa0209717a727c747 0x32322a2bb8b8aaaa 0xc1c0b0b0afaf2828 0xbcb4305f",
            0x3d29a7d0,
        ),
        (
            "mma.sync.m16n8k16.f32.e4m3.e5m2.f32",
            "0xbb3f383f38ba3a3f 0x3f3eb839b8b93b38 0x3e3c3f3cbc3f3e3c 0x3f3d3c3f3cbd3cbd 0x40ffffff",
            0x4197c000,
        ),
        ("mma.sync.m16n8k8.f16.f16.f16.f16", "0x00000000008c0000 0x0000000000000000 0x0000000091e60000 0x0000000000000000 0x0000", 0x0000),
    ];
    for (form, operands, expected) in tuples {
        let words: Vec<u64> = operands.split(' ').map(|word| u64::from_str_radix(&word[2..], 16).unwrap()).collect();
        let (unit, types) = match form.strip_prefix("mma.sync.") {
            Some(rest) => (Unit::Warp, rest.split('.').skip(1).collect::<Vec<_>>()),
            None => (Unit::Warpgroup, form.split('.').skip(2).collect()),
        };
        let element = |name: &str| match name {
            "e4m3" => Element::E4m3,
            "e5m2" => Element::E5m2,
            _ => Element::F16,
        };
        let rule = Rule::of(unit, element(types[1]), element(types[2]), if types[0] == "f16" { Sum::F16 } else { Sum::F32 });
        let each = (64 / element(types[1]).bits()) as usize;
        let row = |words: &[u64]| -> Elements {
            std::array::from_fn(|k| {
                words.get(k / each).map_or(0, |word| (word >> (k % each * 64 / each) & (u64::MAX >> (64 - 64 / each))) as u32)
            })
        };
        let half = words.len() / 2;
        let mut sums = [words[2 * half] as u32];
        multiply(&rule, half * each, [&[row(&words[..half])], &[row(&words[half..2 * half])]], [false; 2], &mut sums);
        assert_eq!(sums, [expected], "{form} {operands}");
    }
}

/// The value of a number of a format.
fn value(format: Format, bits: u64) -> f64 {
    match format.parts(bits) {
        Parts::Finite { negative, significand, exponent } => {
            significand as f64 * 2.0_f64.powi(exponent) * if negative { -1.0 } else { 1.0 }
        }
        _ => 0.0,
    }
}

proptest! {
    /// If this fails, the bound is none, or the model is far off.
    #[test]
    fn results_are_within_the_bound(bits in prop::array::uniform32(any::<u32>()), others in prop::array::uniform32(any::<u32>()), c in any::<u32>(), chain in 1..4_usize, drawn in any::<bool>()) {
        // Exponents near one, so that f64 has the exact sums.
        let near = |format: Format, bits: u32| {
            let fraction = u64::from(bits) & ((1 << format.fraction) - 1);
            let bias = (1_i64 << (format.exponent - 1)) - 1;
            u64::from(bits >> 31) << (format.exponent + format.fraction) | ((bias - 3 + i64::from(bits >> 24 & 7)) as u64) << format.fraction | fraction
        };
        for (unit, element, format, below) in [
            (Unit::Warp, Element::F16, Format::F16, 0),
            (Unit::Warpgroup, Element::Bf16, Format::BF16, 0),
            (Unit::Warpgroup, Element::E4m3, Format::E4M3, 0),
            (Unit::Warp, Element::E5m2, Format::E5M2, 0),
        ] {
            let hopper = Rule::of(unit, element, element, Sum::F32);
            let depth = hopper.terms;
            let rule = if drawn { hopper.drawn(&mut Choice::of_seed(c.into()), depth) } else { hopper };
            let row = |bits: &[u32; 32]| -> Elements { bits.map(|bits| (near(format, bits) << below) as u32) };
            let (a, b) = (row(&bits), row(&others));
            let start = near(Format::F32, c);
            let mut sums = [start as u32];
            let mut exact = value(Format::F32, start);
            let mut magnitudes = exact.abs();
            for _ in 0..chain {
                multiply(&rule, depth, [&[a], &[b]], [false; 2], &mut sums);
                for k in 0..depth {
                    let product = value(format, a[k].into()) * value(format, b[k].into());
                    exact += product;
                    magnitudes += product.abs();
                }
            }
            let found = f64::from(f32::from_bits(sums[0]));
            let bound = rule.bound(chain * depth, magnitudes);
            prop_assert!((found - exact).abs() <= bound, "{element:?}: {found} for {exact}, more than {bound} away");
        }
    }
}
