//! Integer arithmetic (PTX ISA 9.7.1) and functions of bits (9.7.8, 9.7.9).
//!
//! What the ISA leaves open: a quotient by zero has all bits set, and a remainder by zero is the dividend.

use super::{
    fault::ExecError,
    registers::{Registers, Slot},
};
use passmuster_ptx::{BitOp, BooleanOp, IntegerOp, LogicPredicate, Operand, PermuteMode, Register, Type, UnaryOp};

/// An integer type of PTX, in a slot.
pub(super) trait Number: Copy + Ord + 'static {
    /// What holds it.
    type Slot: Slot;
    /// What holds a product of twice its width.
    type Wide: Slot;
    fn of(slot: Self::Slot) -> Self;
    fn slot(self) -> Self::Slot;
    fn add(self, other: Self) -> Self;
    fn subtract(self, other: Self) -> Self;
    fn low(self, other: Self) -> Self;
    fn high(self, other: Self) -> Self;
    fn wide(self, other: Self) -> Self::Wide;
    fn wide_sum(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    fn divide(self, other: Self) -> Self;
    fn remainder(self, other: Self) -> Self;
    fn positive_part(self) -> Self;
    fn negate(self) -> Self;
    fn absolute(self) -> Self;
}

macro_rules! number {
    ($ty:ty, $unsigned:ty, $slot:ty, $double:ty, $wide:ty) => {
        impl Number for $ty {
            type Slot = $slot;
            type Wide = $wide;
            #[inline(always)]
            fn of(slot: $slot) -> $ty {
                slot as $ty
            }
            #[inline(always)]
            fn slot(self) -> $slot {
                self as $unsigned as $slot
            }
            #[inline(always)]
            fn add(self, other: $ty) -> $ty {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn subtract(self, other: $ty) -> $ty {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn low(self, other: $ty) -> $ty {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn high(self, other: $ty) -> $ty {
                ((self as $double).wrapping_mul(other as $double) >> <$ty>::BITS) as $ty
            }
            #[inline(always)]
            fn wide(self, other: $ty) -> $wide {
                (self as $double).wrapping_mul(other as $double) as $wide
            }
            #[inline(always)]
            fn wide_sum(a: $wide, b: $wide) -> $wide {
                a.wrapping_add(b)
            }
            #[inline(always)]
            fn divide(self, other: $ty) -> $ty {
                if other == 0 { <$unsigned>::MAX as $ty } else { self.wrapping_div(other) }
            }
            #[inline(always)]
            fn remainder(self, other: $ty) -> $ty {
                // By zero the ISA leaves it open; hardware gives all ones, as for the quotient.
                if other == 0 { !0 } else { self.wrapping_rem(other) }
            }
            #[inline(always)]
            fn positive_part(self) -> $ty {
                self.max(0)
            }
            #[inline(always)]
            fn negate(self) -> $ty {
                (0 as $ty).wrapping_sub(self)
            }
            #[inline(always)]
            #[allow(unused_comparisons)] // For the unsigned types.
            fn absolute(self) -> $ty {
                if self < 0 { self.negate() } else { self }
            }
        }
    };
}

number!(u16, u16, u32, u32, u32);
number!(i16, u16, u32, i32, u32);
number!(u32, u32, u32, u64, u64);
number!(i32, u32, u32, i64, u64);
number!(u64, u64, u64, u128, u128);
number!(i64, u64, u64, i128, u128);

/// Calls a generic method with the integer type that a PTX type is.
macro_rules! by_integer {
    ($ty:expr, $self:ident.$method:ident($($argument:expr),*)) => {
        match $ty {
            Type::U16 | Type::B16 => $self.$method::<u16>($($argument),*),
            Type::S16 => $self.$method::<i16>($($argument),*),
            Type::U32 | Type::B32 => $self.$method::<u32>($($argument),*),
            Type::S32 => $self.$method::<i32>($($argument),*),
            Type::U64 | Type::B64 => $self.$method::<u64>($($argument),*),
            Type::S64 => $self.$method::<i64>($($argument),*),
            other => return Err(ExecError::unsupported(format!("type .{other}"))),
        }
    };
}
pub(super) use by_integer;

/// Both halves of packed integers.
#[inline(always)]
fn halves<T: Number<Slot = u32>>(a: u32, b: u32, f: impl Fn(T, T) -> T) -> u32 {
    f(T::of(a & 0xffff), T::of(b & 0xffff)).slot() | f(T::of(a >> 16), T::of(b >> 16)).slot() << 16
}

impl Registers {
    /// Integer arithmetic of two operands.
    #[inline(always)]
    pub(super) fn integer(
        &mut self,
        lanes: u32,
        op: IntegerOp,
        ty: Type,
        (saturate, relu): (bool, bool),
        d: Register,
        ab: [Operand; 2],
    ) -> Result<(), ExecError> {
        match ty {
            Type::U16x2 => self.packed_integer::<u16>(lanes, op, relu, d, ab)?,
            Type::S16x2 => self.packed_integer::<i16>(lanes, op, relu, d, ab)?,
            _ if saturate && op == IntegerOp::Add => {
                self.map2(lanes, d, ab, |a: u32, b: u32| (a as i32).saturating_add(b as i32) as u32);
            }
            _ if saturate && op == IntegerOp::Subtract => {
                self.map2(lanes, d, ab, |a: u32, b: u32| (a as i32).saturating_sub(b as i32) as u32);
            }
            _ if saturate => return Err(ExecError::unsupported(format!(".{op} with .sat"))),
            _ => by_integer!(ty, self.integer_of(lanes, op, relu, d, ab)),
        }
        Ok(())
    }

    #[inline(always)]
    fn integer_of<T: Number>(&mut self, lanes: u32, op: IntegerOp, relu: bool, d: Register, ab: [Operand; 2]) {
        match op {
            IntegerOp::Add => self.map2(lanes, d, ab, |a, b| T::of(a).add(T::of(b)).slot()),
            IntegerOp::Subtract => self.map2(lanes, d, ab, |a, b| T::of(a).subtract(T::of(b)).slot()),
            IntegerOp::MultiplyLow => self.map2(lanes, d, ab, |a, b| T::of(a).low(T::of(b)).slot()),
            IntegerOp::MultiplyHigh => self.map2(lanes, d, ab, |a, b| T::of(a).high(T::of(b)).slot()),
            IntegerOp::MultiplyWide => self.map2(lanes, d, ab, |a, b| T::of(a).wide(T::of(b))),
            IntegerOp::Divide => self.each2(lanes, d, ab, |a, b| T::of(a).divide(T::of(b)).slot()),
            IntegerOp::Remainder => self.each2(lanes, d, ab, |a, b| T::of(a).remainder(T::of(b)).slot()),
            IntegerOp::Minimum if relu => self.map2(lanes, d, ab, |a, b| T::of(a).min(T::of(b)).positive_part().slot()),
            IntegerOp::Maximum if relu => self.map2(lanes, d, ab, |a, b| T::of(a).max(T::of(b)).positive_part().slot()),
            IntegerOp::Minimum => self.map2(lanes, d, ab, |a, b| T::of(a).min(T::of(b)).slot()),
            IntegerOp::Maximum => self.map2(lanes, d, ab, |a, b| T::of(a).max(T::of(b)).slot()),
        }
    }

    fn packed_integer<T: Number<Slot = u32>>(
        &mut self,
        lanes: u32,
        op: IntegerOp,
        relu: bool,
        d: Register,
        ab: [Operand; 2],
    ) -> Result<(), ExecError> {
        let finish = |value: T| if relu { value.positive_part() } else { value };
        match op {
            IntegerOp::Minimum => self.map2(lanes, d, ab, |a, b| halves(a, b, |a: T, b| finish(a.min(b)))),
            IntegerOp::Maximum => self.map2(lanes, d, ab, |a, b| halves(a, b, |a: T, b| finish(a.max(b)))),
            IntegerOp::Add => self.map2(lanes, d, ab, |a, b| halves(a, b, T::add)),
            IntegerOp::Subtract
            | IntegerOp::MultiplyLow
            | IntegerOp::MultiplyHigh
            | IntegerOp::MultiplyWide
            | IntegerOp::Divide
            | IntegerOp::Remainder => return Err(ExecError::unsupported(format!(".{op} of two integers in one register"))),
        }
        Ok(())
    }

    /// `mad`.
    #[inline(always)]
    pub(super) fn integer_multiply_add(
        &mut self,
        lanes: u32,
        op: IntegerOp,
        ty: Type,
        saturate: bool,
        d: Register,
        abc: [Operand; 3],
    ) -> Result<(), ExecError> {
        if saturate {
            self.map3(lanes, d, abc, |a: u32, b: u32, c: u32| (a as i32).high(b as i32).saturating_add(c as i32) as u32);
        } else {
            by_integer!(ty, self.multiply_add_of(lanes, op, d, abc));
        }
        Ok(())
    }

    #[inline(always)]
    fn multiply_add_of<T: Number>(&mut self, lanes: u32, op: IntegerOp, d: Register, abc: [Operand; 3]) {
        match op {
            IntegerOp::MultiplyWide => self.map3(lanes, d, abc, |a, b, c| T::wide_sum(T::of(a).wide(T::of(b)), c)),
            IntegerOp::MultiplyHigh => self.map3(lanes, d, abc, |a, b, c| T::of(a).high(T::of(b)).add(T::of(c)).slot()),
            // The front end has products here, and nothing else.
            IntegerOp::MultiplyLow
            | IntegerOp::Add
            | IntegerOp::Subtract
            | IntegerOp::Divide
            | IntegerOp::Remainder
            | IntegerOp::Minimum
            | IntegerOp::Maximum => self.map3(lanes, d, abc, |a, b, c| T::of(a).low(T::of(b)).add(T::of(c)).slot()),
        }
    }

    /// `neg` and `abs`.
    pub(super) fn integer_unary(&mut self, lanes: u32, op: UnaryOp, ty: Type, d: Register, a: Operand) -> Result<(), ExecError> {
        match op {
            UnaryOp::Absolute => by_integer!(ty, self.absolute_of(lanes, d, a)),
            UnaryOp::Negate => by_integer!(ty, self.negated_of(lanes, d, a)),
            UnaryOp::Reciprocal
            | UnaryOp::SquareRoot
            | UnaryOp::ReciprocalSquareRoot
            | UnaryOp::Exponential
            | UnaryOp::Logarithm
            | UnaryOp::Sine
            | UnaryOp::Cosine
            | UnaryOp::HyperbolicTangent => return Err(ExecError::unsupported(format!(".{op} of .{ty}"))),
        }
        Ok(())
    }

    fn absolute_of<T: Number>(&mut self, lanes: u32, d: Register, a: Operand) {
        self.map(lanes, d, a, |a| T::of(a).absolute().slot());
    }

    fn negated_of<T: Number>(&mut self, lanes: u32, d: Register, a: Operand) {
        self.map(lanes, d, a, |a| T::of(a).negate().slot());
    }

    /// The lanes where a predicate or a constant holds.
    pub(super) fn truth(&self, operand: Operand) -> u32 {
        match operand {
            Operand::Register(register) => self.predicate(register),
            Operand::Immediate(bits) => {
                if bits & 1 == 1 {
                    u32::MAX
                } else {
                    0
                }
            }
        }
    }

    /// `and`, `or`, `xor`.
    #[inline(always)]
    pub(super) fn logic(&mut self, lanes: u32, op: BooleanOp, ty: Type, d: Register, [a, b]: [Operand; 2]) {
        match ty {
            Type::Pred => {
                let holds = combine(op, self.truth(a), self.truth(b));
                self.set_predicate(d, lanes, holds);
            }
            Type::B64 => match op {
                BooleanOp::And => self.map2(lanes, d, [a, b], |a: u64, b: u64| a & b),
                BooleanOp::Or => self.map2(lanes, d, [a, b], |a: u64, b: u64| a | b),
                BooleanOp::Xor => self.map2(lanes, d, [a, b], |a: u64, b: u64| a ^ b),
            },
            _ => match op {
                BooleanOp::And => self.map2(lanes, d, [a, b], |a: u32, b: u32| a & b),
                BooleanOp::Or => self.map2(lanes, d, [a, b], |a: u32, b: u32| a | b),
                BooleanOp::Xor => self.map2(lanes, d, [a, b], |a: u32, b: u32| a ^ b),
            },
        }
    }

    /// `lop3`.
    pub(super) fn logic_table(&mut self, lanes: u32, table: u8, d: Option<Register>, predicate: Option<LogicPredicate>, abc: [Operand; 3]) {
        let [a, b, c] = abc.map(|operand| self.read::<u32>(operand));
        let result = std::array::from_fn(|lane| {
            (0..8).filter(|row| table >> row & 1 == 1).fold(0, |bits, row| {
                let pick = |value: u32, bit: u32| if row >> bit & 1 == 1 { value } else { !value };
                bits | pick(a[lane], 2) & pick(b[lane], 1) & pick(c[lane], 0)
            })
        });
        if let Some(LogicPredicate { destination: Some(destination), op, condition }) = predicate {
            let nonzero = result.iter().enumerate().fold(0, |bits, (lane, value)| bits | u32::from(*value != 0) << lane);
            let holds = combine(op, nonzero, self.condition(condition));
            self.set_predicate(destination, lanes, holds);
        }
        if let Some(d) = d {
            self.write(d, lanes, &result);
        }
    }

    /// A function of the bits of one operand.
    pub(super) fn bit_function(&mut self, lanes: u32, op: BitOp, ty: Type, d: Register, a: Operand) {
        match (op, ty.bits()) {
            (BitOp::Not, 1) => {
                let holds = !self.truth(a);
                self.set_predicate(d, lanes, holds);
            }
            (BitOp::Not, 64) => self.map(lanes, d, a, |a: u64| !a),
            (BitOp::Not, _) => self.map(lanes, d, a, |a: u32| !a),
            (BitOp::LogicalNot, 64) => self.map(lanes, d, a, |a: u64| u64::from(a == 0)),
            (BitOp::LogicalNot, 16) => self.map(lanes, d, a, |a: u32| u32::from(a as u16 == 0)),
            (BitOp::LogicalNot, _) => self.map(lanes, d, a, |a: u32| u32::from(a == 0)),
            (BitOp::Reverse, 64) => self.map(lanes, d, a, u64::reverse_bits),
            (BitOp::Reverse, _) => self.map(lanes, d, a, u32::reverse_bits),
            (BitOp::PopulationCount, 64) => self.map(lanes, d, a, u64::count_ones),
            (BitOp::PopulationCount, _) => self.map(lanes, d, a, u32::count_ones),
            (BitOp::CountLeadingZeros, 64) => self.map(lanes, d, a, u64::leading_zeros),
            (BitOp::CountLeadingZeros, _) => self.map(lanes, d, a, u32::leading_zeros),
        }
    }

    /// `bfind`.
    pub(super) fn find_leading(&mut self, lanes: u32, ty: Type, shift_amount: bool, d: Register, a: Operand) {
        let find = move |value: u64, width: u32| match value {
            0 => u32::MAX,
            _ if shift_amount => width - 1 - value.ilog2(),
            _ => value.ilog2(),
        };
        match ty {
            Type::U64 => self.map(lanes, d, a, |a: u64| find(a, 64)),
            Type::S64 => self.map(lanes, d, a, |a: u64| find(if (a as i64) < 0 { !a } else { a }, 64)),
            Type::S32 => self.map(lanes, d, a, |a: u32| find(if (a as i32) < 0 { !a } else { a }.into(), 32)),
            _ => self.map(lanes, d, a, |a: u32| find(a.into(), 32)),
        }
    }

    /// `shl` and `shr`.
    #[inline(always)]
    pub(super) fn shift(&mut self, lanes: u32, left: bool, ty: Type, d: Register, ab: [Operand; 2]) {
        match (left, ty.bits(), ty.is_signed()) {
            (true, 64, _) => self.map2(lanes, d, ab, |a: u64, n: u32| if n > 63 { 0 } else { a << n }),
            (true, 32, _) => self.map2(lanes, d, ab, |a: u32, n: u32| if n > 31 { 0 } else { a << n }),
            (true, _, _) => self.map2(lanes, d, ab, |a: u32, n: u32| if n > 15 { 0 } else { a << n & 0xffff }),
            (false, 64, false) => self.map2(lanes, d, ab, |a: u64, n: u32| if n > 63 { 0 } else { a >> n }),
            (false, 64, true) => self.map2(lanes, d, ab, |a: u64, n: u32| (a as i64 >> n.min(63)) as u64),
            (false, 32, false) => self.map2(lanes, d, ab, |a: u32, n: u32| if n > 31 { 0 } else { a >> n }),
            (false, 32, true) => self.map2(lanes, d, ab, |a: u32, n: u32| (a as i32 >> n.min(31)) as u32),
            (false, _, false) => self.map2(lanes, d, ab, |a: u32, n: u32| if n > 15 { 0 } else { (a & 0xffff) >> n }),
            (false, _, true) => self.map2(lanes, d, ab, |a: u32, n: u32| (i32::from(a as i16) >> n.min(15)) as u32 & 0xffff),
        }
    }

    /// `shf`.
    pub(super) fn funnel_shift(&mut self, lanes: u32, left: bool, clamp: bool, d: Register, abc: [Operand; 3]) {
        let amount = move |n: u32| if clamp { n.min(32) } else { n & 31 };
        let pair = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        match left {
            true => self.map3(lanes, d, abc, |low, high, n: u32| (u128::from(pair(low, high)) << amount(n) >> 32) as u32),
            false => self.map3(lanes, d, abc, |low, high, n: u32| (pair(low, high) >> amount(n)) as u32),
        }
    }

    /// `bfi`.
    pub(super) fn bit_field_insert(&mut self, lanes: u32, ty: Type, d: Register, abpl: [Operand; 4]) {
        let [a, b, position, length] = abpl.map(|operand| self.bits(operand));
        let result = std::array::from_fn(|lane| {
            let (position, length) = ((position[lane] & 0xff) as u32, (length[lane] & 0xff) as u32);
            let field = (((1u128 << length.min(64)) - 1) << position.min(64)) as u64;
            b[lane] & !field | ((u128::from(a[lane]) << position.min(64)) as u64) & field
        });
        let result = if ty.bits() == 32 { result.map(|value: u64| value & 0xffff_ffff) } else { result };
        self.write_bits(d, lanes, &result);
    }

    /// `bfe`: past the top come zeros, or copies of the field's sign.
    pub(super) fn bit_field_extract(&mut self, lanes: u32, ty: Type, d: Register, apl: [Operand; 3]) {
        let [a, position, length] = apl.map(|operand| self.bits(operand));
        let width = ty.bits();
        let result = std::array::from_fn(|lane| {
            let (position, length) = ((position[lane] & 0xff) as u32, (length[lane] & 0xff) as u32);
            if length == 0 {
                return 0;
            }
            let top = (position + length - 1).min(width - 1);
            let sign = ty.is_signed() && a[lane] >> top & 1 == 1;
            let above = if sign { u64::MAX } else { 0 };
            let value = if position > 63 { 0 } else { a[lane] >> position };
            let kept = if position > top { 0 } else { top - position + 1 };
            let mask = if kept >= 64 { u64::MAX } else { (1 << kept) - 1 };
            value & mask | above & !mask
        });
        self.write_bits(d, lanes, &result);
    }

    /// `prmt`.
    pub(super) fn permute(&mut self, lanes: u32, mode: PermuteMode, d: Register, abc: [Operand; 3]) {
        self.map3(lanes, d, abc, |a: u32, b: u32, c: u32| {
            let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
            let control = (c & 3) as usize;
            u32::from_le_bytes(std::array::from_fn(|i| match mode {
                PermuteMode::Index => {
                    let selector = c >> (4 * i) & 0xf;
                    let byte = bytes[(selector & 7) as usize];
                    if selector & 8 == 0 { byte } else { (byte as i8 >> 7) as u8 }
                }
                PermuteMode::Forward4 => bytes[control + i],
                PermuteMode::Backward4 => bytes[control.wrapping_sub(i) & 7],
                PermuteMode::Replicate8 => bytes[control],
                PermuteMode::EdgeLeft => bytes[control.max(i)],
                PermuteMode::EdgeRight => bytes[control.min(i)],
                PermuteMode::Replicate16 => bytes[(control & 1) * 2 + i % 2],
            }))
        });
    }
}

/// Combines sets of lanes.
#[inline(always)]
pub(super) fn combine(op: BooleanOp, a: u32, b: u32) -> u32 {
    match op {
        BooleanOp::And => a & b,
        BooleanOp::Or => a | b,
        BooleanOp::Xor => a ^ b,
    }
}
