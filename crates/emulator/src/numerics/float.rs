//! The four formats that registers hold, and their arithmetic (PTX ISA 9.7.3 to 9.7.5).

use std::fmt::Debug;

use rustc_apfloat::{Float as _, Round, ieee};

use super::{
    format::{Format, Parts, Rounding},
    narrow::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16},
};

/// The modifiers of a floating-point instruction. Which of them an instruction may have is the front end's to check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mode {
    /// `.rn`, `.rz`, `.rm`, `.rp`.
    pub rounding: Rounding,
    /// `.ftz`: subnormal operands and results that are tiny are zeros of their sign.
    pub ftz: bool,
    /// `.sat`: the result is clamped to `[+0, 1]`, NaN is +0.
    pub sat: bool,
    /// `.relu`: negative results are +0.
    pub relu: bool,
    /// `.satfinite`: where the result would be infinite, it is the largest finite number. Conversions only.
    pub satfinite: bool,
}

impl Mode {
    /// Round to nearest even and nothing else: most instructions.
    pub const NEAREST: Mode = Mode { rounding: Rounding::Nearest, ftz: false, sat: false, relu: false, satfinite: false };

    /// Nothing but a rounding.
    pub const fn rounded(rounding: Rounding) -> Mode {
        Mode { rounding, ..Mode::NEAREST }
    }

    /// The same with `.ftz`.
    pub const fn with_ftz(self) -> Mode {
        Mode { ftz: true, ..self }
    }
}

/// Arithmetic of one format, on bits. Every NaN that an operation returns is [`Float::NAN`], except in f64, where a NaN operand goes through:
/// see the readings in [the module](super).
pub trait Float: 'static {
    /// The unsigned integer of the format's width.
    type Bits: Copy + Eq + Debug;
    /// What the bits mean.
    const FORMAT: Format;
    /// What NVIDIA hardware returns for NaN: 0x7fff, 0x7fffffff; in f64 where no operand is NaN.
    const NAN: Self::Bits;
    /// Whether the sign and the payload of a NaN operand are kept, which is then quiet: f64.
    const PAYLOADS: bool;

    /// The bits, zero-extended.
    fn raise(bits: Self::Bits) -> u64;
    /// The low bits.
    fn lower(bits: u64) -> Self::Bits;
    /// Whether the bits are a NaN's.
    fn is_nan(bits: Self::Bits) -> bool;
    /// A NaN made quiet.
    fn quiet(nan: Self::Bits) -> Self::Bits;
    /// A subnormal becomes the zero of its sign, all else stays.
    fn flush(bits: Self::Bits) -> Self::Bits;
    /// What the modifiers make of a result: canonical NaN, `.ftz`, `.satfinite`, `.sat`, `.relu`.
    fn finish(bits: Self::Bits, mode: Mode) -> Self::Bits;
    /// `a + b`.
    fn add(a: Self::Bits, b: Self::Bits, mode: Mode) -> Self::Bits;
    /// `a - b`.
    fn sub(a: Self::Bits, b: Self::Bits, mode: Mode) -> Self::Bits;
    /// `a * b`.
    fn mul(a: Self::Bits, b: Self::Bits, mode: Mode) -> Self::Bits;
    /// `a * b + c`, rounded once.
    fn fma(a: Self::Bits, b: Self::Bits, c: Self::Bits, mode: Mode) -> Self::Bits;
    /// The smaller. Of a number and NaN the number, or NaN where `nan` (`.NaN`) is set. Of `mode` only `.ftz` counts.
    fn min(a: Self::Bits, b: Self::Bits, nan: bool, mode: Mode) -> Self::Bits;
    /// The larger, with the same rules as [`Float::min`].
    fn max(a: Self::Bits, b: Self::Bits, nan: bool, mode: Mode) -> Self::Bits;
    /// The other sign. NaN: see the readings in [the module](super).
    fn neg(a: Self::Bits, mode: Mode) -> Self::Bits;
    /// The positive sign. NaN: see the readings in [the module](super).
    fn abs(a: Self::Bits, mode: Mode) -> Self::Bits;
}

