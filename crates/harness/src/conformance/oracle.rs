//! What a contract allows for given inputs: one answer to the bit, one of the rotations' answers, or a distance from the exact result.

use std::fmt;

use super::inputs::{Format, InputClass};
use passmuster_plan::{
    collective::{Bounded, DType, Element, ReduceOp, Roundings, bounded, largest, reduce_in_order, reduce_per_hop},
    contract::{Contract, Order},
    plan::MAX_RANKS,
};

/// How the elements of one call are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Oracle {
    op: ReduceOp,
    rule: Rule,
    /// Whether special values are among the inputs, and whether the contract says what becomes of them.
    specials: Specials,
    /// Whether the contract says which sign a zero has. Zeros come about from any inputs.
    signed_zeros: bool,
}

/// What a conforming element is measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The bits of the one element that is copied, payloads of NaN included; its value, zeros of either sign being equal, where the contract promises nothing
    /// about special values.
    Copied,
    /// The bits of the rank-ascending reference; its value, zeros of either sign being equal, where the contract promises nothing about special values.
    Ordered(Roundings),
    /// The value of the rank-ascending reference: every order gives it. Zeros of either sign are equal.
    Exact,
    /// The value of one of the references that start at some rank and go round. Zeros of either sign are equal.
    Rotations(Roundings),
    /// As `Bound`, but of the results of this many nodes. Each result is the rank-ascending reference of the node's ranks, rounded once.
    ByNode(u32, Roundings),
    /// The a-priori bound on the distance from the exact result ([`bounded`]).
    Bound(Roundings),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Specials {
    Absent,
    Promised,
    Open,
}

/// Chooses the sharpest rule that the contract supports for a class of inputs.
///
/// Where [every order gives the same](is_exact), that is the rule. Where the contract promises nothing about special values, elements
/// whose inputs are finite and cannot overflow are held to the bound, with subnormals possibly flushed; the rest is not judged.
pub fn oracle(contract: &Contract, op: ReduceOp, dtype: DType, class: InputClass) -> Oracle {
    let specials = match class {
        InputClass::Special if dtype.is_float() && contract.special_values => Specials::Promised,
        InputClass::Special if dtype.is_float() => Specials::Open,
        _ => Specials::Absent,
    };
    let exact = is_exact(op, dtype, class);
    let rule = match contract.order {
        Order::Copied => Rule::Copied,
        _ if specials == Specials::Open => Rule::Bound(contract.roundings),
        Order::RankAscending => Rule::Ordered(contract.roundings),
        _ if exact => Rule::Exact,
        Order::AnyRotation => Rule::Rotations(contract.roundings),
        Order::ByNode(nodes) => Rule::ByNode(nodes, contract.roundings),
        Order::Any => Rule::Bound(contract.roundings),
    };
    Oracle { op, rule, specials, signed_zeros: contract.special_values }
}

/// Whether reductions come out the same in every order: minima, maxima, integers and tagged sums, of products too.
pub(super) fn is_exact(op: ReduceOp, dtype: DType, class: InputClass) -> bool {
    !op.rounds() || !dtype.is_float() || (matches!(op, ReduceOp::Sum | ReduceOp::PremulSum) && class == InputClass::Tagged)
}

impl Oracle {
    /// What it measures by.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// What the element reduced from `inputs`, one a rank, may be.
    ///
    /// # Panics
    /// If there is no input, or more than [`MAX_RANKS`].
    pub fn expect<T: Element>(&self, inputs: &[T]) -> Expected<T> {
        match self.rule {
            Rule::Copied if self.signed_zeros => Expected::Copy(inputs[0]),
            Rule::Copied => self.expect_copy(inputs[0]),
            Rule::Ordered(roundings) => {
                let want = reduce(self.op, roundings, inputs);
                if self.signed_zeros { Expected::Bits(want) } else { Expected::Value(want) }
            }
            Rule::Exact => Expected::Value(reduce_in_order(self.op, inputs)),
            Rule::Rotations(roundings) => {
                let mut values = [inputs[0]; MAX_RANKS];
                let mut turned = values;
                let turned = &mut turned[..inputs.len()];
                turned.copy_from_slice(inputs);
                for value in &mut values[..inputs.len()] {
                    *value = reduce(self.op, roundings, turned);
                    turned.rotate_left(1);
                }
                Expected::OneOf { values, count: inputs.len() }
            }
            Rule::ByNode(nodes, roundings) => {
                let mut results = [inputs[0]; MAX_RANKS];
                let results = &mut results[..nodes as usize];
                for (result, of_node) in results.iter_mut().zip(inputs.chunks(inputs.len() / nodes as usize)) {
                    *result = reduce_in_order(self.op, of_node);
                }
                self.expect_bounded(roundings, results)
            }
            Rule::Bound(roundings) => self.expect_bounded(roundings, inputs),
        }
    }

