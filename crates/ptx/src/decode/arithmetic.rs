//! Arithmetic, logic, comparison.

use crate::{
    BitOp, FloatOp, Instruction, IntegerOp, LogicPredicate, NumberTest, PermuteMode, Precision, UnaryOp,
    error::PtxError,
    form::Form,
    types::{
        BooleanOp, Comparison, Rounding,
        Type::{self, *},
    },
};

const INTEGERS: &[Type] = &[U16, U32, U64, S16, S32, S64];
const NUMBERS: &[Type] = &[U16, U32, U64, S16, S32, S64, U16x2, S16x2, F16, F16x2, Bf16, Bf16x2, F32, F64];
const FLOATS: &[Type] = &[F16, F16x2, Bf16, Bf16x2, F32, F64];
const DIRECTED: &[(&str, Rounding)] = &[("rn", Rounding::Nearest), ("rz", Rounding::Zero), ("rm", Rounding::Down), ("rp", Rounding::Up)];
const HALVES: [Type; 4] = [F16, F16x2, Bf16, Bf16x2];

/// The unsigned integer that is twice as wide.
fn doubled(ty: Type) -> Option<Type> {
    match ty.bits() {
        16 => Some(U32),
        32 => Some(U64),
        _ => None,
    }
}

fn is_packed_integer(ty: Type) -> bool {
    matches!(ty, U16x2 | S16x2)
}

/// `.ftz`, which f32, f16 and f16x2 have.
fn ftz(f: &mut Form<'_, '_>, ty: Type) -> Result<bool, PtxError> {
    let ftz = f.take("ftz");
    if ftz && !matches!(ty, F32 | F16 | F16x2) {
        return Err(f.combination(format!(".ftz with .{ty}"), "a type of .f32, .f16, .f16x2"));
    }
    Ok(ftz)
}

/// Rounding of an operation, to nearest where none is stated. Halves round to nearest only.
fn rounding(f: &mut Form<'_, '_>, ty: Type) -> Result<Rounding, PtxError> {
    let rounding = f.one_of(DIRECTED).unwrap_or(Rounding::Nearest);
    if HALVES.contains(&ty) && rounding != Rounding::Nearest {
        return Err(f.combination(format!(".{rounding} with .{ty}"), ".rn"));
    }
    Ok(rounding)
}

fn saturation(f: &mut Form<'_, '_>, ty: Type) -> Result<bool, PtxError> {
    let saturate = f.take("sat");
    if saturate && !matches!(ty, S32 | F32 | F16 | F16x2) {
        return Err(f.combination(format!(".sat with .{ty}"), "a type of .s32, .f32, .f16, .f16x2"));
    }
    Ok(saturate)
}

/// add, sub, mul, div, rem, min, max.
pub(super) fn binary(f: &mut Form<'_, '_>, op: &str) -> Result<Instruction, PtxError> {
    let ty = f.ty(if op == "rem" { INTEGERS } else { NUMBERS })?;
    if ty.is_float() { float(f, op, ty) } else { integer(f, op, ty) }
}

fn integer(f: &mut Form<'_, '_>, op: &str, ty: Type) -> Result<Instruction, PtxError> {
    let op = match op {
        "add" => IntegerOp::Add,
        "sub" => IntegerOp::Subtract,
        "div" => IntegerOp::Divide,
        "rem" => IntegerOp::Remainder,
        "min" => IntegerOp::Minimum,
        "max" => IntegerOp::Maximum,
        _ => product(f)?,
    };
    if is_packed_integer(ty) && !matches!(op, IntegerOp::Add | IntegerOp::Minimum | IntegerOp::Maximum) {
        return Err(f.combination(format!("type .{ty}"), "a type of one integer"));
    }
    let saturate = matches!(op, IntegerOp::Add | IntegerOp::Subtract) && saturation(f, ty)?;
    let extremum = matches!(op, IntegerOp::Minimum | IntegerOp::Maximum);
    let relu = extremum && matches!(ty, S32 | S16x2) && f.take("relu");
    let to = result(f, op, ty)?;
    Ok(Instruction::Integer { op, ty, saturate, relu, destination: f.destination(to)?, a: f.source(ty)?, b: f.source(ty)? })
}

fn product(f: &mut Form<'_, '_>) -> Result<IntegerOp, PtxError> {
    f.required(&[("lo", IntegerOp::MultiplyLow), ("hi", IntegerOp::MultiplyHigh), ("wide", IntegerOp::MultiplyWide)])
}

