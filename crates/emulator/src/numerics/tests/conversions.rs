use half::{bf16, f16};
use proptest::prelude::*;
use rustc_apfloat::{FloatConvert, ieee};

use super::{super::float::apfloat_round, *};

/// Conversions of one number to one format and to every integer type.
fn agree<F: Float, A: Oracle + FloatConvert<B>, G: Float, B: Oracle>(bits: u64) {
    let x = exact::<A>(bits);
    for rounding in Rounding::ALL {
        let (mode, round) = (Mode::rounded(rounding), apfloat_round(rounding));
        // Payloads that are kept are tested apart.
        if !x.is_nan() || (F::FORMAT != Format::BF16 && F::FORMAT != G::FORMAT && !F::PAYLOADS && !G::PAYLOADS) {
            let got = G::raise(float_to_float::<F, G>(F::lower(bits), mode));
            let want = canonical::<G, B>(x.convert_r(round, &mut false).value);
            assert_eq!(got, want, "{bits:#x} {rounding:?}: {got:#x} for {want:#x}");
        }
        let integral = without_payload::<F>(round_to_integral::<F>(F::lower(bits), mode));
        assert_eq!(integral, canonical::<F, A>(x.round_to_integral(round).value), "{bits:#x} {rounding:?} to integral");
        for to in Integer::ALL {
            let got = float_to_integer::<F>(F::lower(bits), to, mode);
            let width = to.bits as usize;
            let want = match to.signed {
                _ if x.is_nan() => continue,
                true => x.to_i128_r(width, round, &mut false).value as u64,
                false => x.to_u128_r(width, round, &mut false).value as u64,
            };
            assert_eq!(got, want & (u64::MAX >> (64 - width)), "{bits:#x} {rounding:?} to {to:?}");
        }
    }
}

fn agree_everywhere<F: Float, A>(bits: u64)
where
    A: Oracle + FloatConvert<ieee::Half> + FloatConvert<ieee::BFloat> + FloatConvert<ieee::Single> + FloatConvert<ieee::Double>,
{
    agree::<F, A, F16, ieee::Half>(bits);
    agree::<F, A, Bf16, ieee::BFloat>(bits);
    agree::<F, A, F32, ieee::Single>(bits);
    agree::<F, A, F64, ieee::Double>(bits);
}

fn agree_from_integer<F: Float, A: Oracle>(value: u64) {
    for from in Integer::ALL {
        for rounding in Rounding::ALL {
            let round = apfloat_round(rounding);
            let extended = from.extend(value);
            let want: A = match from.signed {
                true => A::from_i128_r((extended as i64).into(), round).value,
                false => A::from_u128_r(extended.into(), round).value,
            };
            let got = F::raise(integer_to_float::<F>(value, from, Mode::rounded(rounding)));
            assert_eq!(got, want.to_bits() as u64, "{value:#x} from {from:?} {rounding:?}");
        }
    }
}

#[test]
fn conversions_agree_with_apfloat_on_the_lattice() {
    lattice(Format::F16).into_iter().for_each(agree_everywhere::<F16, ieee::Half>);
    lattice(Format::BF16).into_iter().for_each(agree_everywhere::<Bf16, ieee::BFloat>);
    lattice(Format::F32).into_iter().for_each(agree_everywhere::<F32, ieee::Single>);
    lattice(Format::F64).into_iter().for_each(agree_everywhere::<F64, ieee::Double>);
}

/// Numbers beside every power of two that an integer type ends at, and halves between integers.
#[test]
fn clamping_starts_exactly_at_the_ends_of_integer_types() {
    for power in [7, 8, 15, 16, 31, 32, 63, 64] {
        for value in [(power as f64).exp2(), (power as f64).exp2() - 0.5, (power as f64).exp2() - 1.0, (power as f64).exp2() + 0.5] {
            for value in [value, -value] {
                agree_everywhere::<F64, ieee::Double>(value.to_bits());
                agree_everywhere::<F32, ieee::Single>((value as f32).to_bits().into());
            }
        }
    }
}

