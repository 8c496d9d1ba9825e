//! What tensor cores compute: sums of products of which the ISA leaves order and width open.
//!
//! The ISA (9.7.14, 9.7.15) says that products are exact and sums at least of single precision, and no more. [`Rule::of`] says how Hopper does it, after published
//! measurements (Xie et al., "MMA-Sim", arXiv 2511.10909; Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores", arXiv 2512.07004): as many
//! products as fit into 32 bytes of a row are added at once, and the sum so far with them. Each is exact, and is shifted to the largest exponent among them; what falls below
//! [`Rule::fraction`] bits is cut off. The exponent of a product is the sum of its factors' exponents, whether or not their product carries; subnormals count with
//! the smallest normal exponent, and no sum is finer than one of exponent -126. The cut terms are added exactly, and the result is cut to f32, or rounded to nearest to f16.
//!
//! | types | unit | terms at once | fraction bits of a term | result |
//! |---|---|---|---|---|
//! | f16, bf16 | both | 16 | 25 | f32: 23 fraction bits, cut; f16: rounded to nearest even |
//! | tf32 | both | 8 | 25 | the same |
//! | e4m3, e5m2 | `wgmma` | 32 | 13 | f32: 13 fraction bits, cut; f16: rounded |
//! | e4m3, e5m2 | `mma.sync` | half of them, the first two of every four first | 25 | the same as of f16, of zero and the products; the sum so far is added last, rounded to nearest |
//! | s8, u8 | both | all | exact | modulo 2^32, or clamped with `.satfinite` |
//!
//! One H200 (driver 580.159.04) agreed to the bit on all that the ledger tried of it, but for `mma.sync` of FP8 and the sign of zeros in f16, which then were fitted to what it
//! gave. The papers have FP8 of `mma.sync` as one step of 32 terms; there it is products of halves.
//!
//! A NaN among the terms, an infinity times zero, and infinities of both signs give the canonical NaN; an infinity else gives it. Overflow gives infinity, also where the
//! result is cut. What is rounded or cut to zero is +0. f64 is a chain of fma in ascending order of k, which is in [`F64`](super::F64).
//!
//! [`Rule::bound`] is for those who must not depend on any of it, and [`Rule::drawn`] shows whether they do.

use super::{
    F16, F32, Float, Mode,
    format::{Format, Parts, Rounding},
};
use crate::choice::Choice;

/// What multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// `mma.sync`
    Warp,
    /// `wgmma.mma_async`
    Warpgroup,
}

/// The type of an element of a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// IEEE 754 binary16.
    F16,
    /// bfloat16.
    Bf16,
    /// The upper 19 bits of binary32; those below count for nothing.
    Tf32,
    /// FP8 with 4 bits of exponent.
    E4m3,
    /// FP8 with 5 bits of exponent.
    E5m2,
    /// Signed, 8 bits.
    S8,
    /// Unsigned, 8 bits.
    U8,
}

impl Element {
    /// Its width where it lies, in bits.
    pub fn bits(self) -> u32 {
        match self {
            Element::F16 | Element::Bf16 => 16,
            Element::Tf32 => 32,
            Element::E4m3 | Element::E5m2 | Element::S8 | Element::U8 => 8,
        }
    }

    /// Its format, and how many bits below it there are besides.
    fn format(self) -> Option<(Format, u32)> {
        Some(match self {
            Element::F16 => (Format::F16, 0),
            Element::Bf16 => (Format::BF16, 0),
            Element::Tf32 => (Format { exponent: 8, fraction: 10, infinity: true }, 13),
            Element::E4m3 => (Format::E4M3, 0),
            Element::E5m2 => (Format::E5M2, 0),
            Element::S8 | Element::U8 => return None,
        })
    }

    fn is_fp8(self) -> bool {
        matches!(self, Element::E4m3 | Element::E5m2)
    }
}

/// The type of sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sum {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16.
    F16,
    /// 32 bits, which wrap around or, where this is set, stop at the ends of the range.
    S32 {
        /// `.satfinite`
        saturate: bool,
    },
}

/// The most bits of a term below the largest one's leading bit for which 32 bits hold it.
const MOST_FRACTION: u32 = 28;

/// The most terms of a row of a factor.
pub const MOST_DEPTH: usize = 32;

/// A row of the first factor or a column of the second, as its bits.
pub type Elements = [u32; MOST_DEPTH];