fn result(f: &Form<'_, '_>, op: IntegerOp, ty: Type) -> Result<Type, PtxError> {
    if op != IntegerOp::MultiplyWide {
        return Ok(ty);
    }
    doubled(ty).ok_or_else(|| f.combination(format!(".wide with .{ty}"), "a type of 16 or 32 bits"))
}

fn float(f: &mut Form<'_, '_>, op: &str, ty: Type) -> Result<Instruction, PtxError> {
    let op = match op {
        "add" => FloatOp::Add,
        "sub" => FloatOp::Subtract,
        "mul" => FloatOp::Multiply,
        "div" => FloatOp::Divide,
        "min" => FloatOp::Minimum,
        _ => FloatOp::Maximum,
    };
    let ftz = ftz(f, ty)?;
    let extremum = matches!(op, FloatOp::Minimum | FloatOp::Maximum);
    let precision = match op {
        FloatOp::Divide => {
            if !matches!(ty, F32 | F64) {
                return Err(f.combination(format!("type .{ty}"), "one of .f32, .f64"));
            }
            precision(f, ty, &[Precision::Approximate, Precision::Full])?
        }
        _ if extremum => Precision::Rounded(Rounding::Nearest),
        _ => Precision::Rounded(rounding(f, ty)?),
    };
    let saturate = !extremum && op != FloatOp::Divide && saturation(f, ty)?;
    let nan = extremum && ty != F64 && f.take("NaN");
    let xorsign_abs = extremum && ty != F64 && f.take("xorsign") && required_abs(f)?;
    let destination = f.destination(ty)?;
    Ok(Instruction::Float { op, ty, precision, ftz, saturate, nan, xorsign_abs, destination, a: f.source(ty)?, b: f.source(ty)? })
}

fn required_abs(f: &mut Form<'_, '_>) -> Result<bool, PtxError> {
    f.required(&[("abs", true)])
}

/// A rounding, or one of the inexact ways where the type has them.
fn precision(f: &mut Form<'_, '_>, ty: Type, inexact: &[Precision]) -> Result<Precision, PtxError> {
    if f.take("approx") && inexact.contains(&Precision::Approximate) && ty == F32 {
        return Ok(Precision::Approximate);
    }
    if inexact.contains(&Precision::Full) && ty == F32 && f.take("full") {
        return Ok(Precision::Full);
    }
    f.required(DIRECTED).map(Precision::Rounded)
}

/// fma, and mad of floating-point types.
pub(super) fn fma(f: &mut Form<'_, '_>, ty: Type) -> Result<Instruction, PtxError> {
    let (ftz, saturate) = (ftz(f, ty)?, saturation(f, ty)?);
    let rounding = f.required(DIRECTED)?;
    if HALVES.contains(&ty) && rounding != Rounding::Nearest {
        return Err(f.combination(format!(".{rounding} with .{ty}"), ".rn"));
    }
    let relu = HALVES.contains(&ty) && f.take("relu");
    let destination = f.destination(ty)?;
    let (a, b, c) = (f.source(ty)?, f.source(ty)?, f.source(ty)?);
    Ok(Instruction::FusedMultiplyAdd { ty, rounding, ftz, saturate, relu, destination, a, b, c })
}

pub(super) fn fma_of_any(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let ty = f.ty(FLOATS)?;
    fma(f, ty)
}

pub(super) fn mad(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let ty = f.ty(&[U16, U32, U64, S16, S32, S64, F32, F64])?;
    if ty.is_float() {
        return fma(f, ty);
    }
    let op = product(f)?;
    let saturate = op == IntegerOp::MultiplyHigh && saturation(f, ty)?;
    let to = result(f, op, ty)?;
    let destination = f.destination(to)?;
    Ok(Instruction::IntegerMultiplyAdd { op, ty, saturate, destination, a: f.source(ty)?, b: f.source(ty)?, c: f.source(to)? })
}

/// neg, abs.
pub(super) fn sign(f: &mut Form<'_, '_>, op: UnaryOp) -> Result<Instruction, PtxError> {
    let ty = f.ty(&[S16, S32, S64, F16, F16x2, Bf16, Bf16x2, F32, F64])?;
    if !ty.is_float() {
        return Ok(Instruction::IntegerUnary { op, ty, destination: f.destination(ty)?, a: f.source(ty)? });
    }
    let ftz = ftz(f, ty)?;
    let precision = Precision::Rounded(Rounding::Nearest);
    Ok(Instruction::FloatUnary { op, ty, precision, ftz, destination: f.destination(ty)?, a: f.source(ty)? })
}

