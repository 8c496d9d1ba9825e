//! Elements as Rust arithmetic: what every reference and every check computes with.

use std::fmt;

use half::{bf16, f16};

use super::DType;

/// An element type as Rust arithmetic: what every reference and every check computes with.
///
/// `Acc` is the type that contracts accumulate in: f32 for floats of up to 32 bits, f64 for f64, and each integer type, wrapping, for itself.
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
    /// Rounds an accumulator to the element type, to nearest, ties to even; 8-bit floats [saturate](DType::saturates).
    fn narrow(acc: Self::Acc) -> Self;
    /// `a + b`, rounded to the accumulator's type.
    fn add(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    /// `a * b`, rounded to the accumulator's type.
    fn multiply(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    /// The smaller; the number where one is NaN; -0 below +0.
    fn min(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    /// The larger; the number where one is NaN; -0 below +0.
    fn max(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    /// `a / world`, rounded to the accumulator's type; integers truncate toward zero.
    fn divide(a: Self::Acc, world: u32) -> Self::Acc;
    /// `value` in the accumulator's type, rounded to nearest, ties to even; integers wrap.
    fn from_i64(value: i64) -> Self::Acc;
    /// `value`, rounded once to the element type: to nearest, ties to even. 8-bit floats and integers saturate, and an integer of NaN is 0.
    fn from_f64(value: f64) -> Self;
    /// `a * 2^exponent`, rounded to the accumulator's type. Floats allow the exponents of normal numbers (-126 to 127 in f32); integers
    /// take the exponent modulo their width in bits and wrap.
    fn scale(a: Self::Acc, exponent: i32) -> Self::Acc;
    /// The other sign: floats flip the sign bit, of NaN and zero too; integers wrap.
    fn negate(self) -> Self;
    /// The accumulator as f64: exact but for integers of 64 bits, which are rounded to nearest.
    fn acc_to_f64(acc: Self::Acc) -> f64;
    /// The value as f64, as exact as [`Element::acc_to_f64`].
    fn to_f64(self) -> f64 {
        Self::acc_to_f64(self.widen())
    }
    /// Whether this is a NaN; never for integers.
    fn is_nan(self) -> bool {
        self.to_f64().is_nan()
    }
}

/// Declares an 8-bit float. `float8` converts; what it says of NaN is wrong for some of e5m2, so its types are no elements.
macro_rules! eight_bit_float {
    ($type:ident, $converted:ty, $doc:literal) => {
        #[doc = $doc]
        #[derive(Clone, Copy)]
        pub struct $type(u8);

        impl $type {
            /// The number with these bits.
            pub const fn from_bits(bits: u8) -> $type {
                $type(bits)
            }
            /// Its bits.
            pub const fn to_bits(self) -> u8 {
                self.0
            }
            /// Rounded to nearest, ties to even, and saturated.
            pub const fn from_f32(value: f32) -> $type {
                $type(<$converted>::from_f32(value).to_bits())
            }
            /// Its value.
            pub const fn to_f32(self) -> f32 {
                <$converted>::from_bits(self.0).to_f32()
            }
        }

        impl PartialEq for $type {
            fn eq(&self, other: &$type) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.to_f32().fmt(f)
            }
        }
    };
}

eight_bit_float!(E4M3, float8::F8E4M3, "An element of [`DType::E4M3`].");
eight_bit_float!(E5M2, float8::F8E5M2, "An element of [`DType::E5M2`].");

/// The float nearest to a value, which `guess` is or is next to: what was rounded to f32 before may have gone to the wrong side.
fn nearest<T: Element>(guess: T, value: f64) -> T {
    if !value.is_finite() || !guess.to_f64().is_finite() {
        return guess;
    }
    let off = |x: &T| (x.to_f64() - value).abs();
    let sign = 1 << (8 * size_of::<T>() - 1);
    let magnitude = guess.bits() & (sign - 1);
    let next_to = [magnitude.checked_sub(1), magnitude.checked_add(1).filter(|&bits| bits < sign)];
    let next_to = next_to.into_iter().flatten().map(|bits| T::of_bits(bits | guess.bits() & sign));
    next_to.filter(|x| x.to_f64().is_finite()).fold(guess, |best, x| {
        let (of_best, of_x) = (off(&best), off(&x));
        if of_x < of_best || of_x == of_best && x.bits() % 2 == 0 { x } else { best }
    })
}

macro_rules! float_element {
    ($type:ty, $acc:ty, $acc_bits:ty, $dtype:expr, $bits:ty, $widen:expr, $narrow:expr) => {
        impl Element for $type {
            type Acc = $acc;
            const DTYPE: DType = $dtype;
            fn from_bytes(bytes: &[u8]) -> Self {
                <$type>::from_bits(<$bits>::from_le_bytes(bytes.try_into().expect("one element's bytes")))
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
            fn multiply(a: $acc, b: $acc) -> $acc {
                a * b
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
            fn from_f64(value: f64) -> Self {
                nearest(Self::narrow(value as $acc), value)
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
float_element!(E4M3, f32, u32, DType::E4M3, u8, E4M3::to_f32, E4M3::from_f32);
float_element!(E5M2, f32, u32, DType::E5M2, u8, E5M2::to_f32, E5M2::from_f32);

macro_rules! integer_element {
    ($type:ty, $bits:ty, $dtype:expr) => {
        impl Element for $type {
            type Acc = $type;
            const DTYPE: DType = $dtype;
            fn from_bytes(bytes: &[u8]) -> Self {
                <$type>::from_le_bytes(bytes.try_into().expect("one element's bytes"))
            }
            fn bits(self) -> u64 {
                u64::from(self as $bits)
            }
            fn of_bits(bits: u64) -> Self {
                bits as $type
            }
            fn widen(self) -> Self {
                self
            }
            fn narrow(acc: Self) -> Self {
                acc
            }
            fn add(a: Self, b: Self) -> Self {
                a.wrapping_add(b)
            }
            fn multiply(a: Self, b: Self) -> Self {
                a.wrapping_mul(b)
            }
            fn min(a: Self, b: Self) -> Self {
                Ord::min(a, b)
            }
            fn max(a: Self, b: Self) -> Self {
                Ord::max(a, b)
            }
            fn divide(a: Self, world: u32) -> Self {
                a.wrapping_div(world as $type)
            }
            fn from_i64(value: i64) -> Self {
                value as $type
            }
            fn from_f64(value: f64) -> Self {
                value.round_ties_even() as $type
            }
            fn scale(a: Self, exponent: i32) -> Self {
                a.wrapping_shl(exponent as u32)
            }
            fn negate(self) -> Self {
                self.wrapping_neg()
            }
            fn acc_to_f64(acc: Self) -> f64 {
                acc as f64
            }
            fn is_nan(self) -> bool {
                false
            }
        }
    };
}

integer_element!(i8, u8, DType::I8);
integer_element!(u8, u8, DType::U8);
integer_element!(i32, u32, DType::I32);
integer_element!(u32, u32, DType::U32);
integer_element!(i64, u64, DType::I64);
integer_element!(u64, u64, DType::U64);

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
            $crate::collective::DType::E4M3 => {
                type $type = $crate::collective::E4M3;
                $body
            }
            $crate::collective::DType::E5M2 => {
                type $type = $crate::collective::E5M2;
                $body
            }
            $crate::collective::DType::I8 => {
                type $type = i8;
                $body
            }
            $crate::collective::DType::U8 => {
                type $type = u8;
                $body
            }
            $crate::collective::DType::U32 => {
                type $type = u32;
                $body
            }
            $crate::collective::DType::I64 => {
                type $type = i64;
                $body
            }
            $crate::collective::DType::U64 => {
                type $type = u64;
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

    /// If this fails, a correct output is refused that was rounded once, because the reference's value was rounded twice.
    #[rstest]
    #[case::above_the_middle(1.0 + 1.0 / 256.0 + 1e-12, 1.0078125)]
    #[case::the_middle(1.0 + 1.0 / 256.0, 1.0)]
    #[case::the_odd_middle(1.0 + 3.0 / 256.0, 1.015625)]
    #[case::below_the_middle(1.0 + 3.0 / 256.0 - 1e-12, 1.0078125)]
    #[case::negative(-(1.0 + 1.0 / 256.0 + 1e-12), -1.0078125)]
    #[case::zero(-0.0, -0.0)]
    #[case::tiny(1e-50, 0.0)]
    #[case::large(1e39, f64::INFINITY)]
    fn values_are_rounded_once(#[case] value: f64, #[case] rounded: f64) {
        assert_eq!(<bf16 as Element>::from_f64(value).to_f64().to_bits(), rounded.to_bits());
    }

    #[test]
    fn integers_wrap_and_truncate() {
        assert_eq!((<i8 as Element>::from_f64(2.5), <i8 as Element>::from_f64(-1e9), <u8 as Element>::from_f64(f64::NAN)), (2, -128, 0));
        assert_eq!(<i32 as Element>::add(i32::MAX, 1), i32::MIN);
        assert_eq!(<i32 as Element>::divide(-7, 2), -3);
        assert_eq!(<i8 as Element>::add(i8::MAX, 1), i8::MIN);
        assert_eq!(<i8 as Element>::multiply(-128, -1), -128);
        assert_eq!(<u8 as Element>::divide(<u8 as Element>::add(200, 100), 2), 22);
        assert_eq!(<u32 as Element>::max(1, u32::MAX), u32::MAX);
        assert_eq!(<i64 as Element>::min(-1, i64::MAX), -1);
    }

    /// Values of the format, by the definition of its fields; f64 holds them and their midpoints exactly.
    fn value(bits: u8, exponent_bits: i32) -> f64 {
        let fraction_bits = 7 - exponent_bits;
        let (exponent, fraction) = (i32::from(bits & 0x7f) >> fraction_bits, f64::from(i32::from(bits) & ((1 << fraction_bits) - 1)));
        let bias = (1 << (exponent_bits - 1)) - 1;
        let significand = fraction / f64::from(1 << fraction_bits) + if exponent == 0 { 0.0 } else { 1.0 };
        f64::from(exponent.max(1) - bias).exp2() * significand * if bits & 0x80 != 0 { -1.0 } else { 1.0 }
    }

    /// All values, all midpoints between them, which go to the even one, and the f32 on both sides of each, up to where everything saturates.
    fn is_the_format<T: Element<Acc = f32>>(exponent_bits: i32, largest: u8) {
        let narrowed = |x: f32| T::narrow(x).bits() as u8;
        for bits in 0..=largest {
            let x = value(bits, exponent_bits);
            assert_eq!(T::of_bits(bits.into()).to_f64(), x, "{bits:#x}");
            assert_eq!((narrowed(x as f32), narrowed(-x as f32)), (bits, bits | 0x80), "{bits:#x}");
            // Past the largest, the next would be this one.
            let middle = ((x + value(bits + 1, exponent_bits)) / 2.0) as f32;
            let above = if bits == largest { bits } else { bits + 1 };
            assert_eq!(narrowed(middle.next_down()), bits, "below the middle after {bits:#x}");
            assert_eq!(narrowed(middle), if bits % 2 == 0 { bits } else { above }, "the middle after {bits:#x}");
            assert_eq!(narrowed(middle.next_up()), above, "above the middle after {bits:#x}");
        }
        for large in [f32::MAX, f32::INFINITY] {
            assert_eq!((narrowed(large), narrowed(-large)), (largest, largest | 0x80));
        }
        assert!(T::narrow(f32::NAN).is_nan() && T::of_bits(0x7f).is_nan());
    }

    #[test]
    fn eight_bit_floats_are_what_ocp_says_and_saturate() {
        is_the_format::<E4M3>(4, 0x7e);
        is_the_format::<E5M2>(5, 0x7b);
        assert_eq!((0..=255).filter(|&bits| E4M3::of_bits(bits).is_nan()).collect::<Vec<u64>>(), [0x7f, 0xff]);
        assert_eq!((0..=255).filter(|&bits| E5M2::of_bits(bits).is_nan()).collect::<Vec<u64>>(), [0x7d, 0x7e, 0x7f, 0xfd, 0xfe, 0xff]);
        assert_eq!(E5M2::of_bits(0x7c).to_f64(), f64::INFINITY);
        assert!(E5M2::of_bits(0x7f) != E5M2::of_bits(0x7f) && E4M3::of_bits(0) == E4M3::of_bits(0x80));
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
