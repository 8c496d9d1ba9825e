//! Floating-point arithmetic and conversions: which function of [`numerics`](crate::numerics) an instruction is.

use super::{
    fault::ExecError,
    registers::{Registers, Slot},
};
use crate::numerics::{
    Approximation, Bf16, Divide, F16, F32, F64, Float, Fp8, Integer, Mode, Rounding as Direction, approximate, bf16_to_f32, f16_to_f32,
    f16x2_to_fp8x2, f32_to_bf16, f32_to_f16, f32x2_to_bf16x2, f32x2_to_f16x2, f32x2_to_fp4x2, f32x2_to_fp8x2, float_to_float,
    float_to_integer, fp4x2_to_f16x2, fp8x2_to_f16x2, integer_to_float, integer_to_integer, lanes as both, lanes_of_one, lanes_of_three,
    round_to_integral,
};
use passmuster_ptx::{FloatOp, IntegerRounding, NumberTest, Operand, Precision, Register, Rounding, Type, UnaryOp};

/// A format in its slot.
pub(super) trait Held: Float {
    type Slot: Slot;
    fn of(slot: Self::Slot) -> Self::Bits;
    fn slot(bits: Self::Bits) -> Self::Slot;
}

macro_rules! held {
    ($format:ty, $slot:ty) => {
        impl Held for $format {
            type Slot = $slot;
            #[inline(always)]
            fn of(slot: $slot) -> Self::Bits {
                slot as Self::Bits
            }
            #[inline(always)]
            fn slot(bits: Self::Bits) -> $slot {
                bits as $slot
            }
        }
    };
}

held!(F16, u32);
held!(Bf16, u32);
held!(F32, u32);
held!(F64, u64);

/// The numerics' name of a rounding.
pub(super) fn direction(rounding: Rounding) -> Result<Direction, ExecError> {
    match rounding {
        Rounding::Nearest => Ok(Direction::Nearest),
        Rounding::Zero => Ok(Direction::Zero),
        Rounding::Down => Ok(Direction::Down),
        Rounding::Up => Ok(Direction::Up),
        Rounding::NearestAway => Err(ExecError::unsupported("rounding .rna")),
    }
}

fn integer_direction(rounding: IntegerRounding) -> Direction {
    match rounding {
        IntegerRounding::Nearest => Direction::Nearest,
        IntegerRounding::Zero => Direction::Zero,
        IntegerRounding::Down => Direction::Down,
        IntegerRounding::Up => Direction::Up,
    }
}

/// An instruction of two operands, but for the operands.
pub(super) struct Binary {
    pub(super) op: FloatOp,
    pub(super) ty: Type,
    pub(super) precision: Precision,
    pub(super) ftz: bool,
    pub(super) saturate: bool,
    pub(super) nan: bool,
    pub(super) xorsign_abs: bool,
}

/// The modifiers of a conversion.
pub(super) struct Conversion {
    pub(super) to: Type,
    pub(super) from: Type,
    pub(super) rounding: Option<Rounding>,
    pub(super) integer_rounding: Option<IntegerRounding>,
    pub(super) ftz: bool,
    pub(super) saturate: bool,
    pub(super) saturate_finite: bool,
    pub(super) relu: bool,
}

/// The integer that a PTX type is.
pub(super) fn integer_type(ty: Type) -> Option<Integer> {
    Some(match ty {
        Type::U8 | Type::B8 => Integer::U8,
        Type::U16 | Type::B16 => Integer::U16,
        Type::U32 | Type::B32 => Integer::U32,
        Type::U64 | Type::B64 => Integer::U64,
        Type::S8 => Integer::S8,
        Type::S16 => Integer::S16,
        Type::S32 => Integer::S32,
        Type::S64 => Integer::S64,
        _ => return None,
    })
}

/// `div.approx.f32`: the quotient, correctly rounded, but 0 where the ISA says so of large divisors.
fn divide_approximately(a: u32, b: u32, mode: Mode) -> u32 {
    let magnitude = b & 0x7fff_ffff;
    if !(0x7e80_0001..0x7f80_0000).contains(&magnitude) || F32::is_nan(a) {
        return F32::div(a, b, mode);
    }
    if a & 0x7fff_ffff == 0x7f80_0000 { F32::NAN } else { (a ^ b) & 0x8000_0000 }
}