    /// A copy of which nothing is promised about special values.
    fn expect_copy<T: Element>(&self, input: T) -> Expected<T> {
        let value = input.to_f64();
        match self.specials {
            Specials::Open if T::DTYPE.is_float() && !value.is_finite() => {
                Expected::Anything("the contract says nothing about special values")
            }
            // It may come as zero.
            Specials::Open if T::DTYPE.is_float() && value.abs() < smallest_normal::<T>() => {
                Expected::Within(Bounded { exact: value, bound: value.abs() })
            }
            _ => Expected::Value(input),
        }
    }

    fn expect_bounded<T: Element>(&self, roundings: Roundings, inputs: &[T]) -> Expected<T> {
        if let Some(mut within) = bounded(self.op, roundings, inputs) {
            if self.specials == Specials::Open && T::DTYPE.is_float() {
                // Subnormals are special values too: each operand and the result may be flushed to zero.
                within.bound += (inputs.len() + 1) as f64 * smallest_normal::<T>();
            }
            return Expected::Within(within);
        }
        if self.specials == Specials::Open {
            return Expected::Anything("the contract says nothing about special values");
        }
        if self.op == ReduceOp::Prod {
            return Expected::Anything("whether partial products overflow depends on the order");
        }
        nonfinite_sum(self.op, inputs)
    }
}

/// The sum or average over inputs that may overflow or are not all finite, where every order agrees on it.
fn nonfinite_sum<T: Element>(op: ReduceOp, inputs: &[T]) -> Expected<T> {
    let any = |is: fn(f64) -> bool| inputs.iter().any(|x| is(x.to_f64()));
    let (up, down) = (any(|x| x == f64::INFINITY), any(|x| x == f64::NEG_INFINITY));
    let format = Format::of(T::DTYPE);
    if any(f64::is_nan) || (up && down) {
        return Expected::Value(T::of_bits(format.nan(0)));
    }
    let finite = inputs.iter().map(|x| x.to_f64()).filter(|x| x.is_finite());
    let magnitudes: f64 = finite.clone().map(f64::abs).sum();
    let one_sign = !(any(|x| x > 0.0) && any(|x| x < 0.0));
    let overflows = op != ReduceOp::Avg && finite.clone().map(|x| x / largest(T::DTYPE)).sum::<f64>().abs() >= 2.0;
    // A finite part that may overflow could meet the infinity with the other sign.
    if (up || down) && (one_sign || magnitudes < largest(T::DTYPE)) || one_sign && overflows {
        let value = T::of_bits(format.overflow(T::DTYPE));
        return Expected::Value(if any(|x| x < 0.0) && !up { value.negate() } else { value });
    }
    Expected::Anything("whether partial sums overflow depends on the order")
}

fn reduce<T: Element>(op: ReduceOp, roundings: Roundings, inputs: &[T]) -> T {
    match roundings {
        Roundings::Once | Roundings::OnceToNeighbour => reduce_in_order(op, inputs),
        Roundings::PerHop => reduce_per_hop(op, inputs),
    }
}

fn smallest_normal<T: Element>() -> f64 {
    T::of_bits(Format::of(T::DTYPE).normal).to_f64()
}

