//! `cvt` between integers and floats of all widths (PTX ISA cvt, "Integer Notes" and "Floating Point Notes").

use super::{
    float::{Float, Mode},
    format::{Format, Parts, Rounding, shift_right},
    narrow::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16},
};

/// An integer type of PTX. Values travel in the low bits of a `u64`; what lies above them is ignored on the way in and zero on the way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Integer {
    /// Width: 8, 16, 32 or 64.
    pub bits: u32,
    /// Two's complement.
    pub signed: bool,
}

#[expect(missing_docs, reason = "the names are PTX's")]
impl Integer {
    pub const U8: Integer = Integer { bits: 8, signed: false };
    pub const U16: Integer = Integer { bits: 16, signed: false };
    pub const U32: Integer = Integer { bits: 32, signed: false };
    pub const U64: Integer = Integer { bits: 64, signed: false };
    pub const S8: Integer = Integer { bits: 8, signed: true };
    pub const S16: Integer = Integer { bits: 16, signed: true };
    pub const S32: Integer = Integer { bits: 32, signed: true };
    pub const S64: Integer = Integer { bits: 64, signed: true };
}

impl Integer {
    /// All of them.
    pub const ALL: [Integer; 8] =
        [Integer::U8, Integer::U16, Integer::U32, Integer::U64, Integer::S8, Integer::S16, Integer::S32, Integer::S64];

    /// The low bits of `value`, extended to 64 bits by this type's sign: what a wider register holds after a conversion to it.
    #[inline(always)]
    pub fn extend(self, value: u64) -> u64 {
        let unused = 64 - self.bits;
        if self.signed { ((value << unused) as i64 >> unused) as u64 } else { value << unused >> unused }
    }

    /// The value that the low bits of `value` stand for.
    fn value(self, value: u64) -> i128 {
        let extended = self.extend(value);
        if self.signed { (extended as i64).into() } else { extended.into() }
    }

