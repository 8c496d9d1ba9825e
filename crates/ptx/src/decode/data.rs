//! Moves, loads, stores and conversions.

use crate::special::{UNMODELLED, special};
use crate::{
    Access, Address, Base, Instruction, Operand,
    error::{PtxError, shortened},
    form::Form,
    names::Symbol,
    syntax::OperandKind,
    types::{
        IntegerRounding, Rounding, Scope, Semantics, Space,
        Type::{self, *},
    },
};

const MEMORY: &[Type] = &[B8, B16, B32, B64, B128, U8, U16, U32, U64, S8, S16, S32, S64, F32, F64];

pub(super) fn mov(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let ty = f.ty(&[Pred, B16, B32, B64, B128, U16, U32, U64, S16, S32, S64, F32, F64])?;
    if let Some(count) = f.one_of(&[("v2", 2), ("v4", 4)]) {
        if ty == Pred {
            return Err(f.combination("a vector of predicates", "a type of at least 16 bits"));
        }
        let destinations = f.destinations(count, ty, false)?;
        // Not in the ISA. ptxas takes a constant in place of a vector and gives each element a part of its bytes: of zero all agree.
        let sources = if f.next_is_zero() {
            f.operand("a constant")?;
            vec![Operand::Immediate(0); count].into()
        } else {
            f.sources(count, ty, false)?
        };
        return Ok(Instruction::MoveVector { ty, destinations, sources });
    }
    let operands = &f.instruction.operands;
    if let Some(OperandKind::Vector(parts)) = operands.first().map(|operand| &operand.kind) {
        let part = part_of(f, ty, parts.len())?;
        return Ok(Instruction::Unpack { ty, part, destinations: f.destinations(parts.len(), part, false)?, source: f.source(ty)? });
    }
    let destination = f.destination(ty)?;
    match operands.get(1).map(|operand| &operand.kind) {
        Some(OperandKind::Vector(parts)) => {
            let part = part_of(f, ty, parts.len())?;
            Ok(Instruction::Pack { ty, part, destination, parts: f.sources(parts.len(), part, false)? })
        }
        Some(&OperandKind::NamePlus(name, offset)) => {
            let operand = f.operand("a variable")?;
            let symbol = f.symbol(name, operand.at)?;
            address_of(f, ty, destination, symbol, offset)
        }
        Some(&OperandKind::Name(name, component)) => {
            let at = operands[1].at;
            if let Some((special, width)) = special(name, component) {
                if width.bits() != ty.bits() {
                    return Err(f.combination(format!("`{name}` of type .{width}"), format!("a special register of {} bits", ty.bits())));
                }
                f.operand("a special register")?;
                return Ok(Instruction::ReadSpecial { destination, special });
            }
            if component.is_none() && UNMODELLED.contains(&name) {
                return Err(f.not_modelled(format!("the special register `{name}`")));
            }
            if let (None, Some(&function)) = (component, f.callable.get(name)) {
                f.operand("a function")?;
                if ty.bits() != 64 {
                    return Err(f.combination(format!("an address in .{ty}"), "a type of 64 bits"));
                }
                let address = Address { base: Base::Function(function as u32), offset: 0 };
                return Ok(Instruction::AddressOf { space: Space::Generic, destination, address });
            }
            if component.is_none() && f.names.register((name, None), at)?.is_none() && name != "WARP_SZ" {
                let symbol = f.symbol(name, at)?;
                f.operand("a variable")?;
                return address_of(f, ty, destination, symbol, 0);
            }
            Ok(Instruction::Move { ty, destination, source: f.source(ty)? })
        }
        _ => Ok(Instruction::Move { ty, destination, source: f.source(ty)? }),
    }
}

fn address_of(f: &Form<'_, '_>, ty: Type, destination: crate::Register, symbol: Symbol, offset: i64) -> Result<Instruction, PtxError> {
    let small = matches!(symbol.space, Space::Shared | Space::Local | Space::Param);
    if ty.bits() != 64 && !(small && ty.bits() == 32) {
        return Err(f.combination(format!("an address in .{ty}"), "a type of 64 bits"));
    }
    if symbol.space == Space::Param && !f.in_entry {
        return Err(f.combination("the address of a function's parameter", "that of a kernel's"));
    }
    let address = Address { base: symbol.base, offset: offset.wrapping_add(symbol.offset as i64) };
    Ok(Instruction::AddressOf { space: symbol.space, destination, address })
}

/// The type of one of `count` parts of a register.
fn part_of(f: &Form<'_, '_>, ty: Type, count: usize) -> Result<Type, PtxError> {
    match (ty.bits(), count) {
        (16, 2) | (32, 4) => Ok(B8),
        (32, 2) | (64, 4) => Ok(B16),
        (64, 2) | (128, 4) => Ok(B32),
        (128, 2) => Ok(B64),
        _ => Err(f.combination(format!("{count} parts of .{ty}"), "2 or 4 parts of at least 8 bits")),
    }
}

