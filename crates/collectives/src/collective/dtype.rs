//! Element types: what they are called and how wide they are.

use std::{fmt, str::FromStr};

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
    /// 32-bit two's complement; sums and products of every integer type wrap.
    I32,
    /// OCP 8-bit float with 4 bits of exponent and 3 of significand: up to 448, no infinities, and one NaN of each sign. What is rounded to
    /// an 8-bit float saturates: what is larger than its largest number, infinities included, becomes that number, as in PTX's
    /// `cvt.rn.satfinite` and in NCCL. PyTorch's conversions make NaN or infinity of it.
    E4M3,
    /// OCP 8-bit float with 5 bits of exponent and 2 of significand: up to 57344, with infinities and NaN, and saturating as `e4m3`.
    E5M2,
    /// 8-bit two's complement.
    I8,
    /// 8-bit unsigned.
    U8,
    /// 32-bit unsigned.
    U32,
    /// 64-bit two's complement.
    I64,
    /// 64-bit unsigned.
    U64,
}

impl DType {
    /// Every element type, in the order of reports.
    pub const ALL: [DType; 12] = [
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::F64,
        DType::I32,
        DType::E4M3,
        DType::E5M2,
        DType::I8,
        DType::U8,
        DType::U32,
        DType::I64,
        DType::U64,
    ];

    /// Those with entries of their own in kernels that reduce, for every operator of [`ReduceOp::COMMON`](super::ReduceOp::COMMON).
    pub const COMMON: [DType; 5] = [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I32];

    /// Bytes of one element.
    pub const fn size(self) -> u64 {
        match self {
            DType::E4M3 | DType::E5M2 | DType::I8 | DType::U8 => 1,
            DType::F16 | DType::BF16 => 2,
            DType::F32 | DType::I32 | DType::U32 => 4,
            DType::F64 | DType::I64 | DType::U64 => 8,
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
            DType::E4M3 => "e4m3",
            DType::E5M2 => "e5m2",
            DType::I8 => "i8",
            DType::U8 => "u8",
            DType::U32 => "u32",
            DType::I64 => "i64",
            DType::U64 => "u64",
        }
    }

    /// Whether the type has rounding, signed zeros and NaN.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::BF16 | DType::F64 | DType::E4M3 | DType::E5M2)
    }

    /// Whether the type has negative numbers.
    pub const fn is_signed(self) -> bool {
        !matches!(self, DType::U8 | DType::U32 | DType::U64)
    }

    /// Whether what overflows becomes the largest number rather than an infinity.
    pub const fn saturates(self) -> bool {
        matches!(self, DType::E4M3 | DType::E5M2)
    }

    /// Bits of significand, the implicit one included; for integers, the bits that hold a magnitude.
    pub const fn precision(self) -> u32 {
        match self {
            DType::F32 => 24,
            DType::F16 => 11,
            DType::BF16 => 8,
            DType::F64 => 53,
            DType::I32 => 31,
            DType::E4M3 => 4,
            DType::E5M2 => 3,
            DType::I8 => 7,
            DType::U8 => 8,
            DType::U32 => 32,
            DType::I64 => 63,
            DType::U64 => 64,
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
pub fn from_name<T: Copy>(all: &[T], name: &str, what: &str, name_of: impl Fn(T) -> &'static str) -> Result<T, String> {
    all.iter().copied().find(|&value| name_of(value) == name).ok_or_else(|| {
        let allowed: Vec<&str> = all.iter().map(|&value| name_of(value)).collect();
        format!("unknown {what} `{name}`: expected one of {}", allowed.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_say_what_is_allowed() {
        let allowed = "f32, f16, bf16, f64, i32, e4m3, e5m2, i8, u8, u32, i64, u64";
        assert_eq!("f8".parse::<DType>().unwrap_err(), format!("unknown dtype `f8`: expected one of {allowed}"));
    }
}