/// `min` and `max` with `.xorsign.abs`.
fn with_product_sign<F: Held>(a: F::Bits, b: F::Bits, choose: impl Fn(F::Bits, F::Bits) -> F::Bits) -> F::Bits {
    let sign = F::FORMAT.sign();
    let magnitude = |bits| F::lower(F::raise(bits) & !sign);
    let chosen = choose(magnitude(a), magnitude(b));
    if F::is_nan(chosen) { chosen } else { F::lower(F::raise(chosen) & !sign | (F::raise(a) ^ F::raise(b)) & sign) }
}

impl Registers {
    /// Arithmetic of two operands.
    #[inline(always)]
    pub(super) fn float(&mut self, lanes: u32, form: &Binary, d: Register, ab: [Operand; 2]) -> Result<(), ExecError> {
        let rounding = match form.precision {
            Precision::Rounded(rounding) => direction(rounding)?,
            Precision::Approximate | Precision::Full => Direction::Nearest,
        };
        let mode = Mode { rounding, ftz: form.ftz, sat: form.saturate, ..Mode::NEAREST };
        match (form.op, form.ty) {
            (FloatOp::Divide, Type::F32) if form.precision == Precision::Approximate => {
                self.each2(lanes, d, ab, |a, b| divide_approximately(a, b, mode));
            }
            (FloatOp::Divide, Type::F32) => self.each2(lanes, d, ab, |a, b| F32::div(a, b, mode)),
            (FloatOp::Divide, Type::F64) => self.each2(lanes, d, ab, |a, b| F64::div(a, b, mode)),
            (_, Type::F32) => self.float_of::<F32>(lanes, form, mode, d, ab),
            (_, Type::F64) => self.float_of::<F64>(lanes, form, mode, d, ab),
            (_, Type::F16) => self.float_of::<F16>(lanes, form, mode, d, ab),
            (_, Type::Bf16) => self.float_of::<Bf16>(lanes, form, mode, d, ab),
            (_, Type::F16x2) => self.packed_float::<F16>(lanes, form, mode, d, ab),
            (_, Type::Bf16x2) => self.packed_float::<Bf16>(lanes, form, mode, d, ab),
            (_, other) => return Err(ExecError::unsupported(format!(".{} of .{other}", form.op))),
        }
        Ok(())
    }

    #[inline(always)]
    fn float_of<F: Held>(&mut self, lanes: u32, form: &Binary, mode: Mode, d: Register, ab: [Operand; 2]) {
        const PLAIN: Mode = Mode::NEAREST;
        let plain = mode == PLAIN && !form.nan && !form.xorsign_abs;
        match form.op {
            FloatOp::Add if plain => self.map2(lanes, d, ab, |a, b| F::slot(F::add(F::of(a), F::of(b), PLAIN))),
            FloatOp::Subtract if plain => self.map2(lanes, d, ab, |a, b| F::slot(F::sub(F::of(a), F::of(b), PLAIN))),
            FloatOp::Multiply if plain => self.map2(lanes, d, ab, |a, b| F::slot(F::mul(F::of(a), F::of(b), PLAIN))),
            FloatOp::Minimum if plain => self.map2(lanes, d, ab, |a, b| F::slot(F::min(F::of(a), F::of(b), false, PLAIN))),
            FloatOp::Maximum if plain => self.map2(lanes, d, ab, |a, b| F::slot(F::max(F::of(a), F::of(b), false, PLAIN))),
            _ => self.each2(lanes, d, ab, |a, b| F::slot(float_any::<F>(form, mode, F::of(a), F::of(b)))),
        }
    }

    fn packed_float<F: Held<Bits = u16>>(&mut self, lanes: u32, form: &Binary, mode: Mode, d: Register, ab: [Operand; 2]) {
        self.each2(lanes, d, ab, |a: u32, b: u32| both(a, b, |a, b| float_any::<F>(form, mode, a, b)));
    }

