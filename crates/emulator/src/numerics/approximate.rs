//! The `.approx` instructions in f32 (PTX ISA 9.7.3).
//!
//! Hardware evaluates them from tables that are not public; the ISA gives bounds. What is here is the correctly rounded result, which keeps
//! every bound but need not have hardware's bits. Before you compare bits, ask [`Approximation::bound`]. It is computed in integers and by
//! IEEE operations, never by the host's C library.

use super::{
    float::{Divide, F32, Float, Mode},
    format::{Format, Parts, Rounding},
};

/// An approximate function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Approximation {
    /// `rcp.approx.f32`: `1 / a`.
    Rcp,
    /// `rsqrt.approx.f32`: `1 / sqrt(a)`.
    Rsqrt,
    /// `sqrt.approx.f32`.
    Sqrt,
    /// `ex2.approx.f32`: `2^a`.
    Ex2,
    /// `lg2.approx.f32`: the logarithm to base 2.
    Lg2,
}

impl Approximation {
    /// How far hardware may be from the exact result.
    pub const fn bound(self) -> Bound {
        match self {
            Approximation::Rcp => Bound::Ulps(1),
            Approximation::Rsqrt => Bound::Relative { error: 1.277_653_5e-7, written: "2^-22.9" },
            Approximation::Sqrt => Bound::Relative { error: 1.192_092_9e-7, written: "2^-23" },
            Approximation::Ex2 => Bound::Ulps(2),
            Approximation::Lg2 => Bound::Logarithm,
        }
    }
}

/// How far the result of an approximate instruction may be from the exact one: the ISA's bounds (9.7.3, of each instruction), noted from
/// memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Units in the last place.
    Ulps(u32),
    /// Error over the exact result.
    Relative {
        /// The largest.
        error: f64,
        /// The same as a power.
        written: &'static str,
    },
    /// `lg2.approx`: absolute error 2^-22 for operands from 0.5 to 2, relative error 2^-22 elsewhere.
    Logarithm,
    /// `div.approx`: 2 ulp for divisors from 2^-126 to 2^126 in magnitude. Beyond, the ISA gives the result; below, it says nothing.
    Quotient,
}

impl Bound {
    /// Of `div.approx.f32`.
    pub const DIVIDE_APPROXIMATELY: Bound = Bound::Quotient;
    /// Of `div.full.f32`.
    pub const DIVIDE_FULL_RANGE: Bound = Bound::Ulps(2);

    /// Whether `got` keeps the bound, where `nearest` is the exact result rounded to nearest. What `nearest` has of its own rounding is
    /// allowed for. `last` is the instruction's last operand: the number, or the divisor. No NaN keeps a bound.
    ///
    /// ```
    /// use passmuster_emulator::numerics::Bound;
    /// let two_ulps = |got: u32| Bound::Ulps(2).holds(0, 0x3f80_0000, got);
    /// assert!(two_ulps(0x3f80_0002) && two_ulps(0x3f7f_fffe) && !two_ulps(0x3f80_0003));
    /// ```
    pub fn holds(self, last: u32, nearest: u32, got: u32) -> bool {
        let (exact, value) = (f64::from(f32::from_bits(nearest)), f64::from(f32::from_bits(got)));
        if nearest == got || exact.is_nan() || value.is_nan() {
            return nearest == got && !exact.is_nan();
        }
        let half_ulp = f64::from(f32::from_bits((nearest & 0x7f80_0000).max(0x0080_0000))) / f64::from(1 << 24);
        let absolute = |error: f64| exact.is_finite() && (value - exact).abs() <= error + half_ulp;
        let ulps = |most: u32| (nearest ^ got) >> 31 == 0 && nearest.abs_diff(got) <= most;
        let operand = f32::from_bits(last);
        match self {
            Bound::Ulps(most) => ulps(most),
            Bound::Relative { error, .. } => exact != 0.0 && absolute(error * exact.abs()),
            Bound::Logarithm if operand > 0.5 && operand < 2.0 => absolute(TWO_TO_MINUS_22),
            Bound::Logarithm => absolute(TWO_TO_MINUS_22 * exact.abs()),
            Bound::Quotient => (last & 0x7fff_ffff) <= 0x7e80_0000 && ulps(2),
        }
    }

    /// Whether the ISA says nothing of the result for this last operand.
    pub fn says_nothing(self, last: u32) -> bool {
        self == Bound::Quotient && (1..0x0080_0000).contains(&(last & 0x7fff_ffff))
    }
}

const TWO_TO_MINUS_22: f64 = 1.0 / 4_194_304.0;

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Bound::Ulps(most) => write!(f, "{most} ulp"),
            Bound::Relative { written, .. } => write!(f, "relative {written}"),
            Bound::Logarithm => f.write_str("2^-22, relative outside 0.5 to 2"),
            Bound::Quotient => f.write_str("2 ulp for normal divisors"),
        }
    }
}

