//! Reduction operators and what a reduction ought to give: the reference of one order, and the bound that any order must keep.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{
    dtype::{DType, from_name},
    element::Element,
};
use crate::with_element;
use crate::words::UnknownName;

/// How the ranks' elements are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReduceOp {
    /// The sum.
    Sum,
    /// The smallest; NaN only where all are NaN.
    Min,
    /// The largest; NaN only where all are NaN.
    Max,
    /// The sum divided by the world size; integers truncate toward zero, after a sum that wraps.
    Avg,
    /// The product.
    Prod,
    /// The sum of every rank's elements times a factor of the rank's own ([`premultiply`]), as NCCL's `ncclRedOpCreatePreMulSum` has it. Where
    /// values are reduced with it, they are the products.
    PremulSum,
    /// Nothing is combined: elements of one rank are passed on bit by bit. The operator of the collectives that only move data, and of
    /// no other.
    Copy,
}

impl ReduceOp {
    /// Every operator that reduces, in the order of reports.
    pub const ALL: [ReduceOp; 6] = [ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg, ReduceOp::Prod, ReduceOp::PremulSum];

    /// Those with entries of their own in kernels that reduce, for every type of [`DType::COMMON`].
    pub const COMMON: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];

    /// The name in case ids, kernel entries and reports.
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::Avg => "avg",
            ReduceOp::Prod => "prod",
            ReduceOp::PremulSum => "premul_sum",
            ReduceOp::Copy => "copy",
        }
    }

    /// Whether elements of several ranks become one.
    pub const fn reduces(self) -> bool {
        !matches!(self, ReduceOp::Copy)
    }

    /// Whether elements are added, so that the result is linear in them.
    pub const fn adds(self) -> bool {
        matches!(self, ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum)
    }

    /// Whether floats are rounded when they are combined, so that the order matters.
    pub const fn rounds(self) -> bool {
        self.adds() || matches!(self, ReduceOp::Prod)
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ReduceOp {
    type Err = UnknownName;
    fn from_str(name: &str) -> Result<ReduceOp, UnknownName> {
        let all: Vec<ReduceOp> = ReduceOp::ALL.into_iter().chain([ReduceOp::Copy]).collect();
        from_name(&all, name, "operator", |op| op.name())
    }
}

/// Reduces `values` in the order given, in the accumulator's type, and rounds once. A copy is the first of them, as it is.
///
/// # Panics
/// If `values` is empty: a group has at least one rank.
pub fn reduce_in_order<T: Element>(op: ReduceOp, values: &[T]) -> T {
    let combine = match op {
        ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum => T::add,
        ReduceOp::Prod => T::multiply,
        ReduceOp::Min => T::min,
        ReduceOp::Max => T::max,
        ReduceOp::Copy => return *values.first().expect("a group has at least one rank"),
    };
    let acc = values.iter().map(|value| value.widen()).reduce(combine).expect("a group has at least one rank");
    T::narrow(if op == ReduceOp::Avg { T::divide(acc, values.len() as u32) } else { acc })
}

/// An element times a factor, multiplied in the accumulator's type and rounded to the element type; integers wrap.
pub fn multiplied<T: Element>(value: T, factor: T) -> T {
    T::narrow(T::multiply(value.widen(), factor.widen()))
}

/// What a rank contributes to a [`ReduceOp::PremulSum`]: its input, little endian, [element by element](multiplied) times the factor whose bits these are.
pub fn premultiply(dtype: DType, factor: u64, input: &[u8]) -> Vec<u8> {
    let size = dtype.size() as usize;
    with_element!(dtype, T => {
        let products = input.chunks_exact(size).map(|element| multiplied(T::from_bytes(element), T::of_bits(factor)));
        products.flat_map(|product| product.bits().to_le_bytes().into_iter().take(size)).collect()
    })
}

/// Reduces `values` in the order given, rounding to the element type at every step, as a ring in the element type does.
/// The average is divided at the end.
pub fn reduce_per_hop<T: Element>(op: ReduceOp, values: &[T]) -> T {
    if !op.rounds() {
        return reduce_in_order(op, values);
    }
    let combine = if op == ReduceOp::Prod { T::multiply } else { T::add };
    let reduced = values.iter().copied().reduce(|a, b| T::narrow(combine(a.widen(), b.widen()))).expect("a group has at least one rank");
    if op == ReduceOp::Avg { T::narrow(T::divide(reduced.widen(), values.len() as u32)) } else { reduced }
}

/// Where sums and products round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Roundings {
    /// Accumulated in a wider type, rounded to the element type once.
    Once,
    /// The same, but each step and the rounding to the element type may go to either of the two neighbours, not only to the nearest.
    OnceToNeighbour,
    /// Rounded to the element type at each step.
    PerHop,
}