    /// `fma`.
    #[inline(always)]
    pub(super) fn fused_multiply_add(&mut self, lanes: u32, ty: Type, mode: Mode, d: Register, abc: [Operand; 3]) -> Result<(), ExecError> {
        match ty {
            Type::F32 if mode == Mode::NEAREST => self.map3(lanes, d, abc, |a, b, c| F32::fma(a, b, c, Mode::NEAREST)),
            Type::F32 => self.each3(lanes, d, abc, |a, b, c| F32::fma(a, b, c, mode)),
            Type::F64 => self.each3(lanes, d, abc, |a, b, c| F64::fma(a, b, c, mode)),
            Type::F16 => self.each3(lanes, d, abc, |a: u32, b: u32, c: u32| F16::fma(a as u16, b as u16, c as u16, mode).into()),
            Type::Bf16 => self.each3(lanes, d, abc, |a: u32, b: u32, c: u32| Bf16::fma(a as u16, b as u16, c as u16, mode).into()),
            Type::F16x2 => self.each3(lanes, d, abc, |a, b, c| lanes_of_three(a, b, c, |a, b, c| F16::fma(a, b, c, mode))),
            Type::Bf16x2 => self.each3(lanes, d, abc, |a, b, c| lanes_of_three(a, b, c, |a, b, c| Bf16::fma(a, b, c, mode))),
            other => return Err(ExecError::unsupported(format!("type .{other}"))),
        }
        Ok(())
    }

    /// A function of one number.
    pub(super) fn float_unary(
        &mut self,
        lanes: u32,
        (op, ty, precision, ftz): (UnaryOp, Type, Precision, bool),
        d: Register,
        a: Operand,
    ) -> Result<(), ExecError> {
        let mode = Mode { ftz, ..Mode::NEAREST };
        if matches!(op, UnaryOp::Negate | UnaryOp::Absolute) {
            return self.float_sign(lanes, op, ty, mode, d, a);
        }
        let unknown = || ExecError::unsupported(format!(".{op} of .{ty}, {precision:?}"));
        if let Precision::Rounded(rounding) = precision {
            let mode = Mode { rounding: direction(rounding)?, ..mode };
            match (op, ty) {
                (UnaryOp::Reciprocal, Type::F32) => self.each(lanes, d, a, |a| F32::rcp(a, mode)),
                (UnaryOp::Reciprocal, Type::F64) => self.each(lanes, d, a, |a| F64::rcp(a, mode)),
                (UnaryOp::SquareRoot, Type::F32) => self.each(lanes, d, a, |a| F32::sqrt(a, mode)),
                (UnaryOp::SquareRoot, Type::F64) => self.each(lanes, d, a, |a| F64::sqrt(a, mode)),
                _ => return Err(unknown()),
            }
            return Ok(());
        }
        let function = match op {
            UnaryOp::Reciprocal => Approximation::Rcp,
            UnaryOp::SquareRoot => Approximation::Sqrt,
            UnaryOp::ReciprocalSquareRoot => Approximation::Rsqrt,
            UnaryOp::Exponential => Approximation::Ex2,
            UnaryOp::Logarithm => Approximation::Lg2,
            UnaryOp::Negate | UnaryOp::Absolute | UnaryOp::Sine | UnaryOp::Cosine | UnaryOp::HyperbolicTangent => return Err(unknown()),
        };
        if ty != Type::F32 {
            return Err(unknown());
        }
        self.each(lanes, d, a, |a| approximate(function, a, mode));
        Ok(())
    }

    fn float_sign(&mut self, lanes: u32, op: UnaryOp, ty: Type, mode: Mode, d: Register, a: Operand) -> Result<(), ExecError> {
        let negate = op == UnaryOp::Negate;
        macro_rules! sign {
            ($format:ty) => {
                |a| if negate { <$format>::neg(a, mode) } else { <$format>::abs(a, mode) }
            };
        }
        match ty {
            Type::F32 => self.map(lanes, d, a, sign!(F32)),
            Type::F64 => self.map(lanes, d, a, sign!(F64)),
            Type::F16 => self.map(lanes, d, a, |a: u32| u32::from(sign!(F16)(a as u16))),
            Type::Bf16 => self.map(lanes, d, a, |a: u32| u32::from(sign!(Bf16)(a as u16))),
            Type::F16x2 => self.map(lanes, d, a, |a| lanes_of_one(a, sign!(F16))),
            Type::Bf16x2 => self.map(lanes, d, a, |a| lanes_of_one(a, sign!(Bf16))),
            other => return Err(ExecError::unsupported(format!("type .{other}"))),
        }
        Ok(())
    }

    /// `testp`.
    pub(super) fn test_number(&mut self, lanes: u32, test: NumberTest, ty: Type, d: Register, a: Operand) {
        let holds = match ty {
            Type::F64 => self.test2([a, a], |a: u64, _| number_is::<F64>(test, a)),
            _ => self.test2([a, a], |a: u32, _| number_is::<F32>(test, a)),
        };
        self.set_predicate(d, lanes, holds);
    }

