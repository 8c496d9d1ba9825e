//! One line a sentence of the ISA, or a reading of it.

use rstest::rstest;

use super::{
    super::format::{Rest, shift_right},
    *,
};

const SAT: Mode = Mode { sat: true, ..Mode::NEAREST };
const RELU: Mode = Mode { relu: true, ..Mode::NEAREST };
const SATFINITE: Mode = Mode { satfinite: true, ..Mode::NEAREST };
const FTZ: Mode = Mode::NEAREST.with_ftz();

#[rstest]
#[case::nan_is_zero(0x7fc0_0001, 0)]
#[case::negative_is_zero(0xbf80_0000, 0)]
#[case::negative_zero_is_zero(0x8000_0000, 0)]
#[case::above_one_is_one(0x7f80_0000, 0x3f80_0000)]
#[case::between_stays(0x3f00_0000, 0x3f00_0000)]
fn sat_clamps_to_zero_and_one(#[case] a: u32, #[case] result: u32) {
    assert_eq!(F32::add(a, 0x8000_0000, SAT), result);
    assert_eq!(float_to_float::<F32, F32>(a, SAT), result);
}

#[rstest]
#[case::inputs(0x0000_0001, 0x3f80_0000, 0)]
#[case::inputs_keep_their_sign(0x8000_0001, 0x3f80_0000, 0x8000_0000)]
#[case::results(0x0080_0000, 0x3f00_0000, 0)]
#[case::results_keep_their_sign(0x8080_0000, 0x3f00_0000, 0x8000_0000)]
#[case::normal_results_stay(0x0080_0000, 0x3f80_0000, 0x0080_0000)]
fn ftz_flushes(#[case] a: u32, #[case] b: u32, #[case] product: u32) {
    assert_eq!(F32::mul(a, b, FTZ), product);
    assert_eq!(F32::fma(a, b, 0x8000_0000, FTZ) & 0x7fff_ffff, product & 0x7fff_ffff);
}

#[test]
fn ftz_reaches_every_operation() {
    let subnormal = 0x8000_0001;
    assert_eq!(F32::min(subnormal, 0, false, FTZ), 0x8000_0000);
    assert_eq!(F32::neg(subnormal, FTZ), 0);
    assert_eq!(F32::abs(subnormal, FTZ), 0);
    assert!(compare::<F32>(Comparison::Eq, subnormal, 0, FTZ) && !compare::<F32>(Comparison::Eq, subnormal, 0, Mode::NEAREST));
    assert_eq!(F32::rcp(subnormal, FTZ), 0xff80_0000);
    assert_eq!(F32::sqrt(1, FTZ), 0);
    assert_eq!(F16::add(0x0001, 0x0001, FTZ), 0);
    assert_eq!(approximate(Approximation::Rsqrt, 1, FTZ), 0x7f80_0000);
    assert_eq!(approximate(Approximation::Ex2, (-127f32).to_bits(), FTZ), 0);
}

#[test]
fn ftz_of_conversions_is_for_f32_alone() {
    assert_eq!(float_to_float::<F32, F64>(0x8000_0001, FTZ), 0x8000_0000_0000_0000);
    assert_eq!(float_to_float::<F64, F32>(f64::from_bits(0x3800_0000_0000_0000).to_bits(), FTZ), 0, "2^-127 is subnormal in f32");
    assert_eq!(float_to_float::<F16, F32>(0x0001, FTZ), 0x3380_0000, "an f16 subnormal is none in f32");
    assert_eq!(float_to_float::<F32, F16>(0x3380_0000, FTZ), 0x0001);
    let down = Mode::rounded(Rounding::Down).with_ftz();
    assert_eq!(float_to_float::<F32, F16>(0x8000_0001, down), 0x8001, "no operand of a conversion to f16 is flushed");
    assert_eq!(float_to_float::<F32, Bf16>(0x8000_0001, down), 0x8000);
    let up = Mode::rounded(Rounding::Up);
    assert_eq!(float_to_integer::<F32>(1, Integer::S32, up), 1);
    assert_eq!(float_to_integer::<F32>(1, Integer::S32, up.with_ftz()), 0);
    assert_eq!(round_to_integral::<F32>(1, up), 0x3f80_0000);
    assert_eq!(round_to_integral::<F32>(1, up.with_ftz()), 0);
}