/// What one element may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Expected<T> {
    /// These bits and no others.
    Copy(T),
    /// These bits, or any NaN for a NaN.
    Bits(T),
    /// This value: zeros of either sign are equal, and all NaN.
    Value(T),
    /// One of the first `count` values, each as in [`Expected::Value`].
    OneOf {
        /// Starting at rank 0, 1, ...
        values: [T; MAX_RANKS],
        /// How many there are.
        count: usize,
    },
    /// No farther from the exact result than the bound.
    Within(Bounded),
    /// Nothing is promised, for this reason.
    Anything(&'static str),
}

impl<T: Element> Expected<T> {
    /// Whether `got` conforms.
    pub fn accepts(&self, got: T) -> bool {
        match self {
            Expected::Copy(want) => got.bits() == want.bits(),
            Expected::Bits(want) => same_bits(got, *want),
            Expected::Value(want) => same_value(got, *want),
            Expected::OneOf { values, count } => values[..*count].iter().any(|want| same_value(got, *want)),
            Expected::Within(Bounded { exact, bound }) => (got.to_f64() - exact).abs() <= *bound,
            Expected::Anything(_) => true,
        }
    }

    /// The one value that reports show, and how far `got` may be from it: 0 for equality. None where nothing is promised.
    pub fn shown(&self) -> Option<Bounded> {
        match self {
            Expected::Copy(want) | Expected::Bits(want) | Expected::Value(want) => Some(Bounded { exact: want.to_f64(), bound: 0.0 }),
            Expected::OneOf { values, .. } => Some(Bounded { exact: values[0].to_f64(), bound: 0.0 }),
            Expected::Within(within) => Some(*within),
            Expected::Anything(_) => None,
        }
    }
}

/// Equal to the bit, or both NaN: no contract promises the payload of a NaN.
pub(super) fn same_bits<T: Element>(a: T, b: T) -> bool {
    a.bits() == b.bits() || (a.is_nan() && b.is_nan())
}

/// Equal as numbers, zeros of either sign included, or both NaN.
pub(super) fn same_value<T: Element>(a: T, b: T) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}