/// rcp, sqrt and their like.
pub(super) fn function(f: &mut Form<'_, '_>, op: UnaryOp) -> Result<Instruction, PtxError> {
    let ty = f.ty(op.types())?;
    // Of bf16, ex2 must say that it flushes; of f64, the approximations must.
    let ftz = f.take("ftz");
    let rounded = matches!(op, UnaryOp::Reciprocal | UnaryOp::SquareRoot);
    let precision = match f.take("approx") {
        true => Precision::Approximate,
        false if rounded => Precision::Rounded(f.required(DIRECTED)?),
        false => return Err(f.combination("no .approx", ".approx")),
    };
    let flushes = match (op, ty) {
        (UnaryOp::Exponential, Bf16 | Bf16x2) => ftz,
        (UnaryOp::HyperbolicTangent, _) => !ftz,
        (UnaryOp::ReciprocalSquareRoot, F64) => true,
        (UnaryOp::Reciprocal, F64) => ftz == (precision == Precision::Approximate),
        (UnaryOp::SquareRoot, F64) => !ftz && precision != Precision::Approximate,
        _ => true,
    };
    if !flushes {
        let found = format!("{} .ftz, .{op} and .{ty}", if ftz { "" } else { "no" });
        return Err(f.combination(found.trim(), "a combination that the ISA has"));
    }
    Ok(Instruction::FloatUnary { op, ty, precision, ftz, destination: f.destination(ty)?, a: f.source(ty)? })
}

pub(super) fn copysign(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let ty = f.ty(&[F32, F64])?;
    let precision = Precision::Rounded(Rounding::Nearest);
    let destination = f.destination(ty)?;
    let (a, b) = (f.source(ty)?, f.source(ty)?);
    let op = FloatOp::CopySign;
    Ok(Instruction::Float { op, ty, precision, ftz: false, saturate: false, nan: false, xorsign_abs: false, destination, a, b })
}

pub(super) fn testp(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let ty = f.ty(&[F32, F64])?;
    Ok(Instruction::TestNumber { test: f.required(NumberTest::ALL)?, ty, destination: f.destination(Pred)?, a: f.source(ty)? })
}

/// and, or, xor.
pub(super) fn logic(f: &mut Form<'_, '_>, op: BooleanOp) -> Result<Instruction, PtxError> {
    let ty = f.ty(&[Pred, B16, B32, B64])?;
    Ok(Instruction::Logic { op, ty, destination: f.destination(ty)?, a: f.source(ty)?, b: f.source(ty)? })
}

pub(super) fn lop3(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    f.ty(&[B32])?;
    let op = f.one_of(&[("and", BooleanOp::And), ("or", BooleanOp::Or)]);
    let (destination, second) = f.destination_pair(B32)?;
    let (a, b, c) = (f.source(B32)?, f.source(B32)?, f.source(B32)?);
    let table = f.constant(256)? as u8;
    let predicate = match op {
        Some(op) => Some(LogicPredicate { destination: second, op, condition: f.condition()? }),
        None if second.is_some() => return Err(f.combination("a predicate and no operation", "one of .and, .or")),
        None => None,
    };
    Ok(Instruction::LogicTable { table, destination, predicate, a, b, c })
}

/// not, popc and their like.
pub(super) fn bits(f: &mut Form<'_, '_>, op: BitOp) -> Result<Instruction, PtxError> {
    let (types, to) = op.types();
    let ty = f.ty(types)?;
    Ok(Instruction::Bits { op, ty, destination: f.destination(to.unwrap_or(ty))?, a: f.source(ty)? })
}

pub(super) fn bfind(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let ty = f.ty(&[U32, U64, S32, S64])?;
    let shift_amount = f.take("shiftamt");
    Ok(Instruction::FindLeading { ty, shift_amount, destination: f.destination(U32)?, a: f.source(ty)? })
}

pub(super) fn shift(f: &mut Form<'_, '_>, left: bool) -> Result<Instruction, PtxError> {
    let ty = f.ty(if left { &[B16, B32, B64] } else { &[B16, B32, B64, U16, U32, U64, S16, S32, S64] })?;
    Ok(Instruction::Shift { left, ty, destination: f.destination(ty)?, a: f.source(ty)?, amount: f.source(U32)? })
}