#[rstest]
#[case::f32_to_s32(Integer::S32, 0, 1 << 31)]
#[case::f32_to_u32(Integer::U32, 0, 1 << 31)]
#[case::f32_to_s16(Integer::S16, 0, 1 << 15)]
#[case::f32_to_s64(Integer::S64, 1 << 63, 1 << 63)]
#[case::f32_to_u64(Integer::U64, 1 << 63, 1 << 63)]
fn nan_to_integers(#[case] to: Integer, #[case] from_f32: u64, #[case] from_f64: u64) {
    for nan in [0x7fc0_0000, 0xffff_ffff, 0x7f80_0001] {
        assert_eq!(float_to_integer::<F32>(nan, to, Mode::NEAREST), from_f32);
    }
    assert_eq!(float_to_integer::<F16>(0x7e00, to, Mode::NEAREST), from_f32);
    assert_eq!(float_to_integer::<Bf16>(0x7fc0, to, Mode::NEAREST), from_f32);
    assert_eq!(float_to_integer::<F64>(0x7ff8_0000_0000_0000, to, Mode::NEAREST), from_f64);
}

#[test]
fn nan_results_are_canonical() {
    assert_eq!(F32::add(0xffc1_2345, 0x3f80_0000, Mode::NEAREST), 0x7fff_ffff);
    assert_eq!(F32::sub(0x7f80_0000, 0x7f80_0000, Mode::NEAREST), 0x7fff_ffff, "infinity less infinity");
    assert_eq!(F32::mul(0, 0xff80_0000, Mode::rounded(Rounding::Down)), 0x7fff_ffff);
    assert_eq!(F32::div(0, 0, Mode::NEAREST), 0x7fff_ffff);
    assert_eq!(F32::sqrt(0xbf80_0000, Mode::NEAREST), 0x7fff_ffff);
    assert_eq!(F32::neg(0x7fc0_0000, Mode::NEAREST), 0x7fff_ffff);
    assert_eq!(F32::abs(0xffc0_0000, Mode::NEAREST), 0x7fff_ffff);
    assert_eq!(F16::mul(0xfe01, 0x3c00, Mode::NEAREST), 0x7fff);
    assert_eq!(Bf16::fma(0x7f80, 0, 0, Mode::NEAREST), 0x7fff);
    assert_eq!(f32_to_f16(0xff80_0001), 0x7fff);
    assert_eq!(f32_to_bf16(0xff80_0001), 0x7fff);
}

const ONE: u64 = 0x3ff0_0000_0000_0000;
/// Signalling, with the lowest bit as payload.
const SIGNALLING: u64 = 0x7ff0_0000_0000_0001;
const QUIETED: u64 = 0x7ff8_0000_0000_0001;
const OTHER: u64 = 0xfff8_0000_0000_1234;