/// How a unit adds products of two types of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    a: Element,
    b: Element,
    sum: Sum,
    /// Terms that are added at once.
    pub terms: usize,
    /// Bits of a term below the largest one's leading bit.
    pub fraction: u32,
    /// Bits of a result in f32 below its leading one.
    pub kept: u32,
    /// The products are those of halves: added up from zero, the first two of every four first, and the sum so far is added to the result.
    pub of_halves: bool,
    /// The order in which terms are added, where it is not that of k.
    order: Option<[u8; MOST_DEPTH]>,
}

impl Rule {
    /// How Hopper does it.
    pub fn of(unit: Unit, a: Element, b: Element, sum: Sum) -> Rule {
        let narrow = unit == Unit::Warpgroup && a.is_fp8();
        let of_halves = unit == Unit::Warp && a.is_fp8();
        let terms = if of_halves { 16 } else { 256 / a.bits() as usize };
        Rule { a, b, sum, terms, fraction: if narrow { 13 } else { 25 }, kept: if narrow { 13 } else { 23 }, of_halves, order: None }
    }

    /// One of the ways in which hardware may add `depth` products: in an order drawn by `choice`, one or more of them at once, and no less precise than
    /// additions in single precision, or than Hopper.
    pub fn drawn(self, choice: &mut Choice, depth: usize) -> Rule {
        if matches!(self.sum, Sum::S32 { .. }) {
            return self;
        }
        let mut order: [u8; MOST_DEPTH] = std::array::from_fn(|k| k as u8);
        for last in (1..depth).rev() {
            order.swap(last, choice.below(last + 1));
        }
        let order = Some(order);
        if self.kept < 23 && choice.below(2) == 0 {
            return Rule { order, ..self };
        }
        Rule { terms: 1 << choice.below(6), fraction: MOST_FRACTION, kept: 23, of_halves: false, order, ..self }
    }

    /// How far the result may be from the exact sum, for `products` products in any order. Their magnitudes and the first sum's add up to `magnitudes`.
    /// Each product is cut once, each step once more, and no step's largest term is above twice the sum of magnitudes.
    pub fn bound(&self, products: usize, magnitudes: f64) -> f64 {
        // Where it is added by itself, the sum so far is one step more of each product.
        let steps = products.div_ceil(if self.of_halves { self.terms / 4 } else { self.terms }) as f64;
        let cut = (2.0_f64).powi(1 - self.fraction as i32);
        let rounded = match self.sum {
            Sum::F32 => (2.0_f64).powi(-(self.kept as i32)),
            Sum::F16 => (2.0_f64).powi(-11),
            Sum::S32 { .. } => return 0.0,
        };
        // Nothing is finer than the unit of the smallest exponent.
        let smallest = (2.0_f64).powi(if self.sum == Sum::F16 { -25 } else { -149 });
        (cut * (products as f64 + steps) + rounded * steps) * magnitudes * (1.0 + rounded).powf(steps) + steps * smallest
    }
}

/// `sums[i][j] += sum of a[i][k] * b[j][k]` over the first `depth` of k, by rows of `b.len()` sums. Where `negated`, a or b has the other sign.
///
/// # Panics
/// Where there are not as many sums as pairs of rows, and where `depth` is more than [`MOST_DEPTH`].
pub fn multiply(rule: &Rule, depth: usize, [a, b]: [&[Elements]; 2], negated: [bool; 2], sums: &mut [u32]) {
    assert!(sums.len() == a.len() * b.len() && depth <= MOST_DEPTH, "{} sums of {} x {} rows of {depth}", sums.len(), a.len(), b.len());
    if let Sum::S32 { saturate } = rule.sum {
        let [a, b] = [(a, rule.a), (b, rule.b)].map(|(rows, element)| rows.iter().map(|row| integers(element, row)).collect::<Vec<_>>());
        for (sums, a) in sums.chunks_exact_mut(b.len()).zip(&a) {
            for (sum, b) in sums.iter_mut().zip(&b) {
                let products = a[..depth].iter().zip(&b[..depth]).map(|(a, b)| i64::from(a * b));
                let exact = i64::from(*sum as i32) + products.sum::<i64>();
                *sum = if saturate { exact.clamp(i32::MIN.into(), i32::MAX.into()) as u32 } else { exact as u32 };
            }
        }
        return;
    }
    let factors = |rows: &[Elements], element, negated| {
        let ordered = rows.iter().map(|row| match rule.order {
            _ if rule.of_halves => pairs_first(row, depth),
            Some(order) => order.map(|k| row[usize::from(k)]),
            None => *row,
        });
        let taken_apart = ordered.map(|row| Factors::of(element, &row, depth, negated));
        // What is subnormal in e4m3 is a normal half; what is subnormal in e5m2 is a subnormal one.
        let as_halves = |factors: Factors| if rule.of_halves && element == Element::E4m3 { factors.normalised(element) } else { factors };
        taken_apart.map(as_halves).collect::<Vec<_>>()
    };
    let (a, b) = (factors(a, rule.a, negated[0]), factors(b, rule.b, negated[1]));
    let shift = rule.fraction - fraction_of(rule.a) - fraction_of(rule.b);
    let terms_at_once = if rule.of_halves { depth / 2 } else { rule.terms };
    for (sums, a) in sums.chunks_exact_mut(b.len()).zip(&a) {
        for (sum, b) in sums.iter_mut().zip(&b) {
            // What lies outside a matrix is zeros, which is most of small ones: nothing added to nothing stays +0, whatever the rounding.
            if *sum == 0 && (a.zero && !b.special || b.zero && !a.special) {
                continue;
            }
            let before = if rule.of_halves { std::mem::take(sum) } else { 0 };
            for from in (0..depth).step_by(terms_at_once) {
                let terms = from..depth.min(from + terms_at_once);
                *sum = if a.special || b.special { None } else { add(rule, shift, terms.clone(), a, b, *sum) }
                    .unwrap_or_else(|| add_special(rule, terms, a, b, *sum, shift));
            }
            if rule.of_halves {
                *sum = match rule.sum {
                    Sum::F16 => F16::add(*sum as u16, before as u16, Mode::NEAREST).into(),
                    _ => F32::add(*sum, before, Mode::NEAREST),
                };
            }
        }
    }
}