pub(super) fn funnel_shift(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    f.ty(&[B32])?;
    let left = f.required(&[("l", true), ("r", false)])?;
    let clamp = f.required(&[("clamp", true), ("wrap", false)])?;
    let destination = f.destination(B32)?;
    Ok(Instruction::FunnelShift { left, clamp, destination, low: f.source(B32)?, high: f.source(B32)?, amount: f.source(U32)? })
}

pub(super) fn bfi(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let ty = f.ty(&[B32, B64])?;
    let destination = f.destination(ty)?;
    let (a, b) = (f.source(ty)?, f.source(ty)?);
    Ok(Instruction::BitFieldInsert { ty, destination, a, b, position: f.source(U32)?, length: f.source(U32)? })
}

pub(super) fn bfe(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let ty = f.ty(&[U32, U64, S32, S64])?;
    let destination = f.destination(ty)?;
    Ok(Instruction::BitFieldExtract { ty, destination, a: f.source(ty)?, position: f.source(U32)?, length: f.source(U32)? })
}

pub(super) fn prmt(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    f.ty(&[B32])?;
    let modes: Vec<_> = PermuteMode::ALL.iter().copied().filter(|(_, mode)| *mode != PermuteMode::Index).collect();
    let mode = f.one_of(&modes).unwrap_or(PermuteMode::Index);
    let destination = f.destination(B32)?;
    Ok(Instruction::Permute { mode, destination, a: f.source(B32)?, b: f.source(B32)?, selector: f.source(B32)? })
}

/// Takes a comparison that goes with the type.
fn comparison(f: &mut Form<'_, '_>, ty: Type) -> Result<Comparison, PtxError> {
    use Comparison::*;
    let comparison = f.required(Comparison::ALL)?;
    let fits = match comparison {
        Equal | NotEqual => true,
        Less | LessEqual | Greater | GreaterEqual => !ty.is_untyped(),
        Lower | LowerSame | Higher | HigherSame => ty.is_integer() && !ty.is_signed(),
        EqualUnordered
        | NotEqualUnordered
        | LessUnordered
        | LessEqualUnordered
        | GreaterUnordered
        | GreaterEqualUnordered
        | Numbers
        | Nan => ty.is_float(),
    };
    if fits { Ok(comparison) } else { Err(f.combination(format!(".{comparison} with .{ty}"), "a comparison of that type")) }
}

const COMPARED: &[Type] = &[B16, B32, B64, U16, U32, U64, S16, S32, S64, F16, F16x2, Bf16, Bf16x2, F32, F64];

pub(super) fn setp(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let ty = f.ty(COMPARED)?;
    let (ftz, comparison, op) = (ftz(f, ty)?, comparison(f, ty)?, f.one_of(BooleanOp::ALL));
    let (destination, second) = f.destination_pair(Pred)?;
    let (a, b) = (f.source(ty)?, f.source(ty)?);
    let combined = op.map(|_| f.condition()).transpose()?;
    Ok(Instruction::SetPredicate { comparison, ty, ftz, destination, second, a, b, op, combined })
}

pub(super) fn set(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let to = f.ty(&[U16, S16, U32, S32, F16, F16x2, Bf16, Bf16x2, F32])?;
    let ty = f.ty(COMPARED)?;
    let (ftz, comparison, op) = (ftz(f, ty)?, comparison(f, ty)?, f.one_of(BooleanOp::ALL));
    let destination = f.destination(to)?;
    let (a, b) = (f.source(ty)?, f.source(ty)?);
    let combined = op.map(|_| f.condition()).transpose()?;
    Ok(Instruction::Set { comparison, to, ty, ftz, destination, a, b, op, combined })
}

const SELECTED: &[Type] = &[B16, B32, B64, U16, U32, U64, S16, S32, S64, F32, F64];

pub(super) fn selp(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let ty = f.ty(SELECTED)?;
    Ok(Instruction::Select { ty, destination: f.destination(ty)?, a: f.source(ty)?, b: f.source(ty)?, condition: f.condition()? })
}

pub(super) fn slct(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let (ty, by) = (f.ty(SELECTED)?, f.ty(&[S32, F32])?);
    let ftz = ftz(f, by)?;
    let destination = f.destination(ty)?;
    Ok(Instruction::SelectBySign { ty, by, ftz, destination, a: f.source(ty)?, b: f.source(ty)?, c: f.source(by)? })
}