#[test]
fn nan_operands_go_through_arithmetic_in_f64() {
    for rounding in Rounding::ALL {
        let mode = Mode::rounded(rounding);
        assert_eq!(F64::add(SIGNALLING, 0, mode), QUIETED);
        assert_eq!(F64::sub(SIGNALLING, OTHER, mode), OTHER, "the last, with its own sign");
        assert_eq!(F64::mul(0, 0x7ff0_0000_0000_0000, mode), 0xfff8_0000_0000_0000, "none to go through");
        assert_eq!(F64::mul(OTHER, SIGNALLING, mode), QUIETED);
        assert_eq!(F64::div(OTHER, SIGNALLING, mode), OTHER, "the first");
        assert_eq!(F64::div(0, 0, mode), 0xfff8_0000_0000_0000);
        assert_eq!(F64::fma(OTHER, ONE, SIGNALLING, mode), QUIETED);
        assert_eq!(F64::fma(SIGNALLING, OTHER, SIGNALLING, mode), OTHER);
        assert_eq!(F64::rcp(SIGNALLING, mode), QUIETED);
        assert_eq!(F64::sqrt(SIGNALLING, mode), QUIETED);
        assert_eq!(F64::sqrt(ONE | 1 << 63, mode), 0xfff8_0000_0000_0000);
    }
    assert_eq!(F64::neg(SIGNALLING, Mode::NEAREST), QUIETED, "the sign stays");
    assert_eq!(F64::abs(OTHER, Mode::NEAREST), OTHER, "the sign stays");
    assert_eq!(F64::min(SIGNALLING, SIGNALLING, false, Mode::NEAREST), QUIETED);
    assert_eq!(F64::max(SIGNALLING, ONE, false, Mode::NEAREST), ONE);
}

#[test]
fn conversions_of_nan_from_and_to_f64_keep_what_fits() {
    assert_eq!(float_to_float::<F64, F16>(SIGNALLING, Mode::NEAREST), 0x7e00);
    assert_eq!(float_to_float::<F64, Bf16>(SIGNALLING, Mode::NEAREST), 0x7fc0);
    assert_eq!(float_to_float::<F64, F32>(SIGNALLING, FTZ), 0x7fc0_0000);
    assert_eq!(float_to_float::<F64, F32>(0xfff0_0000_2000_0000, Mode::NEAREST), 0xffc0_0001);
    assert_eq!(float_to_float::<F64, F32>(SIGNALLING, SAT), 0);
    assert_eq!(float_to_float::<F64, F64>(SIGNALLING, Mode::NEAREST), SIGNALLING, "a move");
    assert_eq!(round_to_integral::<F64>(SIGNALLING, Mode::NEAREST), QUIETED);
    assert_eq!(round_to_integral::<F64>(SIGNALLING, SAT), 0);
    assert_eq!(float_to_float::<F16, F64>(0x7c01, Mode::NEAREST), 0x7ff8_0400_0000_0000);
    assert_eq!(float_to_float::<Bf16, F64>(0x7f81, Mode::NEAREST), 0x7ff8_2000_0000_0000);
    assert_eq!(float_to_float::<F32, F64>(0x7f80_0001, Mode::NEAREST), 0x7ff8_0000_2000_0000);
    assert_eq!(float_to_float::<F32, F64>(0x7f80_0001, FTZ), 0x7fff_ffff_e000_0000, "canonical in f32 first");
}

#[test]
fn conversions_of_nan_that_are_moves_keep_it() {
    assert_eq!(float_to_float::<Bf16, F32>(0xffc1, Mode::NEAREST), 0xffc1_0000, "a shift");
    assert_eq!(float_to_float::<Bf16, F32>(0x7f81, FTZ), 0x7fff_ffff);
    assert_eq!(float_to_float::<Bf16, F32>(0xffc1, SAT), 0);
    assert_eq!(float_to_float::<F32, F32>(0x7f80_0001, Mode::NEAREST), 0x7f80_0001);
    assert_eq!(float_to_float::<F32, F32>(0x7f80_0001, FTZ), 0x7fff_ffff);
}

/// What is tiny when rounded to full precision is flushed, though the subnormals' rounding would raise it to the smallest normal number.
#[rstest]
#[case::nearest(Rounding::Nearest, 0x3f7f_ffff, 0x0080_0000, 0)]
#[case::down(Rounding::Down, 0xbf7f_ffff, 0x0080_0000, 0x8000_0000)]
#[case::up(Rounding::Up, 0x3f7f_ffff, 0x0080_0000, 0)]
#[case::nearer_than_full_precision_can_say(Rounding::Nearest, 0x3f7f_fffe, 0x0080_0001, 0x0080_0000)]
fn ftz_of_products_raised_to_the_smallest_normal(#[case] rounding: Rounding, #[case] a: u32, #[case] b: u32, #[case] product: u32) {
    let mode = Mode::rounded(rounding);
    assert_eq!(F32::mul(a, b, mode.with_ftz()), product);
    assert_eq!(F32::mul(a, b, mode), 0x0080_0000 | (a ^ b) & 0x8000_0000);
    assert_eq!(F32::fma(a, b, (a ^ b) & 0x8000_0000, mode.with_ftz()), product);
}

