//! Comparison and selection (PTX ISA 9.7.6).

use std::cmp::Ordering;

use super::{
    fault::ExecError,
    float::Held,
    integer::{Number, by_integer, combine},
    registers::Registers,
};
use crate::numerics::{self, Bf16, F16, F32, F64, Mode, compare};
use passmuster_ptx::{BooleanOp, Comparison, Condition, Operand, Register, Type};

/// The numerics' name of a comparison; the unsigned ones never come with floats.
fn of_floats(comparison: Comparison) -> numerics::Comparison {
    use numerics::Comparison as To;
    match comparison {
        Comparison::Equal => To::Eq,
        Comparison::NotEqual => To::Ne,
        Comparison::Less | Comparison::Lower => To::Lt,
        Comparison::LessEqual | Comparison::LowerSame => To::Le,
        Comparison::Greater | Comparison::Higher => To::Gt,
        Comparison::GreaterEqual | Comparison::HigherSame => To::Ge,
        Comparison::EqualUnordered => To::Equ,
        Comparison::NotEqualUnordered => To::Neu,
        Comparison::LessUnordered => To::Ltu,
        Comparison::LessEqualUnordered => To::Leu,
        Comparison::GreaterUnordered => To::Gtu,
        Comparison::GreaterEqualUnordered => To::Geu,
        Comparison::Numbers => To::Num,
        Comparison::Nan => To::Nan,
    }
}

impl Registers {
    /// The lanes where a comparison holds: of the value, or of its low and its high half.
    #[inline(always)]
    fn compare(&self, comparison: Comparison, ty: Type, ftz: bool, ab: [Operand; 2]) -> Result<(u32, Option<u32>), ExecError> {
        let mode = Mode { ftz, ..Mode::NEAREST };
        let packed = |first: u32, second: u32| (first, Some(second));
        Ok(match ty {
            Type::F32 => (self.compare_floats::<F32>(comparison, mode, ab), None),
            Type::F64 => (self.compare_floats::<F64>(comparison, mode, ab), None),
            Type::F16 => (self.compare_floats::<F16>(comparison, mode, ab), None),
            Type::Bf16 => (self.compare_floats::<Bf16>(comparison, mode, ab), None),
            Type::F16x2 => packed(self.compare_half::<F16>(comparison, mode, ab, 0), self.compare_half::<F16>(comparison, mode, ab, 16)),
            Type::Bf16x2 => packed(self.compare_half::<Bf16>(comparison, mode, ab, 0), self.compare_half::<Bf16>(comparison, mode, ab, 16)),
            _ => (by_integer!(ty, self.compare_integers(comparison, ab)), None),
        })
    }

    #[inline(always)]
    fn compare_integers<T: Number>(&self, comparison: Comparison, ab: [Operand; 2]) -> u32 {
        match comparison {
            Comparison::Equal => self.test2(ab, |a, b| T::of(a) == T::of(b)),
            Comparison::NotEqual => self.test2(ab, |a, b| T::of(a) != T::of(b)),
            Comparison::Less | Comparison::Lower => self.test2(ab, |a, b| T::of(a) < T::of(b)),
            Comparison::LessEqual | Comparison::LowerSame => self.test2(ab, |a, b| T::of(a) <= T::of(b)),
            Comparison::Greater | Comparison::Higher => self.test2(ab, |a, b| T::of(a) > T::of(b)),
            Comparison::GreaterEqual | Comparison::HigherSame => self.test2(ab, |a, b| T::of(a) >= T::of(b)),
            // Those of floats: integers are never unordered.
            other => self.test2(ab, |a, b| of_floats(other).holds(Some(T::of(a).cmp(&T::of(b))))),
        }
    }

    #[inline(always)]
    fn compare_floats<F: Held>(&self, comparison: Comparison, mode: Mode, ab: [Operand; 2]) -> u32 {
        let comparison = of_floats(comparison);
        self.test2(ab, |a, b| compare::<F>(comparison, F::of(a), F::of(b), mode))
    }