    /// `cvt` of one operand.
    #[inline(always)]
    pub(super) fn convert(&mut self, lanes: u32, form: &Conversion, d: Register, a: Operand) -> Result<(), ExecError> {
        let plain = !(form.ftz || form.saturate || form.saturate_finite || form.relu);
        let nearest = form.rounding == Some(Rounding::Nearest);
        match (form.to, form.from) {
            (Type::F32, Type::F16) if plain && is_word(d) => self.map(lanes, d, a, |a: u32| f16_to_f32(a as u16)),
            (Type::F32, Type::Bf16) if plain && is_word(d) => self.map(lanes, d, a, |a: u32| bf16_to_f32(a as u16)),
            (Type::F16, Type::F32) if plain && nearest => self.map(lanes, d, a, |a: u32| u32::from(f32_to_f16(a))),
            (Type::Bf16, Type::F32) if plain && nearest => self.map(lanes, d, a, |a: u32| u32::from(f32_to_bf16(a))),
            _ => return self.convert_any(lanes, form, d, a),
        }
        Ok(())
    }

    fn convert_any(&mut self, lanes: u32, form: &Conversion, d: Register, a: Operand) -> Result<(), ExecError> {
        let mut values = self.bits(a);
        if let (Some(from), Some(to), false) = (integer_type(form.from), integer_type(form.to), form.saturate) {
            values.iter_mut().for_each(|value| *value = to.extend(from.extend(*value)));
        } else {
            let convert = conversion(form)?;
            super::registers::lanes_of(lanes).for_each(|lane| values[lane] = convert(form, values[lane]));
        }
        self.write_bits(d, lanes, &values);
        Ok(())
    }

    /// `cvt` of two f32 into a packed type.
    pub(super) fn convert_pair(
        &mut self,
        lanes: u32,
        (to, rounding, satfinite, relu): (Type, Rounding, bool, bool),
        d: Register,
        high_low: [Operand; 2],
    ) -> Result<(), ExecError> {
        let mode = Mode { rounding: direction(rounding)?, satfinite, relu, ..Mode::NEAREST };
        match to {
            Type::F16x2 => self.each2(lanes, d, high_low, |a, b| f32x2_to_f16x2(a, b, mode)),
            Type::Bf16x2 => self.each2(lanes, d, high_low, |a, b| f32x2_to_bf16x2(a, b, mode)),
            Type::E4m3x2 => self.each2(lanes, d, high_low, |a, b| u32::from(f32x2_to_fp8x2(a, b, Fp8::E4m3, relu))),
            Type::E5m2x2 => self.each2(lanes, d, high_low, |a, b| u32::from(f32x2_to_fp8x2(a, b, Fp8::E5m2, relu))),
            Type::E2m1x2 => self.each2(lanes, d, high_low, |a, b| u32::from(f32x2_to_fp4x2(a, b, relu))),
            other => return Err(ExecError::unsupported(format!("a pair to .{other}"))),
        }
        Ok(())
    }
}

fn is_word(register: Register) -> bool {
    register.class == passmuster_ptx::Class::Word
}

/// Arithmetic with any modifiers.
fn float_any<F: Held>(form: &Binary, mode: Mode, a: F::Bits, b: F::Bits) -> F::Bits {
    let sign = F::FORMAT.sign();
    match form.op {
        FloatOp::Add => F::add(a, b, mode),
        FloatOp::Subtract => F::sub(a, b, mode),
        FloatOp::Multiply => F::mul(a, b, mode),
        FloatOp::Minimum if form.xorsign_abs => with_product_sign::<F>(a, b, |a, b| F::min(a, b, form.nan, mode)),
        FloatOp::Maximum if form.xorsign_abs => with_product_sign::<F>(a, b, |a, b| F::max(a, b, form.nan, mode)),
        FloatOp::Minimum => F::min(a, b, form.nan, mode),
        FloatOp::Maximum => F::max(a, b, form.nan, mode),
        // The second with the first's sign; division never comes here.
        FloatOp::CopySign | FloatOp::Divide => F::lower(F::raise(b) & !sign | F::raise(a) & sign),
    }
}