/// The first two of every four elements, and then the others.
fn pairs_first(row: &Elements, depth: usize) -> Elements {
    let mut ordered = [0; MOST_DEPTH];
    let places = (0..depth).filter(|k| k % 4 < 2).chain((0..depth).filter(|k| k % 4 >= 2));
    ordered.iter_mut().zip(places).for_each(|(to, k)| *to = row[k]);
    ordered
}

fn integers(element: Element, row: &Elements) -> [i32; MOST_DEPTH] {
    row.map(|bits| if element == Element::S8 { i32::from(bits as u8 as i8) } else { (bits & 0xff) as i32 })
}

fn fraction_of(element: Element) -> u32 {
    element.format().map_or(0, |(format, _)| format.fraction)
}

/// The exponent of a zero: no product of it decides what others are shifted to.
const NOTHING: i32 = -1000;

/// The smallest exponent that a sum is shifted to.
const SMALLEST: i32 = -126;

/// A row of factors taken apart: signed significands with the format's fraction bits, and exponents.
struct Factors {
    significands: [i32; MOST_DEPTH],
    exponents: [i32; MOST_DEPTH],
    /// For an infinity its sign, for NaN 0.
    specials: [Option<i32>; MOST_DEPTH],
    special: bool,
    /// All are zero.
    zero: bool,
}

impl Factors {
    fn of(element: Element, row: &Elements, depth: usize, negated: bool) -> Factors {
        let mut factors = Factors {
            significands: [0; MOST_DEPTH],
            exponents: [NOTHING; MOST_DEPTH],
            specials: [None; MOST_DEPTH],
            special: false,
            zero: false,
        };
        let Some((format, below)) = element.format() else { return factors };
        let mask = u32::MAX >> (32 - format.bits());
        for (k, bits) in row[..depth].iter().enumerate() {
            let sign = |negative: bool| if negative != negated { -1 } else { 1 };
            match format.parts(u64::from(bits >> below & mask)) {
                Parts::Zero { .. } => {}
                Parts::Finite { negative, significand, exponent } => {
                    factors.significands[k] = sign(negative) * significand as i32;
                    factors.exponents[k] = exponent + format.fraction as i32;
                }
                Parts::Infinite { negative } => factors.specials[k] = Some(sign(negative)),
                Parts::Nan => factors.specials[k] = Some(0),
            }
        }
        factors.special = factors.specials.iter().any(Option::is_some);
        factors.zero = !factors.special && factors.significands == [0; MOST_DEPTH];
        factors
    }
}

impl Factors {
    /// The same numbers with a one before the point.
    fn normalised(mut self, element: Element) -> Factors {
        let leading = fraction_of(element);
        for (significand, exponent) in self.significands.iter_mut().zip(&mut self.exponents).filter(|(significand, _)| **significand != 0) {
            let up = leading.saturating_sub(significand.unsigned_abs().ilog2());
            *significand <<= up;
            *exponent -= up as i32;
        }
        self
    }
}

