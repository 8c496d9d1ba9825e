//! Binary floating-point formats as data: taking numbers apart, and rounding exact numbers into them.

/// How an inexact result is rounded; for integer results the PTX modifiers end in `i` (`.rni`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// `.rn`: to nearest, ties to even.
    #[default]
    Nearest,
    /// `.rz`: toward zero.
    Zero,
    /// `.rm`: toward negative infinity.
    Down,
    /// `.rp`: toward positive infinity.
    Up,
}

impl Rounding {
    /// All of them.
    pub const ALL: [Rounding; 4] = [Rounding::Nearest, Rounding::Zero, Rounding::Down, Rounding::Up];

    /// Whether a magnitude goes up that is `kept` units and some `rest`, compared with half a unit.
    pub(super) fn away(self, negative: bool, odd: bool, rest: Rest) -> bool {
        match self {
            Rounding::Nearest => rest == Rest::AboveHalf || (rest == Rest::Half && odd),
            Rounding::Zero => false,
            Rounding::Down => negative && rest != Rest::None,
            Rounding::Up => !negative && rest != Rest::None,
        }
    }
}

/// What rounding drops, in units of the last place that stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    None,
    BelowHalf,
    Half,
    AboveHalf,
}

/// Splits `value >> shift` from what it drops; `sticky` says that there was something below the last bit of `value` already.
pub(super) fn shift_right(value: u128, shift: u32, sticky: bool) -> (u128, Rest) {
    if shift == 0 {
        return (value, if sticky { Rest::BelowHalf } else { Rest::None });
    }
    if shift >= 128 {
        let rest = if value == 0 && !sticky { Rest::None } else { Rest::BelowHalf };
        return (0, rest);
    }
    let half = 1u128 << (shift - 1);
    let dropped = value & (half | (half - 1));
    let rest = match (dropped.cmp(&half), sticky) {
        (std::cmp::Ordering::Less, false) if dropped == 0 => Rest::None,
        (std::cmp::Ordering::Less, _) => Rest::BelowHalf,
        (std::cmp::Ordering::Equal, false) => Rest::Half,
        _ => Rest::AboveHalf,
    };
    (value >> shift, rest)
}

/// A binary format of at most 64 bits: sign, biased exponent, fraction. Subnormals are supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Bits of the exponent.
    pub exponent: u32,
    /// Bits of the fraction, without the implicit one.
    pub fraction: u32,
    /// Whether the top exponent means infinity and NaN; else (e4m3) only the all-ones pattern is NaN and there is no infinity.
    pub infinity: bool,
}

/// A number taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parts {
    Nan,
    Infinite {
        negative: bool,
    },
    Zero {
        negative: bool,
    },
    /// `significand * 2^exponent`, the significand not zero.
    Finite {
        negative: bool,
        significand: u64,
        exponent: i32,
    },
}

impl Format {
    /// IEEE 754 binary16.
    pub const F16: Format = Format { exponent: 5, fraction: 10, infinity: true };
    /// bfloat16.
    pub const BF16: Format = Format { exponent: 8, fraction: 7, infinity: true };
    /// IEEE 754 binary32.
    pub const F32: Format = Format { exponent: 8, fraction: 23, infinity: true };
    /// IEEE 754 binary64.
    pub const F64: Format = Format { exponent: 11, fraction: 52, infinity: true };
    /// `.e4m3`: largest 448, no infinity, NaN 0x7f and 0xff.
    pub const E4M3: Format = Format { exponent: 4, fraction: 3, infinity: false };
    /// `.e5m2`: largest 57344.
    pub const E5M2: Format = Format { exponent: 5, fraction: 2, infinity: true };

    /// Width in bits.
    pub const fn bits(self) -> u32 {
        1 + self.exponent + self.fraction
    }

    /// The bit that is the sign.
    pub const fn sign(self) -> u64 {
        1 << (self.exponent + self.fraction)
    }

    /// The largest finite number's bits.
    pub const fn largest(self) -> u64 {
        self.above_largest() - 1
    }

    /// The pattern above the largest finite number: infinity, or e4m3's NaN.
    pub(super) const fn above_largest(self) -> u64 {
        let ones = (1 << self.exponent) - 1;
        if self.infinity { ones << self.fraction } else { self.sign() - 1 }
    }

    /// The exponent of the smallest normal number.
    const fn smallest_exponent(self) -> i32 {
        2 - (1 << (self.exponent - 1))
    }

    /// The one's bits.
    pub(super) const fn one(self) -> u64 {
        ((1 << (self.exponent - 1)) - 1) << self.fraction
    }

    /// Takes a number apart.
    pub(super) fn parts(self, bits: u64) -> Parts {
        let negative = bits & self.sign() != 0;
        let magnitude = bits & (self.sign() - 1);
        if magnitude > self.largest() {
            return if self.infinity && magnitude == self.above_largest() { Parts::Infinite { negative } } else { Parts::Nan };
        }
        if magnitude == 0 {
            return Parts::Zero { negative };
        }
        let biased = (magnitude >> self.fraction) as i32;
        let fraction = magnitude & ((1 << self.fraction) - 1);
        let implicit = u64::from(biased != 0) << self.fraction;
        let exponent = biased.max(1) - 1 + self.smallest_exponent() - self.fraction as i32;
        Parts::Finite { negative, significand: fraction | implicit, exponent }
    }

    /// Rounds `significand * 2^exponent` into the format. With `sticky` the number is a little larger in magnitude, by less than one unit of
    /// the significand, which then must have two bits more than the format. Overflow goes to infinity or to the largest finite number, as
    /// IEEE 754 has it for the rounding; e4m3 stops at its largest number.
    pub(super) fn round(self, negative: bool, significand: u128, exponent: i32, sticky: bool, rounding: Rounding) -> u64 {
        let sign = if negative { self.sign() } else { 0 };
        if significand == 0 {
            return sign;
        }
        let leading = exponent + significand.ilog2() as i32;
        let unit = leading.max(self.smallest_exponent()) - self.fraction as i32;
        let (mut kept, rest) = match unit - exponent {
            shift @ ..=0 => (significand << -shift, Rest::None),
            shift => shift_right(significand, shift as u32, sticky),
        };
        kept += u128::from(rounding.away(negative, kept & 1 == 1, rest));
        // A subnormal's exponent field is zero; the implicit one and a carry out of the fraction add themselves to the field.
        let field = (unit + self.fraction as i32 - self.smallest_exponent()) as u64;
        let magnitude = kept as u64 + field.min(1 << self.exponent).wrapping_shl(self.fraction);
        if magnitude <= self.largest() { sign | magnitude } else { sign | self.overflow(negative, rounding) }
    }

    /// The magnitude that an overflow gives.
    fn overflow(self, negative: bool, rounding: Rounding) -> u64 {
        let away = match rounding {
            Rounding::Nearest => true,
            Rounding::Zero => false,
            Rounding::Down => negative,
            Rounding::Up => !negative,
        };
        if away && self.infinity { self.above_largest() } else { self.largest() }
    }
}