fn number_is<F: Held>(test: NumberTest, bits: F::Bits) -> bool {
    let magnitude = F::raise(bits) & !F::FORMAT.sign();
    let infinity = F::FORMAT.largest() + 1;
    let normal = 1 << F::FORMAT.fraction;
    match test {
        NumberTest::Finite => magnitude < infinity,
        NumberTest::Infinite => magnitude == infinity,
        NumberTest::Number => magnitude <= infinity,
        NumberTest::NotANumber => magnitude > infinity,
        // A zero counts as normal (PTX ISA 9.7.3, testp).
        NumberTest::Normal => magnitude == 0 || (normal..infinity).contains(&magnitude),
        NumberTest::Subnormal => (1..normal).contains(&magnitude),
    }
}

/// The function of one value that a conversion is; results are extended by the sign of the type that they are of.
fn conversion(form: &Conversion) -> Result<fn(&Conversion, u64) -> u64, ExecError> {
    if let Some(rounding) = form.rounding {
        direction(rounding)?;
    }
    macro_rules! from_float {
        ($from:ty) => {
            match form.to {
                Type::F16 => convert_floats::<$from, F16>,
                Type::Bf16 => convert_floats::<$from, Bf16>,
                Type::F32 => convert_floats::<$from, F32>,
                Type::F64 => convert_floats::<$from, F64>,
                to if integer_type(to).is_some() => convert_to_integer::<$from>,
                to => return Err(ExecError::unsupported(format!("from .{} to .{to}", form.from))),
            }
        };
    }
    Ok(match (form.from, form.to) {
        (Type::E4m3x2 | Type::E5m2x2, Type::F16x2) => |form, value| fp8x2_to_f16x2(value as u16, fp8(form.from), form.relu).into(),
        (Type::E2m1x2, Type::F16x2) => |form, value| fp4x2_to_f16x2(value as u8, form.relu).into(),
        (Type::F16x2, Type::E4m3x2 | Type::E5m2x2) => |form, value| f16x2_to_fp8x2(value as u32, fp8(form.to), form.relu).into(),
        (Type::F16, _) => from_float!(F16),
        (Type::Bf16, _) => from_float!(Bf16),
        (Type::F32, _) => from_float!(F32),
        (Type::F64, _) => from_float!(F64),
        (from, Type::F16) if integer_type(from).is_some() => convert_from_integer::<F16>,
        (from, Type::Bf16) if integer_type(from).is_some() => convert_from_integer::<Bf16>,
        (from, Type::F32) if integer_type(from).is_some() => convert_from_integer::<F32>,
        (from, Type::F64) if integer_type(from).is_some() => convert_from_integer::<F64>,
        (from, to) => match (integer_type(from), integer_type(to)) {
            (Some(_), Some(_)) => convert_integers,
            _ => return Err(ExecError::unsupported(format!("from .{from} to .{to}"))),
        },
    })
}

fn fp8(ty: Type) -> Fp8 {
    if ty == Type::E4m3x2 { Fp8::E4m3 } else { Fp8::E5m2 }
}

impl Conversion {
    /// Its mode; a rounding that the numerics do not know was refused before.
    fn mode(&self) -> Mode {
        let rounding = match (self.integer_rounding, self.rounding) {
            (Some(rounding), _) => integer_direction(rounding),
            (None, Some(rounding)) => direction(rounding).unwrap_or_default(),
            (None, None) => Direction::Nearest,
        };
        Mode { rounding, ftz: self.ftz, sat: self.saturate, relu: self.relu, satfinite: self.saturate_finite }
    }
}

fn convert_floats<From: Float, To: Float>(form: &Conversion, value: u64) -> u64 {
    let bits = From::lower(value);
    match form.integer_rounding {
        Some(_) => From::raise(round_to_integral::<From>(bits, form.mode())),
        None => To::raise(float_to_float::<From, To>(bits, form.mode())),
    }
}

fn convert_to_integer<From: Float>(form: &Conversion, value: u64) -> u64 {
    let to = integer_type(form.to).unwrap_or(Integer::U64);
    to.extend(float_to_integer::<From>(From::lower(value), to, form.mode()))
}

fn convert_from_integer<To: Float>(form: &Conversion, value: u64) -> u64 {
    let from = integer_type(form.from).unwrap_or(Integer::U64);
    To::raise(integer_to_float::<To>(value, from, form.mode()))
}

fn convert_integers(form: &Conversion, value: u64) -> u64 {
    let (from, to) = (integer_type(form.from).unwrap_or(Integer::U64), integer_type(form.to).unwrap_or(Integer::U64));
    to.extend(integer_to_integer(value, from, to, form.saturate))
}