/// Division and square root, which PTX has in f32 and f64 only.
pub trait Divide: Float {
    /// `a / b`.
    fn div(a: Self::Bits, b: Self::Bits, mode: Mode) -> Self::Bits;
    /// The square root; NaN below zero, -0 of -0.
    fn sqrt(a: Self::Bits, mode: Mode) -> Self::Bits;
    /// `1 / a`: `rcp.rn` and its like.
    fn rcp(a: Self::Bits, mode: Mode) -> Self::Bits {
        Self::div(Self::lower(Self::FORMAT.one()), a, mode)
    }
}

/// IEEE 754 binary32 in a `u32`.
pub enum F32 {}
/// IEEE 754 binary64 in a `u64`.
pub enum F64 {}
/// IEEE 754 binary16 in a `u16`.
pub enum F16 {}
/// bfloat16 in a `u16`.
pub enum Bf16 {}

/// `rustc_apfloat`'s name for a rounding.
pub(super) fn apfloat_round(rounding: Rounding) -> Round {
    match rounding {
        Rounding::Nearest => Round::NearestTiesToEven,
        Rounding::Zero => Round::TowardZero,
        Rounding::Down => Round::TowardNegative,
        Rounding::Up => Round::TowardPositive,
    }
}

macro_rules! float {
    ($name:ident, $bits:ty, $signed:ty, $exact:ty, $format:expr, $nan:expr, $payloads:expr, $widen:expr, $narrow:expr, $fma:expr) => {
        impl $name {
            const SIGN: $bits = $format.sign() as $bits;
            const INFINITY: $bits = $format.above_largest() as $bits;
            const ONE: $bits = $format.one() as $bits;
            const SMALLEST_NORMAL: $bits = 1 << $format.fraction;

            #[inline(always)]
            fn operand(bits: $bits, mode: Mode) -> $bits {
                if mode.ftz { Self::flush(bits) } else { bits }
            }

            #[inline(always)]
            fn rounded(
                a: $bits,
                b: $bits,
                rounding: Rounding,
                nearest: impl Fn($bits, $bits) -> $bits,
                exact: impl Fn($exact, $exact, Round) -> $exact,
            ) -> $bits {
                match rounding {
                    Rounding::Nearest => nearest(a, b),
                    rounding => {
                        let (a, b) = (<$exact>::from_bits(a.into()), <$exact>::from_bits(b.into()));
                        exact(a, b, apfloat_round(rounding)).to_bits() as $bits
                    }
                }
            }

            /// A result with its modifiers; of NaN operands the first in `operands` counts.
            #[inline(always)]
            fn result<const N: usize>(bits: $bits, operands: [$bits; N], mode: Mode) -> $bits {
                if $payloads && Self::is_nan(bits) {
                    let operand = operands.into_iter().find(|&operand| Self::is_nan(operand));
                    return operand.map_or($nan, Self::quiet);
                }
                Self::finish(bits, mode)
            }

            /// Twice a number that is not subnormal.
            #[inline(always)]
            fn doubled(bits: $bits) -> $bits {
                if bits & !Self::SIGN == 0 { bits } else { bits.wrapping_add(Self::SMALLEST_NORMAL) }
            }

            /// A result of `operation`, which doubles where both its operands do, with `.ftz`: zero where it is tiny. It is tiny if rounding
            /// to full precision, as if exponents had no lower end, leaves it below the smallest normal number; the subnormals' coarser
            /// rounding may have raised it to that. Twice the number is rounded to full precision.
            #[inline(always)]
            fn without_tiny(a: $bits, c: $bits, mode: Mode, operation: impl Fn($bits, $bits) -> $bits) -> $bits {
                let result = operation(a, c);
                let raised = mode.ftz
                    && result & !Self::SIGN == Self::SMALLEST_NORMAL
                    && operation(Self::doubled(a), Self::doubled(c)) & !Self::SIGN < 2 * Self::SMALLEST_NORMAL;
                if raised { result & Self::SIGN } else { result }
            }

            /// Bits in an order in which signed integers compare as the numbers do, -0 below +0.
            #[inline(always)]
            fn key(bits: $bits) -> $signed {
                let bits = bits as $signed;
                bits ^ ((bits >> (<$bits>::BITS - 1)) & <$signed>::MAX)
            }

            #[inline(always)]
            fn select(a: $bits, b: $bits, nan: bool, mode: Mode, first: impl Fn($signed, $signed) -> bool) -> $bits {
                let (a, b) = (Self::operand(a, mode), Self::operand(b, mode));
                match (Self::is_nan(a), Self::is_nan(b)) {
                    (false, false) if first(Self::key(a), Self::key(b)) => a,
                    (false, false) => b,
                    (false, true) if !nan => a,
                    (true, false) if !nan => b,
                    _ => Self::result($nan, [b, a], mode),
                }
            }

            #[inline(always)]
            fn with_sign(a: $bits, mode: Mode, set: impl Fn($bits) -> $bits) -> $bits {
                match Self::is_nan(a) {
                    true => Self::result($nan, [a], mode),
                    false => set(Self::operand(a, mode)),
                }
            }
        }

        impl Float for $name {
            type Bits = $bits;
            const FORMAT: Format = $format;
            const NAN: $bits = $nan;
            const PAYLOADS: bool = $payloads;

            #[inline(always)]
            fn raise(bits: $bits) -> u64 {
                bits.into()
            }
            #[inline(always)]
            fn lower(bits: u64) -> $bits {
                bits as $bits
            }
            #[inline(always)]
            fn is_nan(bits: $bits) -> bool {
                bits & !Self::SIGN > Self::INFINITY
            }
            #[inline(always)]
            fn quiet(nan: $bits) -> $bits {
                nan | Self::SMALLEST_NORMAL >> 1
            }
            #[inline(always)]
            fn flush(bits: $bits) -> $bits {
                if bits & !Self::SIGN < Self::SMALLEST_NORMAL { bits & Self::SIGN } else { bits }
            }
            #[inline(always)]
            fn finish(bits: $bits, mode: Mode) -> $bits {
                if Self::is_nan(bits) {
                    return if mode.sat { 0 } else { $nan };
                }
                let bits = Self::operand(bits, mode);
                match bits {
                    _ if (mode.sat || mode.relu) && bits & Self::SIGN != 0 => 0,
                    _ if mode.sat && bits > Self::ONE => Self::ONE,
                    _ if mode.satfinite && bits & !Self::SIGN == Self::INFINITY => bits - 1,
                    _ => bits,
                }
            }
            #[inline(always)]
            fn add(a: $bits, b: $bits, mode: Mode) -> $bits {
                let (a, b) = (Self::operand(a, mode), Self::operand(b, mode));
                // What is below the smallest normal number is exact: nothing is raised to it.
                let nearest = |a, b| $narrow($widen(a) + $widen(b));
                Self::result(Self::rounded(a, b, mode.rounding, nearest, |a, b, round| a.add_r(b, round).value), [b, a], mode)
            }
            #[inline(always)]
            fn sub(a: $bits, b: $bits, mode: Mode) -> $bits {
                let (a, b) = (Self::operand(a, mode), Self::operand(b, mode));
                // What is below the smallest normal number is exact: nothing is raised to it.
                let nearest = |a, b| $narrow($widen(a) - $widen(b));
                Self::result(Self::rounded(a, b, mode.rounding, nearest, |a, b, round| a.sub_r(b, round).value), [b, a], mode)
            }
            #[inline(always)]
            fn mul(a: $bits, b: $bits, mode: Mode) -> $bits {
                let (a, b) = (Self::operand(a, mode), Self::operand(b, mode));
                let nearest = |a, b| $narrow($widen(a) * $widen(b));
                let product = |a, _| Self::rounded(a, b, mode.rounding, nearest, |a, b, round| a.mul_r(b, round).value);
                Self::result(Self::without_tiny(a, 0, mode, product), [b, a], mode)
            }
            #[inline]
            fn fma(a: $bits, b: $bits, c: $bits, mode: Mode) -> $bits {
                let (a, b, c) = (Self::operand(a, mode), Self::operand(b, mode), Self::operand(c, mode));
                let sum = |a, c: $bits| {
                    let exact = |a: $exact, b, round| a.mul_add_r(b, <$exact>::from_bits(c.into()), round).value;
                    Self::rounded(a, b, mode.rounding, |a, b| $fma(a, b, c), exact)
                };
                Self::result(Self::without_tiny(a, c, mode, sum), [b, c, a], mode)
            }
            #[inline(always)]
            fn min(a: $bits, b: $bits, nan: bool, mode: Mode) -> $bits {
                Self::select(a, b, nan, mode, |a, b| a < b)
            }
            #[inline(always)]
            fn max(a: $bits, b: $bits, nan: bool, mode: Mode) -> $bits {
                Self::select(a, b, nan, mode, |a, b| a > b)
            }
            #[inline(always)]
            fn neg(a: $bits, mode: Mode) -> $bits {
                Self::with_sign(a, mode, |a| a ^ Self::SIGN)
            }
            #[inline(always)]
            fn abs(a: $bits, mode: Mode) -> $bits {
                Self::with_sign(a, mode, |a| a & !Self::SIGN)
            }
        }
    };
}

