//! Elements of all types behind one interface: hypotheses are many, and compiled once instead of once for each type.

use std::marker::PhantomData;

use super::super::{
    elements::{contribute, read},
    inputs::RankPayload,
    oracle::{Expected, Oracle, same_bits, same_value},
};
use passmuster_plan::{
    collective::{DType, Element, ReduceOp, Shape, multiplied, reduce_in_order, reduce_per_hop},
    with_element,
};

/// An element's bits, zero-extended.
pub(super) type Bits = u64;

/// The arithmetic of one type.
pub(super) trait Numbers {
    /// Element `index` of a buffer.
    fn read(&self, bytes: &[u8], index: u64) -> Bits;
    /// What element `index` of `rank`'s output is made of.
    fn inputs(&self, shape: &Shape, ranks: &[RankPayload], rank: u32, index: u64) -> Vec<Bits>;
    /// What a rank contributes of its element `index`.
    fn contribution(&self, rank: &RankPayload, index: u64) -> Bits;
    /// What a rank of a pre-multiplied sum multiplies by.
    fn factor(&self, rank: &RankPayload) -> Bits;
    /// A rank's input `index` times one factor, rounded, and times another.
    fn product(&self, rank: &RankPayload, index: u64, factors: [Bits; 2]) -> Bits;
    fn one(&self) -> Bits;
    fn value(&self, x: Bits) -> f64;
    /// See [`same_bits`].
    fn same_bits(&self, a: Bits, b: Bits) -> bool;
    /// See [`same_value`].
    fn same_value(&self, a: Bits, b: Bits) -> bool;
    /// See [`reduce_in_order`].
    fn reduced(&self, op: ReduceOp, inputs: &[Bits]) -> Bits;
    /// See [`reduce_per_hop`].
    fn reduced_per_hop(&self, op: ReduceOp, inputs: &[Bits]) -> Bits;
    /// See [`sum_truncated`].
    fn sum_truncated(&self, inputs: &[Bits]) -> Bits;
    fn divided(&self, x: Bits, by: u32) -> Bits;
    /// Whether the contract promises something of these inputs, and `got` is it.
    fn promised(&self, oracle: &Oracle, inputs: &[Bits], got: Bits) -> bool;
}

/// The arithmetic of a type.
pub(super) fn of(dtype: DType) -> &'static dyn Numbers {
    with_element!(dtype, T => &Of::<T>(PhantomData))
}

struct Of<T>(PhantomData<T>);

fn elements<T: Element>(bits: &[Bits]) -> Vec<T> {
    bits.iter().map(|bits| T::of_bits(*bits)).collect()
}

impl<T: Element> Numbers for Of<T> {
    fn read(&self, bytes: &[u8], index: u64) -> Bits {
        read::<T>(bytes, index).bits()
    }

    fn inputs(&self, shape: &Shape, ranks: &[RankPayload], rank: u32, index: u64) -> Vec<Bits> {
        let mut inputs: Vec<T> = Vec::with_capacity(ranks.len());
        contribute(shape, ranks, rank, index, &mut inputs);
        inputs.into_iter().map(T::bits).collect()
    }

    fn contribution(&self, rank: &RankPayload, index: u64) -> Bits {
        rank.element::<T>(index).bits()
    }

    fn factor(&self, rank: &RankPayload) -> Bits {
        rank.factor::<T>().expect("a pre-multiplied sum has a factor a rank").bits()
    }

    fn product(&self, rank: &RankPayload, index: u64, factors: [Bits; 2]) -> Bits {
        factors.into_iter().fold(rank.input::<T>(index), |product, factor| multiplied(product, T::of_bits(factor))).bits()
    }

    fn one(&self) -> Bits {
        T::narrow(T::from_i64(1)).bits()
    }

    fn value(&self, x: Bits) -> f64 {
        T::of_bits(x).to_f64()
    }

    fn same_bits(&self, a: Bits, b: Bits) -> bool {
        same_bits(T::of_bits(a), T::of_bits(b))
    }

    fn same_value(&self, a: Bits, b: Bits) -> bool {
        same_value(T::of_bits(a), T::of_bits(b))
    }

    fn reduced(&self, op: ReduceOp, inputs: &[Bits]) -> Bits {
        reduce_in_order(op, &elements::<T>(inputs)).bits()
    }

    fn reduced_per_hop(&self, op: ReduceOp, inputs: &[Bits]) -> Bits {
        reduce_per_hop(op, &elements::<T>(inputs)).bits()
    }

    fn sum_truncated(&self, inputs: &[Bits]) -> Bits {
        sum_truncated(&elements::<T>(inputs)).bits()
    }

    fn divided(&self, x: Bits, by: u32) -> Bits {
        T::narrow(T::divide(T::of_bits(x).widen(), by)).bits()
    }

    fn promised(&self, oracle: &Oracle, inputs: &[Bits], got: Bits) -> bool {
        match oracle.expect(&elements::<T>(inputs)) {
            Expected::Anything(_) => false,
            expected => expected.accepts(T::of_bits(got)),
        }
    }
}

/// The sum in rank order, rounded toward zero: the 8- and 16-bit types once, from f32 sums rounded to nearest; the others at every addition.
pub(super) fn sum_truncated<T: Element>(inputs: &[T]) -> T {
    if size_of::<T>() < 4 {
        let sum = inputs.iter().map(|x| x.widen()).reduce(T::add).expect("a group has at least one rank");
        return toward_zero(T::narrow(sum), T::acc_to_f64(sum), 0.0);
    }
    inputs.iter().copied().reduce(add_truncated).expect("a group has at least one rank")
}

fn add_truncated<T: Element>(a: T, b: T) -> T {
    let (x, y) = (a.to_f64(), b.to_f64());
    let sum = x + y;
    // What the f64 addition lost (Knuth's TwoSum).
    let back = sum - x;
    let lost = (x - (sum - back)) + (y - back);
    toward_zero(T::narrow(T::add(a.widen(), b.widen())), sum, lost)
}

/// `rounded`, or the next number toward zero where it is larger in magnitude than `exact + lost`.
fn toward_zero<T: Element>(rounded: T, exact: f64, lost: f64) -> T {
    let value = rounded.to_f64();
    let beyond = value.abs() > exact.abs() || (value == exact && lost != 0.0 && (lost < 0.0) != (exact < 0.0));
    if value.is_finite() && beyond { T::of_bits(rounded.bits() - 1) } else { rounded }
}