    fn compare_half<F: Held<Bits = u16>>(&self, comparison: Comparison, mode: Mode, ab: [Operand; 2], shift: u32) -> u32 {
        let comparison = of_floats(comparison);
        self.test2(ab, |a: u32, b: u32| compare::<F>(comparison, (a >> shift) as u16, (b >> shift) as u16, mode))
    }

    fn combined(&self, holds: u32, combination: Option<(BooleanOp, Condition)>) -> u32 {
        combination.map_or(holds, |(op, condition)| combine(op, holds, self.condition(condition)))
    }

    /// `setp`.
    #[inline(always)]
    pub(super) fn set_predicates(
        &mut self,
        lanes: u32,
        (comparison, ty, ftz): (Comparison, Type, bool),
        (first, second): (Option<Register>, Option<Register>),
        ab: [Operand; 2],
        combination: Option<(BooleanOp, Condition)>,
    ) -> Result<(), ExecError> {
        let (low, high) = self.compare(comparison, ty, ftz, ab)?;
        let (low, high) = (self.combined(low, combination), self.combined(high.unwrap_or(!low), combination));
        if let Some(first) = first {
            self.set_predicate(first, lanes, low);
        }
        if let Some(second) = second {
            self.set_predicate(second, lanes, high);
        }
        Ok(())
    }

    /// `set`.
    pub(super) fn set(
        &mut self,
        lanes: u32,
        (comparison, ty, ftz, to): (Comparison, Type, bool, Type),
        d: Register,
        ab: [Operand; 2],
        combination: Option<(BooleanOp, Condition)>,
    ) -> Result<(), ExecError> {
        let (low, high) = self.compare(comparison, ty, ftz, ab)?;
        let (low, high) = (self.combined(low, combination), high.map(|high| self.combined(high, combination)));
        let one: u32 = match to {
            // Of a packed comparison each half has its own truth.
            Type::U32 | Type::S32 if high.is_some() => 0xffff,
            Type::U16 | Type::S16 => 0xffff,
            Type::U32 | Type::S32 => u32::MAX,
            Type::F32 => 0x3f80_0000,
            Type::F16 | Type::F16x2 => 0x3c00,
            Type::Bf16 | Type::Bf16x2 => 0x3f80,
            other => return Err(ExecError::unsupported(format!("to .{other}"))),
        };
        let of = |holds: u32, lane: usize| if holds >> lane & 1 == 1 { one } else { 0 };
        let result = std::array::from_fn(|lane| of(low, lane) | high.map_or(0, |high| of(high, lane) << 16));
        self.write::<u32>(d, lanes, &result);
        Ok(())
    }

    /// `selp`.
    #[inline(always)]
    pub(super) fn select(&mut self, lanes: u32, ty: Type, d: Register, [a, b]: [Operand; 2], condition: Condition) {
        let holds = self.condition(condition);
        if ty.bits() == 64 {
            let (a, b) = (self.read::<u64>(a), self.read::<u64>(b));
            self.write::<u64>(d, lanes, &std::array::from_fn(|lane| if holds >> lane & 1 == 1 { a[lane] } else { b[lane] }));
        } else {
            let (a, b) = (self.read::<u32>(a), self.read::<u32>(b));
            self.write::<u32>(d, lanes, &std::array::from_fn(|lane| if holds >> lane & 1 == 1 { a[lane] } else { b[lane] }));
        }
    }

    /// `slct`: a NaN selects `b`.
    pub(super) fn select_by_sign(&mut self, lanes: u32, (ty, by, ftz): (Type, Type, bool), d: Register, [a, b, c]: [Operand; 3]) {
        let mode = Mode { ftz, ..Mode::NEAREST };
        let holds = match by {
            Type::F32 => self.test2([c, c], |c: u32, _| compare::<F32>(numerics::Comparison::Ge, c, 0, mode)),
            _ => self.test2([c, c], |c: u32, _| (c as i32).cmp(&0) != Ordering::Less),
        };
        let (a, b) = (self.bits(a), self.bits(b));
        let result = std::array::from_fn(|lane| if holds >> lane & 1 == 1 { a[lane] } else { b[lane] });
        debug_assert!(ty.bits() <= 64);
        self.write_bits(d, lanes, &result);
    }
}