// The 16-bit formats compute in f32 and round again: two roundings are one where the wider format has 2p + 2 bits (Figueroa, 1995).
float!(F32, u32, i32, ieee::Single, Format::F32, 0x7fff_ffff, false, f32::from_bits, f32::to_bits, fma_f32);
float!(F64, u64, i64, ieee::Double, Format::F64, 0xfff8_0000_0000_0000, true, f64::from_bits, f64::to_bits, fma_f64);
float!(F16, u16, i16, ieee::Half, Format::F16, 0x7fff, false, widen_f16, narrow_f16, fma_f16);
float!(Bf16, u16, i16, ieee::BFloat, Format::BF16, 0x7fff, false, widen_bf16, narrow_bf16, fma_bf16);

macro_rules! divide {
    ($name:ident, $host:ty, $bits:ty) => {
        impl Divide for $name {
            #[inline(always)]
            fn div(a: $bits, b: $bits, mode: Mode) -> $bits {
                let (a, b) = (Self::operand(a, mode), Self::operand(b, mode));
                let nearest = |a, b| (<$host>::from_bits(a) / <$host>::from_bits(b)).to_bits();
                let quotient = |a, _| Self::rounded(a, b, mode.rounding, nearest, |a, b, round| a.div_r(b, round).value);
                Self::result(Self::without_tiny(a, 0, mode, quotient), [a, b], mode)
            }
            #[inline]
            fn sqrt(a: $bits, mode: Mode) -> $bits {
                let a = Self::operand(a, mode);
                let result = match mode.rounding {
                    Rounding::Nearest => <$host>::from_bits(a).sqrt().to_bits(),
                    rounding => square_root(Self::FORMAT, a.into(), rounding).map_or(Self::NAN, |bits| bits as $bits),
                };
                Self::result(result, [a], mode)
            }
        }
    };
}