#[test]
fn ftz_of_other_results_raised_to_the_smallest_normal() {
    let directed = |rounding| Mode::rounded(rounding).with_ftz();
    assert_eq!(F32::fma(0x3f7f_ffff, 0x8080_0000, 0x807f_ffff, directed(Rounding::Down)), 0x8000_0000);
    assert_eq!(F32::div(0x3fff_ffff, 0xff00_0000, FTZ), 0x8000_0000);
    assert_eq!(F32::div(0x8080_0000, 0x3f80_0001, directed(Rounding::Down)), 0x8000_0000);
    assert_eq!(F32::div(0x0080_0000, 0x3f80_0001, directed(Rounding::Up)), 0);
    assert_eq!(F16::mul(0x3bff, 0x0400, FTZ), 0);
    assert_eq!(F16::mul(0x3bff, 0x0400, Mode { sat: true, ..FTZ }), 0);
    assert_eq!(F16::fma(0x3bff, 0x0400, 0x8001, FTZ), 0);
    assert_eq!(F16::fma(0x8400, 0xbbff, 0x8002, Mode { sat: true, ..FTZ }), 0);
    assert_eq!(F16::fma(0x0400, 0x3bff, 0x83ff, Mode { relu: true, ..FTZ }), 0);
    // Nearer to it than half a unit of full precision: not tiny.
    assert_eq!(F16::fma(0x8400, 0x0400, 0x0400, FTZ), 0x0400);
    // A sum that is the smallest normal number exactly.
    assert_eq!(F32::add(0x0100_0000, 0x8080_0000, FTZ), 0x0080_0000);
    assert_eq!(F32::fma(0x4000_0000, 0x0080_0000, 0x8080_0000, FTZ), 0x0080_0000);
    // From 2^-126 - 2^-150, and from nearer.
    assert_eq!(float_to_float::<F64, F32>(0x380f_ffff_e000_0000, FTZ), 0);
    assert_eq!(float_to_float::<F64, F32>(0x380f_ffff_f800_0000, FTZ), 0x0080_0000);
}

/// If this fails, conversions flush what nobody asked them to: nothing but `.ftz` does, and in f32 alone.
#[test]
fn conversions_without_ftz_keep_the_smallest_normal() {
    assert_eq!(float_to_float::<F64, F32>(0x380f_ffff_e000_0000, Mode::NEAREST), 0x0080_0000);
    // From 2^-14 - 2^-38.
    assert_eq!(float_to_float::<F32, F16>(0x387f_ffff, Mode::NEAREST), 0x0400);
    assert_eq!(float_to_float::<F32, F16>(0x387f_ffff, FTZ), 0x0400);
}

/// A shift may drop all of a number, whose rest is then less than half a unit, or nothing.
#[rstest]
#[case::half(0b110, 2, false, (1, Rest::Half))]
#[case::more_than_half(0b110, 2, true, (1, Rest::AboveHalf))]
#[case::less_than_half(0b100, 2, true, (1, Rest::BelowHalf))]
#[case::nothing(0b100, 2, false, (1, Rest::None))]
#[case::all_of_it(u128::MAX, 129, false, (0, Rest::BelowHalf))]
#[case::zero(0, 128, false, (0, Rest::None))]
#[case::what_was_below_zero(0, 128, true, (0, Rest::BelowHalf))]
fn shifts_tell_what_they_drop(#[case] value: u128, #[case] shift: u32, #[case] sticky: bool, #[case] expected: (u128, Rest)) {
    assert_eq!(shift_right(value, shift, sticky), expected);
}

