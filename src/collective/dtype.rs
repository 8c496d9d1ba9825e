//! Element types: what they are called, how wide they are, and the arithmetic that references use for them.

use std::{fmt, str::FromStr};

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

/// The type of a buffer's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// IEEE 754 binary64.
    F64,
    /// 32-bit two's complement; sums wrap.
    I32,
}

impl DType {
    /// Every element type, in the order of reports.
    pub const ALL: [DType; 5] = [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I32];

    /// Bytes of one element.
    pub const fn size(self) -> u64 {
        match self {
            DType::F16 | DType::BF16 => 2,
            DType::F32 | DType::I32 => 4,
            DType::F64 => 8,
        }
    }

    /// The name in case ids, kernel entries and reports.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::F64 => "f64",
            DType::I32 => "i32",
        }
    }

    /// Whether the type has rounding, signed zeros, infinities and NaN.
    pub const fn is_float(self) -> bool {
        !matches!(self, DType::I32)
    }

    /// Bits of significand, the implicit one included; for integers, the bits that hold a magnitude.
    pub const fn precision(self) -> u32 {
        match self {
            DType::F32 => 24,
            DType::F16 => 11,
            DType::BF16 => 8,
            DType::F64 => 53,
            DType::I32 => 31,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = String;
    fn from_str(name: &str) -> Result<DType, String> {
        from_name(&DType::ALL, name, "dtype", |d| d.name())
    }
}

/// Finds the value called `name`, or says what `what` may be.
pub(crate) fn from_name<T: Copy>(all: &[T], name: &str, what: &str, name_of: impl Fn(T) -> &'static str) -> Result<T, String> {
    all.iter().copied().find(|&value| name_of(value) == name).ok_or_else(|| {
        let allowed: Vec<&str> = all.iter().map(|&value| name_of(value)).collect();
        format!("unknown {what} `{name}`: expected one of {}", allowed.join(", "))
    })
}

/// An element type as Rust arithmetic: what every reference and every check computes with.
///
/// `Acc` is the type that contracts accumulate in: f32 for the 16- and 32-bit floats, f64 for f64, i32 (wrapping) for i32.
pub trait Element: Copy + Send + Sync + PartialEq + fmt::Debug + 'static {
    /// The type that sums are formed in.
    type Acc: Copy;
    /// The dynamic counterpart of this type.
    const DTYPE: DType;

    /// Reads one element from `DTYPE.size()` little-endian bytes.
    fn from_bytes(bytes: &[u8]) -> Self;
    /// The element's bits, zero-extended.
    fn bits(self) -> u64;
    /// The element whose low bits are `bits`.
    fn of_bits(bits: u64) -> Self;
    /// The exact value in the accumulator's type.
    fn widen(self) -> Self::Acc;
    /// Rounds an accumulator to the element type, to nearest, ties to even.
    fn narrow(acc: Self::Acc) -> Self;
    /// `a + b`, rounded to the accumulator's type.
    fn add(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    /// The smaller; the number where one is NaN; -0 below +0.
    fn min(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    /// The larger; the number where one is NaN; -0 below +0.
    fn max(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    /// `a / world`, rounded to the accumulator's type; integers truncate toward zero.
    fn divide(a: Self::Acc, world: u32) -> Self::Acc;
    /// `value` in the accumulator's type, rounded to nearest, ties to even; integers wrap.
    fn from_i64(value: i64) -> Self::Acc;
    /// `a * 2^exponent`, rounded to the accumulator's type. Floats allow the exponents of normal numbers (-126 to 127 in f32); integers
    /// take the exponent modulo 32 and wrap.
    fn scale(a: Self::Acc, exponent: i32) -> Self::Acc;
    /// The other sign: floats flip the sign bit, of NaN and zero too; integers wrap.
    fn negate(self) -> Self;
    /// The accumulator as f64, exact for every type.
    fn acc_to_f64(acc: Self::Acc) -> f64;
    /// The value as f64, exact for every type.
    fn to_f64(self) -> f64 {
        Self::acc_to_f64(self.widen())
    }
    /// Whether this is a NaN; never for integers.
    fn is_nan(self) -> bool {
        self.to_f64().is_nan()
    }
}

macro_rules! float_element {
    ($type:ty, $acc:ty, $acc_bits:ty, $dtype:expr, $bits:ty, $widen:expr, $narrow:expr) => {
        impl Element for $type {
            type Acc = $acc;
            const DTYPE: DType = $dtype;
            fn from_bytes(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("one element's bytes"))
            }
            fn bits(self) -> u64 {
                u64::from(self.to_bits())
            }
            fn of_bits(bits: u64) -> Self {
                <$type>::from_bits(bits as $bits)
            }
            fn widen(self) -> $acc {
                $widen(self)
            }
            fn narrow(acc: $acc) -> Self {
                $narrow(acc)
            }
            fn add(a: $acc, b: $acc) -> $acc {
                a + b
            }
            // std's min and max leave the sign of zero open; PTX does not.
            fn min(a: $acc, b: $acc) -> $acc {
                if a == b && a == 0.0 { if a.is_sign_negative() { a } else { b } } else { a.min(b) }
            }
            fn max(a: $acc, b: $acc) -> $acc {
                if a == b && a == 0.0 { if a.is_sign_negative() { b } else { a } } else { a.max(b) }
            }
            fn divide(a: $acc, world: u32) -> $acc {
                a / world as $acc
            }
            fn from_i64(value: i64) -> $acc {
                value as $acc
            }
            fn scale(a: $acc, exponent: i32) -> $acc {
                let bias = <$acc>::MAX_EXP - 1;
                debug_assert!((1 - bias..=bias).contains(&exponent), "2^{exponent} is no normal number");
                a * <$acc>::from_bits(((bias + exponent) as $acc_bits) << (<$acc>::MANTISSA_DIGITS - 1))
            }
            fn negate(self) -> Self {
                Self::of_bits(self.bits() ^ 1 << (8 * size_of::<Self>() - 1))
            }
            fn acc_to_f64(acc: $acc) -> f64 {
                f64::from(acc)
            }
        }
    };
}

float_element!(f32, f32, u32, DType::F32, u32, |x| x, |x| x);
float_element!(f16, f32, u32, DType::F16, u16, f16::to_f32, f16::from_f32);
float_element!(bf16, f32, u32, DType::BF16, u16, bf16::to_f32, bf16::from_f32);
float_element!(f64, f64, u64, DType::F64, u64, |x| x, |x| x);

impl Element for i32 {
    type Acc = i32;
    const DTYPE: DType = DType::I32;
    fn from_bytes(bytes: &[u8]) -> i32 {
        i32::from_le_bytes(bytes.try_into().expect("one element's bytes"))
    }
    fn bits(self) -> u64 {
        u64::from(self as u32)
    }
    fn of_bits(bits: u64) -> i32 {
        bits as u32 as i32
    }
    fn widen(self) -> i32 {
        self
    }
    fn narrow(acc: i32) -> i32 {
        acc
    }
    fn add(a: i32, b: i32) -> i32 {
        a.wrapping_add(b)
    }
    fn min(a: i32, b: i32) -> i32 {
        Ord::min(a, b)
    }
    fn max(a: i32, b: i32) -> i32 {
        Ord::max(a, b)
    }
    fn divide(a: i32, world: u32) -> i32 {
        a.wrapping_div(world as i32)
    }
    fn from_i64(value: i64) -> i32 {
        value as i32
    }
    fn scale(a: i32, exponent: i32) -> i32 {
        a.wrapping_shl(exponent as u32)
    }
    fn negate(self) -> i32 {
        self.wrapping_neg()
    }
    fn acc_to_f64(acc: i32) -> f64 {
        f64::from(acc)
    }
}

/// Runs `$body` with the type parameter `$type` bound to the Rust type of a [`DType`].
#[macro_export]
macro_rules! with_element {
    ($dtype:expr, $type:ident => $body:expr) => {
        match $dtype {
            $crate::collective::DType::F32 => {
                type $type = f32;
                $body
            }
            $crate::collective::DType::F16 => {
                type $type = half::f16;
                $body
            }
            $crate::collective::DType::BF16 => {
                type $type = half::bf16;
                $body
            }
            $crate::collective::DType::F64 => {
                type $type = f64;
                $body
            }
            $crate::collective::DType::I32 => {
                type $type = i32;
                $body
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(-0.0, 0.0, -0.0, 0.0)]
    #[case(0.0, -0.0, -0.0, 0.0)]
    #[case(f32::NAN, 1.0, 1.0, 1.0)]
    #[case(1.0, f32::NAN, 1.0, 1.0)]
    #[case(f32::NEG_INFINITY, 2.0, f32::NEG_INFINITY, 2.0)]
    fn min_and_max_order_zeros_and_suppress_nan(#[case] a: f32, #[case] b: f32, #[case] min: f32, #[case] max: f32) {
        assert_eq!(<f32 as Element>::min(a, b).to_bits(), min.to_bits());
        assert_eq!(<f32 as Element>::max(a, b).to_bits(), max.to_bits());
    }

    #[test]
    fn integers_wrap_and_truncate() {
        assert_eq!(<i32 as Element>::add(i32::MAX, 1), i32::MIN);
        assert_eq!(<i32 as Element>::divide(-7, 2), -3);
    }

    #[test]
    fn unknown_names_say_what_is_allowed() {
        assert_eq!("f8".parse::<DType>().unwrap_err(), "unknown dtype `f8`: expected one of f32, f16, bf16, f64, i32");
    }

    #[test]
    fn bits_round_trip() {
        for dtype in DType::ALL {
            with_element!(dtype, T => {
                let mask = u64::MAX >> (64 - 8 * dtype.size());
                for pattern in [0, 1, 0x8000, 0x7fff_1234_8000_ffff & mask] {
                    assert_eq!(T::of_bits(pattern & mask).bits(), pattern & mask, "{dtype}");
                }
            });
        }
    }
}