divide!(F32, f32, u32);
divide!(F64, f64, u64);

/// The square root by integers; `None` for NaN.
fn square_root(format: Format, bits: u64, rounding: Rounding) -> Option<u64> {
    match format.parts(bits) {
        Parts::Zero { .. } | Parts::Infinite { negative: false } => Some(bits),
        Parts::Finite { negative: false, significand, exponent } => {
            // 126 or 125 bits and an even exponent: the root has 63 bits, more than enough beside the sticky one.
            let shift = 125 - significand.ilog2() as i32;
            let shift = shift - (exponent - shift) % 2;
            let radicand = u128::from(significand) << shift;
            let root = radicand.isqrt();
            Some(format.round(false, root, (exponent - shift) / 2, root * root != radicand, rounding))
        }
        _ => None,
    }
}

#[inline(always)]
fn widen_f16(bits: u16) -> f32 {
    f32::from_bits(f16_to_f32(bits))
}

#[inline(always)]
fn narrow_f16(value: f32) -> u16 {
    f32_to_f16(value.to_bits())
}

#[inline(always)]
fn widen_bf16(bits: u16) -> f32 {
    f32::from_bits(bf16_to_f32(bits))
}

#[inline(always)]
fn narrow_bf16(value: f32) -> u16 {
    f32_to_bf16(value.to_bits())
}