/// The exact result of a reduction and how far a conforming one may be from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounded {
    /// The exact value, to about 106 bits before it is stored here.
    pub exact: f64,
    /// The largest allowed `|got - exact|`; zero where the result is exact in any order.
    pub bound: f64,
}

/// The exact result over `values` and the a-priori bound on the error of a reduction in any order.
///
/// Sums of `W` elements, with `u` the unit roundoff of the element type, `A` the sum of magnitudes, `eta` the smallest subnormal:
/// rounding per hop errs by at most `(W-1) u A` (Lange and Rump, BIT 57, 2017, 927-941); accumulating in f32 and rounding once by at most
/// `u |s| + (1+u)(W-1) 2^-24 A + eta/2`, where each unit is twice as large if roundings may go to either neighbour. The average adds the error
/// of the division (or of a multiplication by the rounded inverse, which libraries do before or after the sum). A pre-multiplied sum adds, for each
/// rank, two roundings of its product: the one that `values` have been through, and the one that the reduction may do instead, or leave out where
/// it multiplies and adds at once. Products have a bound of their own. Returns `None` where no bound holds: a NaN or an infinity among the inputs, or magnitudes that can overflow on the way.
pub fn bounded<T: Element>(op: ReduceOp, roundings: Roundings, values: &[T]) -> Option<Bounded> {
    if values.iter().any(|v| !v.to_f64().is_finite()) {
        return None;
    }
    if !op.rounds() || !T::DTYPE.is_float() {
        return Some(Bounded { exact: reduce_in_order(op, values).to_f64(), bound: 0.0 });
    }
    if op == ReduceOp::Prod {
        return bounded_product(roundings, values);
    }
    let world = values.len() as f64;
    let magnitudes: f64 = values.iter().map(|v| v.to_f64().abs()).sum();
    if magnitudes >= largest(T::DTYPE) {
        return None;
    }
    let either = if roundings == Roundings::OnceToNeighbour { 2.0 } else { 1.0 };
    let unit = either * unit_roundoff(T::DTYPE);
    let acc_unit = if T::DTYPE == DType::F64 { unit } else { either * unit_roundoff(DType::F32) };
    let sum = sum_twice(values.iter().map(|v| v.to_f64()));
    let hops = world - 1.0;
    let (exact, magnitudes) = if op == ReduceOp::Avg { (sum / world, magnitudes / world) } else { (sum, magnitudes) };
    let mut bound = match roundings {
        Roundings::PerHop => hops * unit * magnitudes,
        Roundings::Once | Roundings::OnceToNeighbour => unit * exact.abs() + (1.0 + unit) * hops * acc_unit * magnitudes,
    };
    if op == ReduceOp::Avg {
        // The division, or W products with an inverse that is itself rounded: at most three more roundings of relative size.
        bound += match roundings {
            Roundings::PerHop => 3.0 * unit * magnitudes,
            Roundings::Once | Roundings::OnceToNeighbour => 3.0 * acc_unit * magnitudes,
        };
    }
    if op == ReduceOp::PremulSum {
        // Each product may be larger by a rounding than the one at hand, and what is said above of their sum with it.
        bound += 2.0 * unit * (1.0 + world * unit) * magnitudes;
    }
    // Gradual underflow: each rounding to the element type may lose half of the smallest subnormal.
    let roundings_of_products = if op == ReduceOp::PremulSum { 2.0 * world } else { 0.0 };
    let roundings_to_type = roundings_of_products
        + match roundings {
            Roundings::Once => 1.0,
            Roundings::OnceToNeighbour => 2.0,
            Roundings::PerHop => 2.0 * world,
        };
    let own_error = 4.0 * f64::EPSILON * f64::EPSILON * magnitudes + exact.abs() * f64::EPSILON * 0.5;
    let own_error = if T::DTYPE == DType::F64 { own_error } else { exact.abs() * f64::EPSILON };
    Some(Bounded { exact, bound: bound + roundings_to_type * smallest_subnormal(T::DTYPE) * 0.5 + own_error })
}