/// The bits that one access may have: 256 of 32- and 64-bit elements in global memory, where the target and the ISA's version have them
/// (PTX ISA 9.7.9.8, 9.7.9.11).
fn widest(f: &Form<'_, '_>, ty: Type, access: &Access) -> u32 {
    let plain = matches!(access.semantics, Semantics::Weak | Semantics::NonCoherent);
    let wide = plain && access.space == Space::Global && matches!(ty.bits(), 32 | 64);
    if wide && f.has_wide_accesses() { 256 } else { 128 }
}

/// Elements of `.v2`, `.v4`, `.v8`, or 1. All of them together have at most `bits` bits.
pub(super) fn vector(f: &mut Form<'_, '_>, ty: Type, bits: u32) -> Result<usize, PtxError> {
    let count = f.one_of(&[("v2", 2), ("v4", 4), ("v8", 8)]).unwrap_or(1);
    if count as u32 * ty.bits() > bits {
        return Err(f.combination(format!("{count} elements of .{ty}"), format!("at most {bits} bits")));
    }
    Ok(count)
}

pub(super) fn ld(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    use Semantics::*;
    let access = f.access(&[Weak, Volatile, Relaxed, Acquire, NonCoherent, Mmio], None)?;
    if access.semantics == NonCoherent && access.space != Space::Global {
        return Err(f.combination(format!(".nc in .{}", access.space), ".global"));
    }
    plausible(f, &access)?;
    let ty = f.ty(MEMORY)?;
    let widest = widest(f, ty, &access);
    let count = vector(f, ty, widest)?;
    let destinations = f.destinations(count, ty, true)?;
    let address = f.address(access.space)?;
    f.cache_policy(&access)?;
    Ok(Instruction::Load { ty, access, destinations, address })
}

pub(super) fn st(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    use Semantics::*;
    if f.take("bulk") {
        return super::asynchronous::st_bulk(f);
    }
    if f.take("async") {
        return super::asynchronous::st_async(f, false);
    }
    let access = f.access(&[Weak, Volatile, Relaxed, Release, Mmio], None)?;
    if access.space == Space::Const {
        return Err(f.combination("a store to .const", "a space that may be written"));
    }
    plausible(f, &access)?;
    let ty = f.ty(MEMORY)?;
    let widest = widest(f, ty, &access);
    let count = vector(f, ty, widest)?;
    let address = f.address(access.space)?;
    let values = f.sources(count, ty, true)?;
    f.cache_policy(&access)?;
    Ok(Instruction::Store { ty, access, address, values })
}

/// Strong accesses are of memory that threads share.
fn plausible(f: &Form<'_, '_>, access: &Access) -> Result<(), PtxError> {
    let shared = matches!(access.space, Space::Global | Space::Shared | Space::SharedCluster | Space::Generic);
    if shared || matches!(access.semantics, Semantics::Weak | Semantics::Volatile) {
        return Ok(());
    }
    Err(f.combination(format!(".{} in .{}", access.semantics, access.space), "memory that threads share"))
}

pub(super) fn cvta(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let ty = f.ty(&[U32, U64])?;
    let to_space = f.take("to");
    let space = f.space();
    if space == Space::Generic {
        return Err(f.combination("no space", "one of .global, .shared, .local, .const, .param"));
    }
    let destination = f.destination(ty)?;
    if let Some(&OperandKind::Name(name, None)) = f.instruction.operands.get(1).map(|operand| &operand.kind)
        && f.names.register((name, None), f.instruction.operands[1].at)?.is_none()
    {
        return Err(f.combination(format!("the variable `{}`", shortened(name)), "a register: mov takes its address"));
    }
    Ok(Instruction::ConvertAddress { space, to_space, ty, destination, source: f.source(ty)? })
}

pub(super) fn isspacep(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let space = f.space();
    if space == Space::Generic {
        return Err(f.combination("no space", "one of .global, .shared, .local, .const, .param"));
    }
    Ok(Instruction::IsSpace { space, destination: f.destination(Pred)?, source: f.source(U64)? })
}

/// The space of `mapa` and `getctarank`: that of a cluster, or generic.
fn cluster_space(f: &mut Form<'_, '_>) -> Result<Space, PtxError> {
    match f.space() {
        space @ (Space::SharedCluster | Space::Generic) => Ok(space),
        space => Err(f.combination(format!("space .{space}"), ".shared::cluster, or generic")),
    }
}

pub(super) fn mapa(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let space = cluster_space(f)?;
    let ty = f.ty(&[U32, U64])?;
    if space == Space::Generic && ty == U32 {
        return Err(f.combination("a generic address of 32 bits", "type .u64"));
    }
    let destination = f.destination(ty)?;
    let address = f.place(ty, space == Space::SharedCluster)?;
    Ok(Instruction::MapToBlock { space, destination, address, rank: f.source(U32)? })
}