#[test]
fn sixteen_bit_formats_agree_with_half_for_every_pattern() {
    for bits in 0..=u16::MAX {
        let (wide, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
        if !wide.is_nan() {
            assert_eq!(f16_to_f32(bits), wide.to_f32().to_bits());
            assert_eq!(f32_to_f16(f16_to_f32(bits)), bits);
        }
        if !brain.is_nan() {
            assert_eq!(bf16_to_f32(bits), brain.to_f32().to_bits());
            assert_eq!(f32_to_bf16(bf16_to_f32(bits)), bits);
        }
    }
}

#[test]
fn eight_bit_formats_agree_with_float8() {
    for bits in 0..=u8::MAX {
        for (format, value) in
            [(Fp8::E4m3, float8::F8E4M3::from_bits(bits).to_f32()), (Fp8::E5m2, float8::F8E5M2::from_bits(bits).to_f32())]
        {
            let half = fp8x2_to_f16x2(u16::from(bits) << 8 | 0x38, format, false);
            let got = f32::from_bits(f16_to_f32((half >> 16) as u16));
            assert!(got.to_bits() == value.to_bits() || (got.is_nan() && value.is_nan()), "{bits:#x} {format:?}: {got} for {value}");
        }
    }
    let all_f16 = (0..=u16::MAX).map(f16_to_f32);
    for bits in all_f16.chain(lattice(Format::F32).into_iter().map(|bits| bits as u32)) {
        agree_with_float8(bits);
    }
}

fn agree_with_float8(bits: u32) {
    let value = f32::from_bits(bits);
    if value.is_nan() {
        return;
    }
    let e4m3 = f32x2_to_fp8x2(bits, 0, Fp8::E4m3, false) >> 8;
    assert_eq!(e4m3, u16::from(float8::F8E4M3::from_f32(value).to_bits()), "{value} {bits:#x} to e4m3");
    let e5m2 = f32x2_to_fp8x2(0, bits, Fp8::E5m2, false);
    assert_eq!(e5m2, u16::from(float8::F8E5M2::from_f32(value).to_bits()), "{value} {bits:#x} to e5m2");
}

#[test]
fn packed_conversions_put_the_first_operand_in_the_upper_half() {
    let (one, two) = (1f32.to_bits(), 2f32.to_bits());
    assert_eq!(f32x2_to_f16x2(one, two, Mode::NEAREST), 0x3c00_4000);
    assert_eq!(f32x2_to_bf16x2(one, two, Mode::NEAREST), 0x3f80_4000);
    assert_eq!(f32x2_to_fp8x2(one, two, Fp8::E4m3, false), 0x3840);
    assert_eq!(f16x2_to_fp8x2(0x3c00_4000, Fp8::E5m2, false), 0x3c40);
    assert_eq!(fp8x2_to_f16x2(0x3840, Fp8::E4m3, false), 0x3c00_4000);
}

/// All of e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6, and the same below zero.
#[test]
fn four_bit_numbers_widen_in_both_places() {
    let magnitudes = [0x0000, 0x3800, 0x3c00, 0x3e00, 0x4000, 0x4200, 0x4400, 0x4600_u32];
    for (bits, half) in (0_u8..).zip(magnitudes.into_iter().chain(magnitudes.map(|half| half | 0x8000))) {
        assert_eq!(fp4x2_to_f16x2(bits | 0x20, false), 0x3c00 << 16 | half);
        assert_eq!(fp4x2_to_f16x2(bits << 4 | 0x7, false), half << 16 | 0x4600);
        assert_eq!(fp4x2_to_f16x2(bits, true), if bits < 8 { half } else { 0 });
    }
}

/// Approximations are the f64 result rounded, unless that is so close to a tie that f64 cannot tell.
fn agree_approximation(function: Approximation, bits: u32) {
    let x = f64::from(f32::from_bits(bits));
    let value = match function {
        Approximation::Rcp => 1.0 / x,
        Approximation::Rsqrt => 1.0 / x.sqrt(),
        Approximation::Sqrt => x.sqrt(),
        Approximation::Ex2 => x.exp2(),
        Approximation::Lg2 => x.log2(),
    };
    let got = f32::from_bits(approximate(function, bits, Mode::NEAREST));
    if value.is_nan() {
        assert_eq!(got.to_bits(), F32::NAN, "{function:?} of {x:e}");
    } else {
        let [one, other] = [1.0 - 1e-14, 1.0 + 1e-14].map(|side| (value * side) as f32);
        let near = got.to_bits() == one.to_bits() || got.to_bits() == other.to_bits();
        assert!(near, "{function:?} of {x:e} ({bits:#x}): {got:e} for {value:e}");
    }
}

const APPROXIMATIONS: [Approximation; 5] =
    [Approximation::Rcp, Approximation::Rsqrt, Approximation::Sqrt, Approximation::Ex2, Approximation::Lg2];

#[test]
fn approximations_are_rounded_right_on_the_lattice_and_along_the_line() {
    let line = (0..u32::MAX / 65_521).map(|i| i * 65_521);
    let around_one = (0x3f7f_ff00..0x3f80_0100).chain(0xc2fc_0000..0xc2fc_0100).chain((0..600).map(|i| (i as f32 / 2.0 - 150.0).to_bits()));
    for bits in lattice(Format::F32).into_iter().map(|bits| bits as u32).chain(line).chain(around_one) {
        APPROXIMATIONS.iter().for_each(|&function| agree_approximation(function, bits));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn random_bits_convert_as_in_apfloat(bits: u64, shift in 0u32..64) {
        agree_everywhere::<F64, ieee::Double>(bits);
        agree_everywhere::<F32, ieee::Single>(bits >> 32);
        agree_everywhere::<F16, ieee::Half>(bits >> 48);
        agree_everywhere::<Bf16, ieee::BFloat>(bits >> 48);
        // Numbers of the size of integers, which random bits hardly ever are.
        agree_everywhere::<F64, ieee::Double>(((bits as i64 >> shift) as f64 / 8.0).to_bits());
        agree_everywhere::<F32, ieee::Single>(((bits as i64 >> shift) as f32 / 8.0).to_bits().into());
        agree_from_integer::<F16, ieee::Half>(bits >> shift);
        agree_from_integer::<Bf16, ieee::BFloat>(bits >> shift);
        agree_from_integer::<F32, ieee::Single>(bits >> shift);
        agree_from_integer::<F64, ieee::Double>(bits >> shift);
    }

    #[test]
    fn random_bits_narrow_as_in_half_and_float8(bits: u32) {
        let value = f32::from_bits(bits);
        prop_assume!(!value.is_nan());
        prop_assert_eq!(f32_to_f16(bits), f16::from_f32(value).to_bits());
        prop_assert_eq!(f32_to_bf16(bits), bf16::from_f32(value).to_bits());
        agree_with_float8(bits);
        agree_with_float8(bits & 0x83ff_ffff | 0x3800_0000);
    }

    #[test]
    fn integers_clamp_or_wrap(value: u64) {
        for from in Integer::ALL {
            let number = if from.signed { i128::from(from.extend(value) as i64) } else { from.extend(value).into() };
            for to in Integer::ALL {
                let largest = (1i128 << (to.bits - u32::from(to.signed))) - 1;
                let smallest = if to.signed { -largest - 1 } else { 0 };
                let mask = u64::MAX >> (64 - to.bits);
                prop_assert_eq!(integer_to_integer(value, from, to, true), number.clamp(smallest, largest) as u64 & mask);
                prop_assert_eq!(integer_to_integer(value, from, to, false), number as u64 & mask);
            }
        }
    }
}