/// The same for a product of finite numbers. With `n` roundings of unit `u` on the way, and `P` the product of the magnitudes above 1, which no partial product
/// exceeds: each rounding errs by `u` of the partial product or, below the normal numbers, by `eta/2`, and the factors that are still to come make
/// at most `P` of that. So the error is at most `((1+u)^n - 1) |exact| + n (1+u)^n P eta/2`.
fn bounded_product<T: Element>(roundings: Roundings, values: &[T]) -> Option<Bounded> {
    let (unit, eta) = (unit_roundoff(T::DTYPE), smallest_subnormal(T::DTYPE));
    let hops = values.len() as f64 - 1.0;
    let (acc_unit, acc_eta) = match T::DTYPE {
        DType::F64 => (unit, eta),
        _ => (unit_roundoff(DType::F32), smallest_subnormal(DType::F32)),
    };
    let either = if roundings == Roundings::OnceToNeighbour { 2.0 } else { 1.0 };
    let (unit, acc_unit) = (either * unit, either * acc_unit);
    // What one step may add relatively and absolutely, and what the rounding to the element type does at the end.
    let (step, step_eta, end, end_eta) = match roundings {
        Roundings::PerHop => (unit, eta, 0.0, 0.0),
        Roundings::Once | Roundings::OnceToNeighbour => (acc_unit, acc_eta, unit, eta),
    };
    let growth = (hops * step.ln_1p() + end.ln_1p()).exp();
    let above_one: f64 = values.iter().map(|v| v.to_f64().abs().max(1.0)).product();
    if above_one * growth >= largest(T::DTYPE) {
        return None;
    }
    let exact: f64 = values.iter().map(|v| v.to_f64()).product();
    let absolute = either * 0.5 * growth * (hops * above_one * step_eta + end_eta);
    // The product in f64 errs as well; so does one that libraries form in a type between the two.
    let own_error = values.len() as f64 * (f64::EPSILON * exact.abs() + f64::from_bits(1) * above_one);
    Some(Bounded { exact, bound: (growth - 1.0) * exact.abs() + absolute + own_error })
}

/// Half of the distance between 1 and the next number.
pub fn unit_roundoff(dtype: DType) -> f64 {
    (-f64::from(dtype.precision())).exp2()
}

/// The smallest positive number of the type; 0 for integers.
pub fn smallest_subnormal(dtype: DType) -> f64 {
    if dtype.is_float() { with_element!(dtype, T => T::of_bits(1).to_f64()) } else { 0.0 }
}

/// The largest finite number of the type; of 64-bit integers, as near as f64 comes to it.
pub fn largest(dtype: DType) -> f64 {
    if !dtype.is_float() {
        return (u64::MAX >> (u64::BITS - dtype.precision())) as f64;
    }
    with_element!(dtype, T => T::of_bits(largest_bits(dtype)).to_f64())
}

/// The bits of a float's largest finite number: those before infinity, or before the last pattern of a type that has none.
pub const fn largest_bits(dtype: DType) -> u64 {
    let sign = 1u64 << (8 * dtype.size() - 1);
    if dtype.has_infinity() { sign - (1 << (dtype.precision() - 1)) - 1 } else { sign - 2 }
}