pub(super) fn getctarank(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let space = cluster_space(f)?;
    let ty = f.ty(&[U32, U64])?;
    if space == Space::Generic && ty == U32 {
        return Err(f.combination("a generic address of 32 bits", "type .u64"));
    }
    let destination = f.destination(U32)?;
    Ok(Instruction::BlockOfAddress { space, destination, address: f.place(ty, space == Space::SharedCluster)? })
}

const CONVERTED: &[Type] = &[U8, U16, U32, U64, S8, S16, S32, S64, F16, Bf16, F32, F64, F16x2, Bf16x2, E4m3x2, E5m2x2, E2m1x2];

pub(super) fn cvt(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let (to, from) = (f.ty(CONVERTED)?, f.ty(CONVERTED)?);
    let rounding = f.one_of(Rounding::ALL);
    let integer_rounding = f.one_of(IntegerRounding::ALL);
    let ftz = f.take("ftz");
    if ftz && to != F32 && from != F32 {
        return Err(f.combination(".ftz without .f32", "a conversion of .f32"));
    }
    let (saturate, saturate_finite, relu) = (f.take("sat"), f.take("satfinite"), f.take("relu"));
    let packed = |ty| matches!(ty, F16x2 | Bf16x2 | E4m3x2 | E5m2x2 | E2m1x2);
    if packed(to) || packed(from) {
        if saturate || integer_rounding.is_some() || ftz {
            return Err(f.combination(".sat, .ftz or an integer rounding", "none of them with packed types"));
        }
        return packed_cvt(f, to, from, rounding, saturate_finite, relu);
    }
    let (to_float, from_float) = (to.is_float(), from.is_float());
    let narrows = to_float && from_float && (to.bits() < from.bits() || (to != from && to.bits() == from.bits()));
    let fine = match (to_float, from_float) {
        // To an integer: rounded to one. A bf16 rounds like the others.
        (false, true) => integer_rounding.is_some() && rounding.is_none(),
        (true, false) => rounding.is_some() && integer_rounding.is_none(),
        (false, false) => rounding.is_none() && integer_rounding.is_none(),
        (true, true) if narrows => rounding.is_some() && integer_rounding.is_none(),
        (true, true) => rounding.is_none() && (integer_rounding.is_none() || to == from),
    };
    let halves = matches!(to, F16 | Bf16) && from == F32;
    let away = rounding == Some(Rounding::NearestAway);
    if !fine || away || ((saturate_finite || relu) && !halves) {
        let stated = rounding.map_or(String::new(), |rounding| format!(" .{rounding}"));
        let stated = integer_rounding.map_or(stated, |rounding| format!(" .{rounding}"));
        let stated = if stated.is_empty() { " no rounding".to_owned() } else { stated };
        return Err(f.combination(format!("{} from .{from} to .{to}", stated.trim()), "a rounding that the ISA has for it"));
    }
    let destination = f.wide_destination(to)?;
    let source = f.wide_source(from)?;
    Ok(Instruction::Convert { to, from, rounding, integer_rounding, ftz, saturate, saturate_finite, relu, destination, source })
}

/// Of two f32 into one register, or of packed halves to and from FP8 or FP4.
fn packed_cvt(
    f: &mut Form<'_, '_>,
    to: Type,
    from: Type,
    rounding: Option<Rounding>,
    saturate_finite: bool,
    relu: bool,
) -> Result<Instruction, PtxError> {
    let rounds = match (to, from) {
        (F16x2 | Bf16x2, F32) => matches!(rounding, Some(Rounding::Nearest | Rounding::Zero)),
        (E4m3x2 | E5m2x2, F32 | F16x2) | (E2m1x2, F32) => rounding == Some(Rounding::Nearest) && saturate_finite,
        (F16x2, E4m3x2 | E5m2x2 | E2m1x2) => rounding == Some(Rounding::Nearest) && !saturate_finite,
        _ => false,
    };
    let Some(rounding) = rounding.filter(|_| rounds) else {
        return Err(f.combination(format!("a conversion from .{from} to .{to} so rounded"), "one that the ISA has"));
    };
    if to == E2m1x2 || from == E2m1x2 {
        f.needs_sm_100(".e2m1x2")?;
    }
    let destination = f.destination(to)?;
    if from == F32 {
        return Ok(Instruction::ConvertPair {
            to,
            rounding,
            saturate_finite,
            relu,
            destination,
            high: f.source(F32)?,
            low: f.source(F32)?,
        });
    }
    let (integer_rounding, ftz, saturate, source) = (None, false, false, f.source(from)?);
    let rounding = Some(rounding);
    Ok(Instruction::Convert { to, from, rounding, integer_rounding, ftz, saturate, saturate_finite, relu, destination, source })
}

/// The scope that atomics have where none is stated.
pub(super) const ATOMIC_SCOPE: Option<Scope> = Some(Scope::Gpu);
