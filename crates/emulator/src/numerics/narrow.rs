//! The conversions that kernels do most: f16 and bf16 to f32 and back, packed pairs, and the 8-bit formats (PTX ISA cvt).

use super::{
    convert::float_to_float,
    float::{Bf16, F16, F32, Float, Mode},
    format::{Format, Parts, Rounding},
};

/// `cvt.f32.f16`: exact; NaN is canonical.
#[inline(always)]
pub fn f16_to_f32(bits: u16) -> u32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7fff);
    match magnitude {
        // A subnormal is a multiple of 2^-24, which f32 holds exactly.
        0..0x400 => sign | (magnitude as f32 * f32::from_bits(0x3380_0000)).to_bits(),
        0x400..0x7c00 => sign | ((magnitude << 13) + 0x3800_0000),
        0x7c00 => sign | 0x7f80_0000,
        _ => F32::NAN,
    }
}

/// `cvt.f32.bf16`: exact, and for NaN too nothing but a shift.
#[inline(always)]
pub fn bf16_to_f32(bits: u16) -> u32 {
    u32::from(bits) << 16
}

/// `cvt.rn.f16.f32`.
#[inline(always)]
pub fn f32_to_f16(bits: u32) -> u16 {
    let sign = (bits >> 16) as u16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    match magnitude {
        // Below the normal numbers: adding one half puts the place of 2^-24 last, and the host rounds to it.
        0..0x3880_0000 => sign | ((f32::from_bits(magnitude) + 0.5).to_bits() - 0x3f00_0000) as u16,
        0x3880_0000..0x4780_0000 => sign | ((magnitude - 0x3800_0000 + 0xfff + ((magnitude >> 13) & 1)) >> 13) as u16,
        0x4780_0000..=0x7f80_0000 => sign | 0x7c00,
        _ => F16::NAN,
    }
}

/// `cvt.rn.bf16.f32`.
#[inline(always)]
pub fn f32_to_bf16(bits: u32) -> u16 {
    if F32::is_nan(bits) { Bf16::NAN } else { ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16 }
}

/// A number of 8 bits of exponent and 10 of fraction in the upper bits of a word, the nearest one, as copies of boxes of tf32 load it (H200: also for tf32.ftz,
/// which flushes nothing; NaNs are all one).
#[inline]
pub fn f32_to_tf32(bits: u32) -> u32 {
    if F32::is_nan(bits) { 0x7fff_e000 } else { (bits + 0xfff + ((bits >> 13) & 1)) & !0x1fff }
}

/// `cvt.rn.f16x2.f32 d, a, b`: `a` in the upper half. `mode` has the rounding, `.relu`, `.satfinite`.
#[inline]
pub fn f32x2_to_f16x2(a: u32, b: u32, mode: Mode) -> u32 {
    u32::from(float_to_float::<F32, F16>(a, mode)) << 16 | u32::from(float_to_float::<F32, F16>(b, mode))
}

/// `cvt.rn.bf16x2.f32 d, a, b`: `a` in the upper half. `mode` has the rounding, `.relu`, `.satfinite`.
#[inline]
pub fn f32x2_to_bf16x2(a: u32, b: u32, mode: Mode) -> u32 {
    u32::from(float_to_float::<F32, Bf16>(a, mode)) << 16 | u32::from(float_to_float::<F32, Bf16>(b, mode))
}

/// The 8-bit formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fp8 {
    /// `.e4m3`: no infinity.
    E4m3,
    /// `.e5m2`.
    E5m2,
}

impl Fp8 {
    /// The canonical NaN of both formats.
    pub const NAN: u8 = 0x7f;

    /// What the bits mean.
    pub const fn format(self) -> Format {
        match self {
            Fp8::E4m3 => Format::E4M3,
            Fp8::E5m2 => Format::E5M2,
        }
    }

    /// Rounds to nearest even with `.satfinite`, which PTX demands.
    fn narrow<F: Float>(self, bits: F::Bits, relu: bool) -> u8 {
        let narrowed = self.rounded::<F>(bits, Rounding::Nearest);
        if relu && narrowed & 0x80 != 0 { 0 } else { narrowed }
    }