    fn smallest(self) -> i128 {
        if self.signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    fn largest(self) -> i128 {
        (1 << (self.bits - u32::from(self.signed))) - 1
    }

    fn truncate(self, value: u64) -> u64 {
        value & (u64::MAX >> (64 - self.bits))
    }

    fn clamp(self, value: i128) -> u64 {
        self.truncate(value.clamp(self.smallest(), self.largest()) as u64)
    }
}

/// `cvt{.sat}` from one integer type to another.
#[inline]
pub fn integer_to_integer(value: u64, from: Integer, to: Integer, sat: bool) -> u64 {
    if sat { to.clamp(from.value(value)) } else { to.truncate(from.extend(value)) }
}

/// `cvt.rn.f32.s32` and its like.
#[inline]
pub fn integer_to_float<F: Float>(value: u64, from: Integer, mode: Mode) -> F::Bits {
    let value = from.value(value);
    let bits = F::FORMAT.round(value < 0, value.unsigned_abs(), 0, false, mode.rounding);
    F::finish(F::lower(bits), mode)
}

/// `cvt.rzi.s32.f32` and its like: rounds, then clamps to the range of `to`. Of `mode` the rounding and `.ftz` count.
#[inline]
pub fn float_to_integer<F: Float>(bits: F::Bits, to: Integer, mode: Mode) -> u64 {
    match F::FORMAT.parts(F::raise(flush_single::<F>(bits, mode))) {
        Parts::Nan if F::FORMAT == Format::F64 || to.bits == 64 => 1 << (to.bits - 1),
        Parts::Nan | Parts::Zero { .. } => 0,
        Parts::Infinite { negative } => to.clamp(if negative { i128::MIN } else { i128::MAX }),
        // 64 integer bits and more: out of every type's range, or so close that the clamp is exact in 128 bits.
        Parts::Finite { negative, significand, exponent } => {
            let magnitude = integral(negative, significand, exponent.min(64), mode.rounding) as i128;
            to.clamp(if negative { -magnitude } else { magnitude })
        }
    }
}

/// `significand * 2^exponent` as an integer, for exponents up to 64.
fn integral(negative: bool, significand: u64, exponent: i32, rounding: Rounding) -> u128 {
    if exponent >= 0 {
        return u128::from(significand) << exponent;
    }
    let (kept, rest) = shift_right(significand.into(), exponent.unsigned_abs(), false);
    kept + u128::from(rounding.away(negative, kept & 1 == 1, rest))
}

/// `cvt.rni.f32.f32` and its like: to an integral number of the same format.
#[inline]
pub fn round_to_integral<F: Float>(bits: F::Bits, mode: Mode) -> F::Bits {
    let bits = flush_single::<F>(bits, mode);
    if F::PAYLOADS && F::is_nan(bits) {
        return if mode.sat { F::lower(0) } else { F::quiet(bits) };
    }
    let rounded = match F::FORMAT.parts(F::raise(bits)) {
        Parts::Finite { negative, significand, exponent } if exponent < 0 => {
            let value = integral(negative, significand, exponent, mode.rounding);
            F::lower(F::FORMAT.round(negative, value, 0, false, Rounding::Zero))
        }
        _ => bits,
    };
    finish_single::<F>(rounded, mode)
}

/// `cvt` from one float format to another, or within one. `.ftz` touches operands and results in f32 only, but no operand of a conversion to
/// f16.
#[inline(always)]
pub fn float_to_float<From: Float, To: Float>(bits: From::Bits, mode: Mode) -> To::Bits {
    if From::is_nan(bits)
        && !mode.sat
        && let Some(nan) = converted_nan::<From, To>(bits, mode)
    {
        return nan;
    }
    let bits = if To::FORMAT == Format::F16 { bits } else { flush_single::<From>(bits, mode) };
    let raised = From::raise(bits);
    let converted = rounded::<From, To>(raised, mode.rounding);
    // Tiny as arithmetic has it: twice the number is rounded to full precision.
    let smallest = 1 << To::FORMAT.fraction;
    let magnitude = |bits: To::Bits| To::raise(bits) & (To::FORMAT.sign() - 1);
    let raised_to_normal = From::FORMAT == Format::F64
        && To::FORMAT == Format::F32
        && mode.ftz
        && magnitude(converted) == smallest
        && magnitude(rounded::<From, To>(raised + (1 << From::FORMAT.fraction), mode.rounding)) < 2 * smallest;
    let converted = if raised_to_normal { To::lower(To::raise(converted) & To::FORMAT.sign()) } else { converted };
    finish_single::<To>(converted, mode)
}

/// What a NaN becomes where that is not the destination's canonical NaN: see the readings in [the module](super).
#[inline(always)]
fn converted_nan<From: Float, To: Float>(nan: From::Bits, mode: Mode) -> Option<To::Bits> {
    let raised = From::raise(nan);
    if From::FORMAT == To::FORMAT && matches!(From::FORMAT, Format::F32 | Format::F64) && !mode.ftz {
        return Some(To::lower(raised));
    }
    if From::FORMAT == Format::BF16 && To::FORMAT == Format::F32 && !mode.ftz {
        return Some(To::lower(bf16_to_f32(raised as u16).into()));
    }
    if !From::PAYLOADS && !To::PAYLOADS {
        return None;
    }
    let nan = if mode.ftz && From::FORMAT == Format::F32 { From::raise(From::NAN) } else { raised };
    let sign = if nan & From::FORMAT.sign() != 0 { To::FORMAT.sign() } else { 0 };
    let (from, to) = (From::FORMAT.fraction, To::FORMAT.fraction);
    let payload = (nan & ((1 << from) - 1)) << (64 - from) >> (64 - to);
    Some(To::quiet(To::lower(sign | To::FORMAT.above_largest() | payload)))
}

/// The conversion without modifiers but the rounding.
#[inline(always)]
fn rounded<From: Float, To: Float>(raised: u64, rounding: Rounding) -> To::Bits {
    let nearest = rounding == Rounding::Nearest;
    // Constant conditions: of this chain one arm is left in each instance.
    if From::FORMAT == To::FORMAT {
        To::lower(raised)
    } else if From::FORMAT == Format::BF16 && To::FORMAT == Format::F32 {
        To::lower(bf16_to_f32(raised as u16).into())
    } else if From::FORMAT == Format::F16 && To::FORMAT == Format::F32 {
        To::lower(f16_to_f32(raised as u16).into())
    } else if From::FORMAT == Format::F32 && To::FORMAT == Format::F16 && nearest {
        To::lower(f32_to_f16(raised as u32).into())
    } else if From::FORMAT == Format::F32 && To::FORMAT == Format::BF16 && nearest {
        To::lower(f32_to_bf16(raised as u32).into())
    } else if From::FORMAT == Format::F32 && To::FORMAT == Format::F64 {
        To::lower(f64::from(f32::from_bits(raised as u32)).to_bits())
    } else if From::FORMAT == Format::F64 && To::FORMAT == Format::F32 && nearest {
        To::lower((f64::from_bits(raised) as f32).to_bits().into())
    } else {
        convert_any::<From, To>(raised, rounding)
    }
}

fn convert_any<From: Float, To: Float>(bits: u64, rounding: Rounding) -> To::Bits {
    let sign = |negative| if negative { To::FORMAT.sign() } else { 0 };
    match From::FORMAT.parts(bits) {
        Parts::Nan => To::NAN,
        Parts::Infinite { negative } => To::lower(sign(negative) | To::FORMAT.above_largest()),
        Parts::Zero { negative } => To::lower(sign(negative)),
        Parts::Finite { negative, significand, exponent } => {
            To::lower(To::FORMAT.round(negative, significand.into(), exponent, false, rounding))
        }
    }
}

/// An operand with `.ftz`, which in conversions is for f32 only.
#[inline(always)]
fn flush_single<F: Float>(bits: F::Bits, mode: Mode) -> F::Bits {
    if mode.ftz && F::FORMAT == Format::F32 { F::flush(bits) } else { bits }
}

/// A result with its modifiers, `.ftz` for f32 only.
#[inline(always)]
fn finish_single<F: Float>(bits: F::Bits, mode: Mode) -> F::Bits {
    F::finish(bits, Mode { ftz: mode.ftz && F::FORMAT == Format::F32, ..mode })
}
