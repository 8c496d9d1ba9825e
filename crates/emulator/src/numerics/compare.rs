//! `setp` and `set` on floats (PTX ISA, "Floating-Point Comparisons").

use std::cmp::Ordering;

use super::float::{Float, Mode};

/// A comparison operator. The ordered ones are false when an operand is NaN, the unordered ones (`U`) true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are PTX's")]
pub enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    /// Neither is NaN.
    Num,
    /// One is NaN, or both.
    Nan,
}

impl Comparison {
    /// All of them.
    pub const ALL: [Comparison; 14] = {
        use Comparison::*;
        [Eq, Ne, Lt, Le, Gt, Ge, Equ, Neu, Ltu, Leu, Gtu, Geu, Num, Nan]
    };

    /// Whether it holds for operands in this order; `None` where one of them is NaN.
    #[inline(always)]
    pub fn holds(self, order: Option<Ordering>) -> bool {
        use Comparison::*;
        match order {
            None => matches!(self, Equ | Neu | Ltu | Leu | Gtu | Geu | Nan),
            Some(Ordering::Less) => matches!(self, Ne | Lt | Le | Neu | Ltu | Leu | Num),
            Some(Ordering::Equal) => matches!(self, Eq | Le | Ge | Equ | Leu | Geu | Num),
            Some(Ordering::Greater) => matches!(self, Ne | Gt | Ge | Neu | Gtu | Geu | Num),
        }
    }
}

/// Whether `a` and `b` compare so. Zeros of either sign are equal. Of `mode` only `.ftz` counts.
#[inline(always)]
pub fn compare<F: Float>(comparison: Comparison, a: F::Bits, b: F::Bits, mode: Mode) -> bool {
    let (a, b) = if mode.ftz { (F::flush(a), F::flush(b)) } else { (a, b) };
    if F::is_nan(a) || F::is_nan(b) {
        return comparison.holds(None);
    }
    let signed = |bits: u64| {
        let magnitude = (bits & (F::FORMAT.sign() - 1)) as i64;
        if bits & F::FORMAT.sign() != 0 { -magnitude } else { magnitude }
    };
    comparison.holds(Some(signed(F::raise(a)).cmp(&signed(F::raise(b)))))
}