    /// Rounds in a direction; what is beyond the largest finite number becomes that.
    pub fn rounded<F: Float>(self, bits: F::Bits, rounding: Rounding) -> u8 {
        let format = self.format();
        let (negative, magnitude) = match F::FORMAT.parts(F::raise(bits)) {
            Parts::Nan => return Fp8::NAN,
            Parts::Infinite { negative } => (negative, format.largest()),
            Parts::Zero { negative } => (negative, 0),
            Parts::Finite { negative, significand, exponent } => {
                let rounded = format.round(negative, significand.into(), exponent, false, rounding) & !format.sign();
                (negative, rounded.min(format.largest()))
            }
        };
        (if negative { magnitude | format.sign() } else { magnitude }) as u8
    }

    /// Exact, as f16; NaN is canonical.
    pub fn widened(self, bits: u8) -> u16 {
        self.widen(bits, false)
    }

    /// Exact; NaN is canonical.
    fn widen(self, bits: u8, relu: bool) -> u16 {
        let sign = |negative: bool| if negative && !relu { 0x8000 } else { 0 };
        match self.format().parts(bits.into()) {
            Parts::Nan => F16::NAN,
            Parts::Infinite { negative: true } if relu => 0,
            Parts::Infinite { negative } => sign(negative) | 0x7c00,
            Parts::Finite { negative: true, .. } if relu => 0,
            Parts::Zero { negative } => sign(negative),
            Parts::Finite { negative, significand, exponent } => {
                Format::F16.round(negative, significand.into(), exponent, false, Rounding::Nearest) as u16
            }
        }
    }
}

/// `cvt.rn.satfinite{.relu}.e4m3x2.f32 d, a, b` and `.e5m2x2`: `a` in the upper byte.
pub fn f32x2_to_fp8x2(a: u32, b: u32, to: Fp8, relu: bool) -> u16 {
    u16::from_be_bytes([to.narrow::<F32>(a, relu), to.narrow::<F32>(b, relu)])
}

/// `cvt.rn.satfinite{.relu}.e4m3x2.f16x2 d, a` and `.e5m2x2`.
pub fn f16x2_to_fp8x2(a: u32, to: Fp8, relu: bool) -> u16 {
    u16::from_be_bytes([to.narrow::<F16>((a >> 16) as u16, relu), to.narrow::<F16>(a as u16, relu)])
}

/// `cvt.rn{.relu}.f16x2.e4m3x2 d, a` and `.e5m2x2`: exact.
pub fn fp8x2_to_f16x2(a: u16, from: Fp8, relu: bool) -> u32 {
    let [upper, lower] = a.to_be_bytes();
    u32::from(from.widen(upper, relu)) << 16 | u32::from(from.widen(lower, relu))
}

/// The largest magnitude of `.e2m1`: 6.
const FP4_LARGEST: u8 = 7;

/// What the magnitudes of `.e2m1` are as f16: 0, 0.5, 1, 1.5, 2, 3, 4, 6.
const FP4_AS_F16: [u16; 8] = [0x0000, 0x3800, 0x3c00, 0x3e00, 0x4000, 0x4200, 0x4400, 0x4600];

/// `cvt.rn.satfinite{.relu}.e2m1x2.f32 d, a, b`: `a` in the upper four bits. There is no NaN: one becomes the largest number, 6.
pub fn f32x2_to_fp4x2(a: u32, b: u32, relu: bool) -> u8 {
    fp4_of_f32(a, relu) << 4 | fp4_of_f32(b, relu)
}

fn fp4_of_f32(bits: u32, relu: bool) -> u8 {
    if F32::is_nan(bits) {
        return FP4_LARGEST;
    }
    let magnitude = f32::from_bits(bits & 0x7fff_ffff);
    // Halfway between two, the even one is meant: a number goes up at the halves below even ones, and past those below odd ones.
    let up_at = [0.75, 1.75, 3.5].iter().filter(|&&half| magnitude >= half).count();
    let up_past = [0.25, 1.25, 2.5, 5.0].iter().filter(|&&half| magnitude > half).count();
    let negative = bits >> 31 == 1;
    if negative && relu { 0 } else { (up_at + up_past) as u8 | if negative { 8 } else { 0 } }
}

/// `cvt.rn{.relu}.f16x2.e2m1x2 d, a`: exact.
pub fn fp4x2_to_f16x2(a: u8, relu: bool) -> u32 {
    let widened = |bits: u8| match (FP4_AS_F16[usize::from(bits & 7)], bits & 8 != 0) {
        (_, true) if relu => 0,
        (magnitude, negative) => magnitude | if negative { 0x8000 } else { 0 },
    };
    u32::from(widened(a >> 4)) << 16 | u32::from(widened(a & 15))
}