#[test]
fn relu_and_satfinite() {
    assert_eq!(F16::fma(0xbc00, 0x3c00, 0, RELU), 0, "-1 * 1 + 0");
    assert_eq!(F16::fma(0x7e00, 0x3c00, 0, RELU), 0x7fff);
    assert_eq!(float_to_float::<F32, Bf16>(0x8000_0000, RELU), 0);
    assert_eq!(float_to_float::<F32, F16>(0x7f80_0000, SATFINITE), 0x7bff);
    assert_eq!(float_to_float::<F32, F16>(0xc780_0000, SATFINITE), 0xfbff, "-65536");
    assert_eq!(float_to_float::<F32, Bf16>(0xff80_0000, SATFINITE), 0xff7f);
    assert_eq!(float_to_float::<F32, F16>(0x7fc0_0000, SATFINITE), 0x7fff);
    assert_eq!(f32x2_to_fp8x2(0xff80_0000, 0xff80_0000, Fp8::E4m3, true), 0);
    assert_eq!(fp8x2_to_f16x2(0xfc81, Fp8::E5m2, true), 0, "-infinity and a negative subnormal");
}

#[rstest]
#[case::e4m3_nan(Fp8::E4m3, 0xffc0_0000, 0x7f)]
#[case::e5m2_nan(Fp8::E5m2, 0x7f80_0001, 0x7f)]
#[case::e4m3_infinity(Fp8::E4m3, 0x7f80_0000, 0x7e)]
#[case::e5m2_infinity(Fp8::E5m2, 0xff80_0000, 0xfb)]
#[case::e4m3_above(Fp8::E4m3, 0x43e8_0000, 0x7e)]
#[case::e5m2_above(Fp8::E5m2, 0x4780_0000, 0x7b)]
#[case::e4m3_smallest(Fp8::E4m3, 0x3b00_0000, 0x01)]
#[case::e4m3_tie_to_zero(Fp8::E4m3, 0xba80_0000, 0x80)]
fn eight_bit_special_cases(#[case] to: Fp8, #[case] a: u32, #[case] result: u16) {
    assert_eq!(f32x2_to_fp8x2(0, a, to, false), result);
}

#[rstest]
#[case::rcp_zero(Approximation::Rcp, 0x8000_0000, 0xff80_0000)]
#[case::rsqrt_negative_zero(Approximation::Rsqrt, 0x8000_0000, 0xff80_0000)]
#[case::rsqrt_negative(Approximation::Rsqrt, 0xbf80_0000, 0x7fff_ffff)]
#[case::rsqrt_infinity(Approximation::Rsqrt, 0x7f80_0000, 0)]
#[case::sqrt_negative_zero(Approximation::Sqrt, 0x8000_0000, 0x8000_0000)]
#[case::ex2_of_minus_infinity(Approximation::Ex2, 0xff80_0000, 0)]
#[case::ex2_of_infinity(Approximation::Ex2, 0x7f80_0000, 0x7f80_0000)]
#[case::ex2_of_zero(Approximation::Ex2, 0x8000_0000, 0x3f80_0000)]
#[case::ex2_smallest(Approximation::Ex2, 0xc315_0000, 1)]
#[case::lg2_of_zero(Approximation::Lg2, 0x8000_0000, 0xff80_0000)]
#[case::lg2_of_one(Approximation::Lg2, 0x3f80_0000, 0)]
#[case::lg2_negative(Approximation::Lg2, 0xbf80_0000, 0x7fff_ffff)]
#[case::lg2_of_the_smallest(Approximation::Lg2, 1, 0xc315_0000)]
fn approximation_special_cases(#[case] function: Approximation, #[case] a: u32, #[case] result: u32) {
    assert_eq!(approximate(function, a, Mode::NEAREST), result);
}