/// `a * b + c` in f64 to odd, where the product is exact: rounding it again to at most 51 bits is as good as rounding once (Boldo and
/// Melquiond, 2008). The host's own f32 fma would be a call into its C library on most targets.
#[inline]
pub(super) fn fma_to_odd(a: f32, b: f32, c: f32) -> f64 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    // Knuth's TwoSum: `product + c == sum + error` exactly.
    let part = sum - product;
    let error = (product - (sum - part)) + (c - part);
    if error == 0.0 || !sum.is_finite() || sum.to_bits() & 1 == 1 {
        return sum;
    }
    let away = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if away { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

#[inline]
fn fma_f32(a: u32, b: u32, c: u32) -> u32 {
    (fma_to_odd(f32::from_bits(a), f32::from_bits(b), f32::from_bits(c)) as f32).to_bits()
}

fn fma_f64(a: u64, b: u64, c: u64) -> u64 {
    f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c)).to_bits()
}

fn fma_f16(a: u16, b: u16, c: u16) -> u16 {
    nearest_of_f64(Format::F16, F16::NAN, fma_to_odd(widen_f16(a), widen_f16(b), widen_f16(c)))
}

fn fma_bf16(a: u16, b: u16, c: u16) -> u16 {
    nearest_of_f64(Format::BF16, Bf16::NAN, fma_to_odd(widen_bf16(a), widen_bf16(b), widen_bf16(c)))
}

/// Rounds an f64 into a 16-bit format.
fn nearest_of_f64(format: Format, nan: u16, value: f64) -> u16 {
    let sign = |negative| if negative { format.sign() } else { 0 };
    match Format::F64.parts(value.to_bits()) {
        Parts::Nan => nan,
        Parts::Infinite { negative } => (sign(negative) | format.above_largest()) as u16,
        Parts::Zero { negative } => sign(negative) as u16,
        Parts::Finite { negative, significand, exponent } => {
            format.round(negative, significand.into(), exponent, false, Rounding::Nearest) as u16
        }
    }
}

/// Applies `f` to both halves of a packed register: `abs.f16x2` and its like.
#[inline(always)]
pub fn lanes_of_one(a: u32, f: impl Fn(u16) -> u16) -> u32 {
    u32::from(f(a as u16)) | u32::from(f((a >> 16) as u16)) << 16
}

/// Applies `f` to both halves of two packed registers: `add.bf16x2` is `lanes(a, b, |a, b| Bf16::add(a, b, mode))`.
#[inline(always)]
pub fn lanes(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}

/// Applies `f` to both halves of three packed registers: `fma.rn.f16x2`.
#[inline(always)]
pub fn lanes_of_three(a: u32, b: u32, c: u32, f: impl Fn(u16, u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16, c as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16, (c >> 16) as u16)) << 16
}