/// The correctly rounded (to nearest even) result of an approximate instruction. Of `mode` only `.ftz` counts.
pub fn approximate(function: Approximation, a: u32, mode: Mode) -> u32 {
    let mode = Mode { ftz: mode.ftz, ..Mode::NEAREST };
    let a = if mode.ftz { F32::flush(a) } else { a };
    let result = match function {
        Approximation::Rcp => F32::rcp(a, mode),
        Approximation::Sqrt => F32::sqrt(a, mode),
        Approximation::Rsqrt => reciprocal_root(a),
        Approximation::Ex2 => power_of_two(a),
        Approximation::Lg2 => logarithm(a),
    };
    F32::finish(result, mode)
}

const INFINITY: u32 = 0x7f80_0000;

fn reciprocal_root(a: u32) -> u32 {
    match Format::F32.parts(a.into()) {
        Parts::Zero { .. } => a | INFINITY,
        Parts::Infinite { negative: false } => 0,
        Parts::Finite { negative: false, significand, exponent } => {
            // 1 / sqrt(s 2^e) = sqrt(2^k / s) 2^(-(k + e) / 2), for the k of 126 and 127 that makes the exponent whole.
            let k = if exponent % 2 == 0 { 126 } else { 127 };
            let root = ((1u128 << k) / u128::from(significand)).isqrt();
            let inexact = root * root * u128::from(significand) != 1 << k;
            Format::F32.round(false, root, -(k + exponent) / 2, inexact, Rounding::Nearest) as u32
        }
        _ => F32::NAN,
    }
}

/// ln 2, in units of 2^-64.
const LN_2: u128 = 0xb172_17f7_d1cf_79ac;

/// 2 / ln 2, in units of 2^-62.
const TWO_OVER_LN_2: u128 = 0xb8aa_3b29_5c17_f0bc;

fn power_of_two(a: u32) -> u32 {
    let x = f32::from_bits(a);
    match x {
        _ if x.is_nan() => F32::NAN,
        _ if x >= 128.0 => INFINITY,
        _ if x < -151.0 => 0,
        _ if x.abs() < f32::from_bits(0x3280_0000) => 1f32.to_bits(), // below 2^-26: within half an ulp of 1
        _ => {
            // No bit of x is below 2^-49, so this is exact.
            let fixed = (f64::from(x) * f64::from_bits(0x43f0_0000_0000_0000)) as i128;
            let (whole, fraction) = ((fixed >> 64) as i32, fixed as u64);
            let power = (u128::from(fraction) * LN_2) >> 64;
            let mut term = 1u128 << 64;
            let mut sum = term;
            for i in 1..=24 {
                term = ((term * power) >> 64) / i;
                sum += term;
            }
            Format::F32.round(false, sum, whole - 64, fraction != 0, Rounding::Nearest) as u32
        }
    }
}

fn logarithm(a: u32) -> u32 {
    let (significand, exponent) = match Format::F32.parts(a.into()) {
        Parts::Zero { .. } => return 0xff80_0000,
        Parts::Infinite { negative: false } => return INFINITY,
        Parts::Finite { negative: false, significand, exponent } => (significand, exponent),
        _ => return F32::NAN,
    };
    // a = m 2^whole with m from sqrt(1/2) to sqrt(2), as significand / one.
    let top = significand.ilog2();
    let above = u128::from(significand).pow(2) >= 2 << (2 * top);
    let one = 1u64 << (top + u32::from(above));
    let whole = exponent + one.ilog2() as i32;
    if significand == one {
        return (whole as f32).to_bits();
    }
    // log2 m = 2 / ln 2 atanh z with z = (m - 1) / (m + 1) = quotient 2^-places, the quotient of 62 or 63 bits.
    let negative = significand < one;
    let (difference, sum) = (significand.abs_diff(one), significand + one);
    let places = 62 + sum.ilog2() - difference.ilog2();
    let quotient = (u128::from(difference) << places) / u128::from(sum);
    let square = (quotient * quotient).checked_shr(2 * places - 64).unwrap_or(0);
    let series = (0..16).rev().fold(0u128, |series, k| (1 << 62) / (2 * k + 1) + ((series * square) >> 64));
    let product = quotient * ((series * TWO_OVER_LN_2) >> 62);
    if whole == 0 {
        return Format::F32.round(negative, product, -(places as i32 + 62), true, Rounding::Nearest) as u32;
    }
    let part = (product >> (places - 2)) as i128;
    let total = (i128::from(whole) << 64) + if negative { -part } else { part };
    Format::F32.round(total < 0, total.unsigned_abs(), -64, true, Rounding::Nearest) as u32
}