/// Results beside the exact one rounded to nearest, of which the ISA allows some: what nearest may have of its own rounding counts besides.
#[rstest]
#[case::two_ulp(Bound::Ulps(2), 0, 0x3f80_0000, &[(0x3f80_0002, true), (0x3f7f_fffe, true), (0x3f80_0003, false)])]
#[case::other_sign(Bound::Ulps(2), 0, 1, &[(0x8000_0000, false), (0, true)])]
// 2^-22.9 of 1.4 is one and a half of its units.
#[case::relative(Approximation::Rsqrt.bound(), 0x3f02_9cbc, 0x3fb3_3333, &[(0x3fb3_3335, true), (0x3fb3_3331, true), (0x3fb3_3336, false)])]
#[case::exact_infinity(Approximation::Sqrt.bound(), 0x7f80_0000, 0x7f80_0000, &[(0x7f80_0000, true), (0x7f7f_ffff, false)])]
#[case::exact_zero(Approximation::Sqrt.bound(), 0, 0, &[(0, true), (1, false)])]
#[case::nan(Bound::Ulps(2), 0, 0x7fff_ffff, &[(0x7fff_ffff, false), (0x7fff_fffe, false)])]
#[case::nan_for_a_number(Bound::Ulps(2), 0, 0x7f80_0000, &[(0x7f80_0001, false)])]
// From 0.5 to 2 the error is absolute, 2^-22: four units of the logarithm of 1.5.
#[case::logarithm_of_1_5(Bound::Logarithm, 0x3fc0_0000, 0x3f15_c01a, &[(0x3f15_c01e, true), (0x3f15_c01f, false)])]
#[case::logarithm_of_2(Bound::Logarithm, 0x4000_0000, 0x3f80_0000, &[(0x3f80_0002, true), (0x3f80_0003, false)])]
#[case::logarithm_of_4(Bound::Logarithm, 0x4080_0000, 0x4000_0000, &[(0x4000_0002, true), (0x4000_0003, false)])]
#[case::logarithm_of_a_quarter(Bound::Logarithm, 0x3e80_0000, 0xc000_0000, &[(0xc000_0002, true), (0xc000_0003, false)])]
#[case::quotient(Bound::Quotient, 0x7e80_0000, 0x3f80_0000, &[(0x3f80_0002, true), (0x3f80_0003, false)])]
#[case::quotient_by_more(Bound::Quotient, 0xfe80_0001, 0, &[(0, true), (1, false)])]
fn bounds_are_those_of_the_isa(#[case] bound: Bound, #[case] last: u32, #[case] nearest: u32, #[case] results: &[(u32, bool)]) {
    for &(got, holds) in results {
        assert_eq!(bound.holds(last, nearest, got), holds, "{got:#x}");
    }
}

/// Of `div.approx` by divisors below 2^-126 the ISA says nothing.
#[test]
fn quotients_by_subnormals_are_anything() {
    let divisors = [0, 1, 0x007f_ffff, 0x807f_ffff, 0x0080_0000, 0x8080_0000];
    assert_eq!(divisors.map(|divisor| Bound::DIVIDE_APPROXIMATELY.says_nothing(divisor)), [false, true, true, true, false, false]);
    assert!(!Bound::DIVIDE_FULL_RANGE.says_nothing(1));
}

#[test]
fn directed_sums_that_cancel_have_the_zero_of_their_rounding() {
    assert_eq!(F32::add(0x3f80_0000, 0xbf80_0000, Mode::NEAREST), 0);
    assert_eq!(F32::add(0x3f80_0000, 0xbf80_0000, Mode::rounded(Rounding::Down)), 0x8000_0000);
}

#[test]
fn packed_operations_work_on_both_halves() {
    assert_eq!(lanes(0x3c00_4000, 0x3c00_3c00, |a, b| F16::add(a, b, Mode::NEAREST)), 0x4000_4200);
    assert_eq!(lanes_of_one(0x3f80_bf80, |a| Bf16::neg(a, Mode::NEAREST)), 0xbf80_3f80);
    assert_eq!(lanes_of_three(0x3f80_4000, 0x4000_4000, 0x3f80_0000, |a, b, c| Bf16::fma(a, b, c, Mode::NEAREST)), 0x4040_4080);
}