impl fmt::Display for Oracle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounded = |roundings| match roundings {
            Roundings::Once => "rounded once",
            Roundings::OnceToNeighbour => "rounded once to a neighbour",
            Roundings::PerHop => "rounded at every addition",
        };
        match self.rule {
            Rule::Copied if self.signed_zeros => f.write_str("equal to the bit to the element that is copied"),
            Rule::Copied => f.write_str("equal to the element that is copied"),
            Rule::Ordered(r) => write!(f, "equal to the bit to the {} in rank order, {}", self.op, rounded(r)),
            Rule::Exact => write!(f, "equal to the exact {}", self.op),
            Rule::Rotations(r) => write!(f, "equal to the {} in one of the rotated rank orders, {}", self.op, rounded(r)),
            Rule::ByNode(nodes, r) => {
                write!(f, "within the bound of the exact {} of {nodes} nodes' results, any order, {}", self.op, rounded(r))
            }
            Rule::Bound(r) => write!(f, "within the bound of the exact {}, any order, {}", self.op, rounded(r)),
        }?;
        if self.specials == Specials::Open { f.write_str(", where all inputs are finite and cannot overflow") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};
    use rstest::rstest;

    const NCCL_LIKE: Contract = Contract { order: Order::Any, roundings: Roundings::PerHop, special_values: false, ..Contract::ORDERED };
    const ROTATED: Contract = Contract { order: Order::AnyRotation, special_values: false, ..Contract::ORDERED };
    const BY_NODE: Contract =
        Contract { order: Order::ByNode(2), roundings: Roundings::PerHop, special_values: false, ..Contract::ORDERED };
    const HARDWARE: Contract = Contract { order: Order::Any, ..Contract::ORDERED };

    /// If this fails, results are accepted that are farther off than reports say that they may be.
    #[test]
    fn a_bound_is_as_wide_as_it_is_shown() {
        let within = Expected::<f64>::Within(Bounded { exact: 1.0, bound: 0.25 });
        assert_eq!(within.shown().map(|shown| shown.bound), Some(0.25));
        assert!(within.accepts(1.25) && within.accepts(0.75));
        assert!(!within.accepts(1.25_f64.next_up()) && !within.accepts(0.75_f64.next_down()) && !within.accepts(f64::NAN));
    }

    #[rstest]
    #[case::declared_order(Contract::ORDERED, ReduceOp::Sum, DType::F32, InputClass::Tagged, Rule::Ordered(Roundings::Once))]
    #[case::declared_order_average(Contract::ORDERED, ReduceOp::Avg, DType::BF16, InputClass::Natural, Rule::Ordered(Roundings::Once))]
    #[case::tagged_sums_are_exact(NCCL_LIKE, ReduceOp::Sum, DType::BF16, InputClass::Tagged, Rule::Exact)]
    #[case::tagged_averages_are_not(NCCL_LIKE, ReduceOp::Avg, DType::BF16, InputClass::Tagged, Rule::Bound(Roundings::PerHop))]
    #[case::tagged_products_are_exact(NCCL_LIKE, ReduceOp::PremulSum, DType::BF16, InputClass::Tagged, Rule::Exact)]
    #[case::natural_products_are_not(NCCL_LIKE, ReduceOp::PremulSum, DType::BF16, InputClass::Natural, Rule::Bound(Roundings::PerHop))]
    #[case::minima_are_exact(NCCL_LIKE, ReduceOp::Min, DType::F16, InputClass::Natural, Rule::Exact)]
    #[case::integers_are_exact(NCCL_LIKE, ReduceOp::Avg, DType::I32, InputClass::Special, Rule::Exact)]
    #[case::any_order(NCCL_LIKE, ReduceOp::Sum, DType::F32, InputClass::Natural, Rule::Bound(Roundings::PerHop))]
    #[case::rotations(ROTATED, ReduceOp::Sum, DType::F32, InputClass::Probe, Rule::Rotations(Roundings::Once))]
    #[case::by_node(BY_NODE, ReduceOp::Sum, DType::F32, InputClass::Natural, Rule::ByNode(2, Roundings::PerHop))]
    #[case::by_node_exact(BY_NODE, ReduceOp::Sum, DType::F32, InputClass::Tagged, Rule::Exact)]
    #[case::copies(Contract::COPIED, ReduceOp::Copy, DType::F32, InputClass::Special, Rule::Copied)]
    #[case::specials_not_promised(ROTATED, ReduceOp::Min, DType::F32, InputClass::Special, Rule::Bound(Roundings::Once))]
    #[case::specials_in_any_order(HARDWARE, ReduceOp::Sum, DType::F32, InputClass::Special, Rule::Bound(Roundings::Once))]
    fn the_sharpest_rule_is_chosen(
        #[case] contract: Contract,
        #[case] op: ReduceOp,
        #[case] dtype: DType,
        #[case] class: InputClass,
        #[case] rule: Rule,
    ) {
        assert_eq!(oracle(&contract, op, dtype, class).rule(), rule);
    }

    const INF: f32 = f32::INFINITY;

    #[rstest]
    #[case::zero_sign_is_promised(Contract::ORDERED, &[-0.0, -0.0], 0.0, false)]
    #[case::zero_sign_is_not(HARDWARE, &[-0.0, -0.0], 0.0, true)]
    #[case::nan_is_any_nan(Contract::ORDERED, &[f32::NAN, 1.0], -f32::NAN, true)]
    #[case::nan_is_kept(Contract::ORDERED, &[f32::NAN, 1.0], 1.0, false)]
    #[case::nan_is_kept_in_any_order(HARDWARE, &[f32::NAN, 1.0], 1.0, false)]
    #[case::nan_not_promised(ROTATED, &[f32::NAN, 1.0], 1.0, true)]
    #[case::infinities_cancel_to_nan(HARDWARE, &[INF, -INF, 1.0], INF, false)]
    #[case::infinity_stays(HARDWARE, &[-INF, 3.0], -INF, true)]
    #[case::infinity_meets_an_overflow_in_some_orders(HARDWARE, &[INF, -f32::MAX, -f32::MAX], f32::NAN, true)]
    #[case::infinity_is_not_saturated(HARDWARE, &[-INF, 3.0], f32::MIN, false)]
    #[case::overflow_in_every_order(HARDWARE, &[f32::MAX, f32::MAX, f32::MAX], f32::MAX, false)]
    #[case::overflow_by_half_of_the_largest(HARDWARE, &[f32::MAX, f32::MAX, 0.5 * f32::MAX], f32::MAX, false)]
    #[case::overflow_to_the_largest_twice(HARDWARE, &[f32::MAX, f32::MAX], f32::MAX, false)]
    #[case::overflow_to_infinity(HARDWARE, &[f32::MAX, f32::MAX], INF, true)]
    #[case::overflow_by_less_is_open(HARDWARE, &[f32::MAX, 0.9 * f32::MAX], f32::MAX, true)]
    #[case::overflow_in_some_orders(HARDWARE, &[f32::MAX, f32::MAX, -f32::MAX], f32::MAX, true)]
    #[case::overflow_in_the_declared_order(Contract::ORDERED, &[f32::MAX, f32::MAX, -f32::MAX], f32::MAX, false)]
    #[case::subnormals_may_be_flushed(ROTATED, &[f32::from_bits(5), 0.0], 0.0, true)]
    #[case::near_subnormals_only_by_these(ROTATED, &[1e-30, 0.0], 1e-30 + 1e-33, false)]
    #[case::normal_is_not_flushed(ROTATED, &[1e-36, 0.0], 0.0, false)]
    #[case::subnormals_are_kept(Contract::ORDERED, &[f32::from_bits(5), 0.0], 0.0, false)]
    #[case::finite_is_held_to_the_bound(ROTATED, &[1.0, 2.0], 3.1, false)]
    fn special_values_follow_the_contract(#[case] contract: Contract, #[case] inputs: &[f32], #[case] got: f32, #[case] accepted: bool) {
        let expected = oracle(&contract, ReduceOp::Sum, DType::F32, InputClass::Special).expect(inputs);
        assert_eq!(expected.accepts(got), accepted, "{expected:?}");
    }

    /// If this fails, a kernel that adds to +0 has a finding for the sum of negated zeros, or one that promises the reference's sign has none.
    #[rstest]
    fn zeros_have_the_sign_that_was_promised(#[values(InputClass::Natural, InputClass::Tagged, InputClass::Probe)] class: InputClass) {
        let nothing_promised = Contract { special_values: false, ..Contract::ORDERED };
        for (contract, positive_zero) in [(Contract::ORDERED, false), (nothing_promised, true)] {
            let expected = oracle(&contract, ReduceOp::Sum, DType::F32, class).expect(&[-0.0, -0.0]);
            let accepted = [-0.0, 0.0, f32::from_bits(1)].map(|got| expected.accepts(got));
            assert_eq!(accepted, [true, positive_zero, false], "{contract:?}");
        }
    }

    #[test]
    fn copies_keep_the_payload_of_a_nan() {
        let payload = f32::from_bits(0x7fc0_1234);
        let expected = oracle(&Contract::COPIED, ReduceOp::Copy, DType::F32, InputClass::Special).expect(&[payload]);
        assert!(expected.accepts(payload) && !expected.accepts(f32::NAN));
    }

    #[test]
    fn every_rotation_is_accepted_and_nothing_else() {
        let inputs = [2f32.powi(30), 1.0, -(2f32.powi(30)), 2.0];
        let expected = oracle(&ROTATED, ReduceOp::Sum, DType::F32, InputClass::Probe).expect(&inputs);
        // From rank 0: 2. From 1: 1 + -M + 2 + M = 0. From 2: -M + 2 + M + 1 = 1. From 3: 2 + M + 1 - M = 0.
        for (got, accepted) in [(2.0, true), (0.0, true), (1.0, true), (3.0, false)] {
            assert_eq!(expected.accepts(got), accepted, "{got}");
        }
    }

    /// If this fails, a sum that leaves a node before it is rounded, or in another order, passes.
    #[test]
    fn nodes_round_before_they_are_added() {
        // In bf16, 256 + 1 is 256 and 1 + 1 is 2: 258 by nodes, and also in rank order; 257 + 1 is 258, of which nothing is said.
        let expect = |inputs: [f32; 4]| {
            oracle(&BY_NODE, ReduceOp::Sum, DType::BF16, InputClass::Natural).expect(&inputs.map(bf16::from_f32)).shown().unwrap()
        };
        assert_eq!(expect([256.0, 1.0, 1.0, 1.0]).exact, 258.0);
        assert_eq!(expect([256.0, 1.0, 256.0, 1.0]).exact, 512.0);
        assert_eq!(expect([256.0, 3.0, 256.0, 3.0]).exact, 520.0);
    }

    /// If this fails, a copy that promises nothing about special values is blamed for one, or one that does may change any bit.
    #[rstest]
    #[case::zero_sign(0.0, -0.0, true)]
    #[case::value(1.0, 1.5, false)]
    #[case::nan(f32::NAN, 1.0, true)]
    #[case::infinity(INF, f32::MAX, true)]
    #[case::flushed(f32::from_bits(5), 0.0, true)]
    #[case::not_flushed_but_other(f32::from_bits(5), 1.0, false)]
    fn copies_follow_the_contract(#[case] input: f32, #[case] got: f32, #[case] accepted: bool) {
        let open = Contract { special_values: false, ..Contract::COPIED };
        let expect = |contract: &Contract, class| oracle(contract, ReduceOp::Copy, DType::F32, class).expect(&[input]);
        assert_eq!(expect(&open, InputClass::Special).accepts(got), accepted);
        assert!(expect(&open, InputClass::Special).accepts(input) || input.is_nan());
        assert!(!expect(&Contract::COPIED, InputClass::Special).accepts(got));
        // Without special inputs only the sign of a zero is open.
        assert_eq!(expect(&open, InputClass::Natural).accepts(got), input == got);
    }

    /// If this fails, ranks of a node are counted to another node, or left out. Two nodes of two ranks do not tell.
    #[test]
    fn nodes_have_ranks_in_order() {
        let expect = |contract: Contract, inputs: &[f32]| {
            let inputs: Vec<bf16> = inputs.iter().copied().map(bf16::from_f32).collect();
            oracle(&contract, ReduceOp::Sum, DType::BF16, InputClass::Natural).expect(&inputs).shown().unwrap().exact
        };
        assert_eq!(expect(BY_NODE, &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0]), 63.0);
        // Each node rounds 256 + 1 to 256, and 1 + 1 + 1 to 3: 259 rounds to no bf16 before the end.
        assert_eq!(expect(BY_NODE, &[256.0, 1.0, 0.0, 1.0, 1.0, 1.0]), 259.0);
        let of_three = Contract { order: Order::ByNode(3), ..BY_NODE };
        assert_eq!(expect(of_three, &[256.0, 1.0, 0.0, 1.0, 1.0, 1.0]), 256.0 + 1.0 + 2.0);
        assert_eq!(expect(of_three, &[256.0, 1.0, 256.0, 1.0, 256.0, 1.0]), 768.0);
    }

    #[test]
    fn sixteen_bit_sums_round_where_the_contract_says() {
        let inputs = [256.0, 1.0, 1.0].map(bf16::from_f32);
        let per_hop = Contract { roundings: Roundings::PerHop, ..Contract::ORDERED };
        let expect = |contract: &Contract| oracle(contract, ReduceOp::Sum, DType::BF16, InputClass::Natural).expect(&inputs);
        assert_eq!(expect(&Contract::ORDERED), Expected::Bits(bf16::from_f32(258.0)));
        assert_eq!(expect(&per_hop), Expected::Bits(bf16::from_f32(256.0)));
        let half = [1.0, 2.0].map(f16::from_f32);
        assert!(!oracle(&NCCL_LIKE, ReduceOp::Sum, DType::F16, InputClass::Tagged).expect(&half).accepts(f16::from_f32(3.002)));
    }
}