/// A sum so far, as a term: its significand with the fraction bits that follow, and its exponent. Nothing where it is no number.
fn term(sum: Sum, bits: u32) -> Option<(i64, i32, u32)> {
    let format = if sum == Sum::F16 { Format::F16 } else { Format::F32 };
    match format.parts(bits.into()) {
        Parts::Zero { .. } => Some((0, NOTHING, format.fraction)),
        Parts::Finite { negative, significand, exponent } => {
            let significand = if negative { -(significand as i64) } else { significand as i64 };
            Some((significand, exponent + format.fraction as i32, format.fraction))
        }
        Parts::Infinite { .. } | Parts::Nan => None,
    }
}

/// Adds some products to a sum; nothing where it is no number.
#[inline]
fn add(rule: &Rule, shift: u32, terms: std::ops::Range<usize>, a: &Factors, b: &Factors, sum: u32) -> Option<u32> {
    let (c, exponent, fraction) = term(rule.sum, sum)?;
    let (a_exponents, b_exponents) = (&a.exponents[terms.clone()], &b.exponents[terms.clone()]);
    let (a_significands, b_significands) = (&a.significands[terms.clone()], &b.significands[terms]);
    let mut largest = exponent.max(SMALLEST);
    for (a, b) in a_exponents.iter().zip(b_exponents) {
        largest = largest.max(a + b);
    }
    let mut total = 0_i64;
    for ((a, b), (a_exponent, b_exponent)) in a_significands.iter().zip(b_significands).zip(a_exponents.iter().zip(b_exponents)) {
        let product = a * b;
        let down = (largest - a_exponent - b_exponent).min(31);
        // Cut towards zero.
        let cut = (product.unsigned_abs() << shift >> down) as i32;
        let sign = product >> 31;
        total += i64::from((cut ^ sign) - sign);
    }
    let up = rule.fraction as i32 - fraction as i32;
    let down = (largest - exponent).min(63) as u32;
    let magnitude = if up >= 0 { c.unsigned_abs() << up >> down } else { c.unsigned_abs() >> -up >> down };
    total += if c < 0 { -(magnitude as i64) } else { magnitude as i64 };
    Some(rounded(rule, total, largest - rule.fraction as i32))
}

/// `total * 2^exponent` as a result.
fn rounded(rule: &Rule, total: i64, exponent: i32) -> u32 {
    let (negative, magnitude) = (total < 0, total.unsigned_abs());
    if rule.sum == Sum::F16 {
        let rounded = Format::F16.round(negative, magnitude.into(), exponent, false, Rounding::Nearest);
        return if rounded == Format::F16.sign() { 0 } else { rounded as u32 };
    }
    if magnitude == 0 {
        return 0;
    }
    let sign = u32::from(negative) << 31;
    let leading = exponent + magnitude.ilog2() as i32;
    if leading > 127 {
        return sign | 0x7f80_0000;
    }
    let unit = leading.max(SMALLEST) - 23;
    let cut = match unit - exponent {
        up @ ..=0 => magnitude << -up,
        down => magnitude >> down.min(63),
    };
    let field = (unit + 23 - SMALLEST) as u32;
    sign | ((cut as u32 & u32::MAX << (23 - rule.kept)) + (field << 23))
}

/// The same where an infinity or a NaN is among the terms.
#[cold]
fn add_special(rule: &Rule, terms: std::ops::Range<usize>, a: &Factors, b: &Factors, sum: u32, shift: u32) -> u32 {
    let format = if rule.sum == Sum::F16 { Format::F16 } else { Format::F32 };
    let nan = (format.sign() - 1) as u32;
    let mut infinity = match format.parts(sum.into()) {
        Parts::Nan => return nan,
        Parts::Infinite { negative } => Some(negative),
        _ => None,
    };
    for k in terms.clone() {
        let of = |factors: &Factors| factors.specials[k].unwrap_or(factors.significands[k].signum());
        if a.specials[k].is_none() && b.specials[k].is_none() {
            continue;
        }
        // NaN and zero are both no sign: with one of them there is an infinity or a NaN.
        let sign = of(a) * of(b);
        if sign == 0 || infinity.is_some_and(|negative| negative != (sign < 0)) {
            return nan;
        }
        infinity = Some(sign < 0);
    }
    match infinity {
        Some(negative) => format.above_largest() as u32 | if negative { format.sign() as u32 } else { 0 },
        // The special element is of another step.
        None => add(rule, shift, terms, a, b, sum).unwrap_or(nan),
    }
}