/// The sum as if computed in twice the precision of f64 and rounded once (Ogita, Rump, Oishi: Sum2).
fn sum_twice(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0f64);
    for value in values {
        let next = sum + value;
        let back = next - sum;
        lost += (sum - (next - back)) + (value - back);
        sum = next;
    }
    sum + lost
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::{E4M3, E5M2};
    use approx::assert_relative_eq;
    use half::bf16;
    use proptest::prelude::*;
    use rstest::rstest;

    #[test]
    fn order_decides_what_a_large_pair_swallows() {
        let probe = [2f32.powi(30), 1.0, -(2f32.powi(30)), 2.0];
        assert_eq!(reduce_in_order(ReduceOp::Sum, &probe), 2.0);
        assert_eq!(reduce_in_order(ReduceOp::Sum, &[probe[0], probe[2], probe[1], probe[3]]), 3.0);
    }

    #[test]
    fn sixteen_bit_floats_round_once() {
        // 256 + 1 + 1: each 1 is lost when the sum is rounded to bf16 (8 bits) at every hop.
        let values = [256.0, 1.0, 1.0].map(bf16::from_f32);
        assert_eq!(reduce_in_order(ReduceOp::Sum, &values).to_f32(), 258.0);
        assert_eq!(reduce_per_hop(ReduceOp::Sum, &values).to_f32(), 256.0);
    }

    #[rstest]
    #[case::all_negative_zero(&[-0.0, -0.0], -0.0)]
    #[case::one_positive_zero(&[-0.0, 0.0], 0.0)]
    fn sums_keep_the_sign_of_zero(#[case] values: &[f32], #[case] sum: f32) {
        assert_eq!(reduce_in_order(ReduceOp::Sum, values).to_bits(), sum.to_bits());
    }

    #[test]
    fn exact_sum_keeps_what_f64_addition_loses() {
        assert_relative_eq!(sum_twice([1e16, 1.0, 1.0, -1e16].into_iter()), 2.0);
    }

    #[test]
    fn no_bound_where_the_result_may_overflow() {
        assert_eq!(bounded(ReduceOp::Sum, Roundings::Once, &[f32::MAX, f32::MAX]), None);
        assert_eq!(bounded(ReduceOp::Sum, Roundings::Once, &[f32::NAN, 1.0]), None);
    }

    fn keeps_its_bound<T: Element>(op: ReduceOp, values: &[T], orders: &[usize]) -> Result<(), TestCaseError> {
        let shuffled: Vec<T> = orders.iter().map(|&i| values[i]).collect();
        for (roundings, got) in [(Roundings::Once, reduce_in_order(op, &shuffled)), (Roundings::PerHop, reduce_per_hop(op, &shuffled))] {
            if let Some(bounded) = bounded(op, roundings, values) {
                let error = (got.to_f64() - bounded.exact).abs();
                prop_assert!(error <= bounded.bound, "{op} {roundings:?} {shuffled:?}: error {error:e}, bound {:e}", bounded.bound);
            }
        }
        Ok(())
    }

    proptest! {
        /// A bound that a conforming reduction can exceed would raise false alarms.
        #[test]
        fn conforming_reductions_keep_their_bounds(
            raw in proptest::collection::vec(any::<u64>(), 1..=8),
            op in proptest::sample::select(&ReduceOp::ALL[..]),
            seed in any::<u64>(),
        ) {
            let mut orders: Vec<usize> = (0..raw.len()).collect();
            orders.sort_by_key(|&i| (i as u64).wrapping_mul(seed | 1));
            let floats: Vec<f64> = raw.iter().map(|&bits| f64::from_bits(bits & !(0x7 << 60)) * if bits & 1 == 0 { 1.0 } else { 1e3 }).collect();
            keeps_its_bound(op, &floats, &orders)?;
            let narrow: Vec<bf16> = raw.iter().map(|&bits| bf16::from_bits(bits as u16)).collect();
            keeps_its_bound(op, &narrow, &orders)?;
            let half: Vec<half::f16> = raw.iter().map(|&bits| half::f16::from_bits(bits as u16)).collect();
            keeps_its_bound(op, &half, &orders)?;
            let single: Vec<f32> = raw.iter().map(|&bits| f32::from_bits(bits as u32)).collect();
            keeps_its_bound(op, &single, &orders)?;
            let e4m3: Vec<E4M3> = raw.iter().map(|&bits| E4M3::from_bits(bits as u8)).collect();
            keeps_its_bound(op, &e4m3, &orders)?;
            let e5m2: Vec<E5M2> = raw.iter().map(|&bits| E5M2::from_bits(bits as u8)).collect();
            keeps_its_bound(op, &e5m2, &orders)?;
        }
    }
}
