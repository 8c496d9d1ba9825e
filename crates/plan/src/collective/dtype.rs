//! Element types: what they are called and how wide they are.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::words::UnknownName;

/// The types: what Rust, the CUDA headers (`cargo xtask kernels` writes common/dtypes.cuh), NCCL and the drivers need to know of each. Beside its line here,
/// a type has its arithmetic in element.rs and in kernels/common/dtype.cuh.
macro_rules! dtypes {
    ($(
        $(#[$doc:meta])* $variant:ident = $name:literal, $facts:expr, common: $common:literal, nccl: ($nccl:literal, $in_nccl_tests:literal),
        tensor_map: $tensor_map:literal, drawn: ($tagged_bits:literal, $large:literal, $counts:literal, $small:literal);
    )*) => {
        /// The type of a buffer's elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum DType {
            $($(#[$doc])* $variant,)*
        }

        /// The facts of each, in the order of [`DType::ALL`].
        const FACTS: [Facts; [$($name),*].len()] = [$(Facts {
            name: $name,
            common: $common,
            nccl: $nccl,
            in_nccl_tests: $in_nccl_tests,
            tensor_map: $tensor_map,
            drawn: Drawn { tagged_bits: $tagged_bits, large: $large, counts: $counts, small: $small },
            ..$facts
        }),*];

        impl DType {
            /// Every element type, in the order of reports.
            pub const ALL: [DType; FACTS.len()] = [$(DType::$variant),*];
        }
    };
}

dtypes! {
    /// IEEE 754 binary32.
    F32 = "f32", float(4, 24), common: true, nccl: (7, "float"), tensor_map: 7, drawn: (24, 30, 8, 0);
    /// IEEE 754 binary16.
    F16 = "f16", float(2, 11), common: true, nccl: (6, "half"), tensor_map: 6, drawn: (11, 12, 3, -14);
    /// bfloat16: the upper half of a binary32.
    BF16 = "bf16", float(2, 8), common: true, nccl: (9, "bfloat16"), tensor_map: 9, drawn: (8, 30, 8, 0);
    /// IEEE 754 binary64.
    F64 = "f64", float(8, 53), common: true, nccl: (8, "double"), tensor_map: 8, drawn: (52, 60, 8, 0);
    /// 32-bit two's complement; sums and products of every integer type wrap.
    I32 = "i32", integer(4, true), common: true, nccl: (2, "int32"), tensor_map: 3, drawn: (28, 0, 0, 0);
    /// OCP 8-bit float with 4 bits of exponent and 3 of significand: up to 448, no infinities, and one NaN of each sign. What is rounded to
    /// an 8-bit float saturates: what is larger than its largest number, infinities included, becomes that number, as in PTX's
    /// `cvt.rn.satfinite` and in NCCL. PyTorch's conversions make NaN or infinity of it.
    E4M3 = "e4m3", Facts { infinity: false, saturates: true, ..float(1, 4) }, common: false, nccl: (10, "f8e4m3"), tensor_map: 0, drawn: (4, 6, 3, -7);
    /// OCP 8-bit float with 5 bits of exponent and 2 of significand: up to 57344, with infinities and NaN, and saturating as `e4m3`.
    E5M2 = "e5m2", Facts { saturates: true, ..float(1, 3) }, common: false, nccl: (11, "f8e5m2"), tensor_map: 0, drawn: (3, 13, 3, -14);
    /// 8-bit two's complement.
    I8 = "i8", integer(1, true), common: false, nccl: (0, "int8"), tensor_map: 0, drawn: (5, 0, 0, 0);
    /// 8-bit unsigned.
    U8 = "u8", integer(1, false), common: false, nccl: (1, "uint8"), tensor_map: 0, drawn: (5, 0, 0, 0);
    /// 32-bit unsigned.
    U32 = "u32", integer(4, false), common: false, nccl: (3, "uint32"), tensor_map: 2, drawn: (28, 0, 0, 0);
    /// 64-bit two's complement.
    I64 = "i64", integer(8, true), common: false, nccl: (4, "int64"), tensor_map: 5, drawn: (50, 0, 0, 0);
    /// 64-bit unsigned.
    U64 = "u64", integer(8, false), common: false, nccl: (5, "uint64"), tensor_map: 4, drawn: (50, 0, 0, 0);
}

/// What there is to know of a type.
#[derive(Clone, Copy)]
struct Facts {
    name: &'static str,
    bytes: u64,
    is_float: bool,
    is_signed: bool,
    precision: u32,
    /// Whether a float has infinities.
    infinity: bool,
    saturates: bool,
    /// Whether kernels that reduce have entries of its own.
    common: bool,
    nccl: u32,
    in_nccl_tests: &'static str,
    tensor_map: u32,
    drawn: Drawn,
}

/// How inputs of a type are drawn, so that sums stay exact and order shows: see the harness's inputs and kernels/conformance/inputs.cuh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// Bits below which sums of tagged elements stay.
    pub tagged_bits: u32,
    /// Large values of a probe are `(1..=counts) * 2^large`, small ones `(1..=counts) * 2^small`. Scaled by the harness, neither overflows.
    pub large: i32,
    /// See `large`.
    pub counts: u32,
    /// See `large`.
    pub small: i32,
}

/// The kind of a type; a line of the table has the rest.
const fn kind(bytes: u64, is_float: bool, is_signed: bool, precision: u32) -> Facts {
    let drawn = Drawn { tagged_bits: 0, large: 0, counts: 0, small: 0 };
    let (name, common, nccl, in_nccl_tests, tensor_map) = ("", false, 0, "", 0);
    let (infinity, saturates) = (is_float, false);
    Facts { name, bytes, is_float, is_signed, precision, infinity, saturates, common, nccl, in_nccl_tests, tensor_map, drawn }
}

/// A binary float of `bytes` bytes and `precision` bits of significand, the implicit one included.
const fn float(bytes: u64, precision: u32) -> Facts {
    kind(bytes, true, true, precision)
}

/// An integer of `bytes` bytes.
const fn integer(bytes: u64, is_signed: bool) -> Facts {
    kind(bytes, false, is_signed, 8 * bytes as u32 - is_signed as u32)
}

impl DType {
    /// Those with entries of their own in kernels that reduce, for every operator of [`ReduceOp::COMMON`](super::ReduceOp::COMMON).
    pub const COMMON: [DType; 5] = {
        let (mut common, mut at, mut index) = ([DType::F32; 5], 0, 0);
        while index < FACTS.len() {
            if FACTS[index].common {
                common[at] = DType::ALL[index];
                at += 1;
            }
            index += 1;
        }
        assert!(at == common.len());
        common
    };

    /// Those with entries of their own for sums in kernels that have few: what most calls are.
    pub const FEW: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

    const fn facts(self) -> &'static Facts {
        &FACTS[self as usize]
    }

    /// Bytes of one element.
    pub const fn size(self) -> u64 {
        self.facts().bytes
    }

    /// The name in case ids, kernel entries and reports.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// Whether the type has rounding, signed zeros and NaN.
    pub const fn is_float(self) -> bool {
        self.facts().is_float
    }

    /// Whether the type has negative numbers.
    pub const fn is_signed(self) -> bool {
        self.facts().is_signed
    }

    /// Whether what overflows becomes the largest number rather than an infinity.
    pub const fn saturates(self) -> bool {
        self.facts().saturates
    }

    /// Whether it has infinities: every float but `e4m3`, of which only the last pattern of each sign is no number.
    pub const fn has_infinity(self) -> bool {
        self.facts().infinity
    }

    /// Bits of significand, the implicit one included; for integers, the bits that hold a magnitude.
    pub const fn precision(self) -> u32 {
        self.facts().precision
    }

    /// `ncclDataType_t` (nccl.h of 2.28).
    pub const fn nccl(self) -> u32 {
        self.facts().nccl
    }

    /// nccl-tests' name.
    pub const fn in_nccl_tests(self) -> &'static str {
        self.facts().in_nccl_tests
    }

    /// `CUtensorMapDataType` (cuda.h of 13.0). Of 8-bit types that of bytes: copies do not look into them.
    pub const fn tensor_map(self) -> u32 {
        self.facts().tensor_map
    }

    /// How inputs are drawn.
    pub const fn drawn(self) -> Drawn {
        self.facts().drawn
    }

    /// What kernels know it by, `Type` of common/dtypes.cuh: the logarithm of its size in the lower two bits, and above them its place among the types of
    /// that size.
    pub fn code(self) -> u32 {
        let of_size = DType::ALL.iter().filter(|dtype| dtype.size() == self.size());
        let place = of_size.take_while(|&&dtype| dtype != self).count() as u32;
        place << 2 | self.size().ilog2()
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = UnknownName;
    fn from_str(name: &str) -> Result<DType, UnknownName> {
        from_name(&DType::ALL, name, "dtype", |d| d.name())
    }
}

/// Finds the value called `name`.
///
/// # Errors
/// If there is none, what `what` may be.
pub fn from_name<T: Copy>(all: &[T], name: &str, what: &str, name_of: impl Fn(T) -> &'static str) -> Result<T, UnknownName> {
    let found = all.iter().copied().find(|&value| name_of(value) == name);
    found.ok_or_else(|| UnknownName::new(what, name, all.iter().map(|&value| name_of(value))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_say_what_is_allowed() {
        let allowed = "f32, f16, bf16, f64, i32, e4m3, e5m2, i8, u8, u32, i64, u64";
        assert_eq!(
            "f8".parse::<DType>().unwrap_err().to_string(),
            format!("unknown dtype `f8`: did you mean `i8` or `u8`? expected one of {allowed}")
        );
    }
}
