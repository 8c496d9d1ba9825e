//! Products of matrices, and loads and stores of their fragments.

use crate::{
    Instruction, MatrixProduct, MatrixSource, Operand, Register,
    error::PtxError,
    form::Form,
    syntax::{Number, OperandKind},
    types::{
        Rounding, Space,
        Type::{self, *},
    },
};

/// `.sync` and `.aligned`, which these instructions must have.
fn together(f: &mut Form<'_, '_>) -> Result<(), PtxError> {
    f.required(&[("sync", ())])?;
    f.required(&[("aligned", ())])
}

/// Takes the shape, as `m16n8k16`.
fn shape(f: &mut Form<'_, '_>) -> Result<[u32; 3], PtxError> {
    let read = |modifier: &str| {
        let (m, rest) = modifier.strip_prefix('m')?.split_once('n')?;
        let (n, k) = rest.split_once('k')?;
        let number = |digits: &str| digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()));
        Some([number(m)?, number(n)?, number(k)?])
    };
    f.one_that(read).ok_or_else(|| f.combination("no shape", "one, as .m16n8k16"))
}

const FP8: [Type; 2] = [E4m3, E5m2];
const BYTES: [Type; 2] = [S8, U8];

/// The shapes of `mma.sync` of these types (PTX ISA 9.7.14.5), sums first; those of sm_70 and of sm_75 alone are not known.
fn shapes(sum: Type, a: Type, b: Type) -> &'static [[u32; 3]] {
    match (sum, a, b) {
        (F16 | F32, F16, F16) | (F32, Bf16, Bf16) => &[[16, 8, 8], [16, 8, 16]],
        (F32, Tf32, Tf32) => &[[16, 8, 4], [16, 8, 8]],
        (F64, F64, F64) => &[[8, 8, 4], [16, 8, 4], [16, 8, 8], [16, 8, 16]],
        (F16 | F32, E4m3 | E5m2, E4m3 | E5m2) => &[[16, 8, 16], [16, 8, 32]],
        (S32, S8 | U8, S8 | U8) => &[[8, 8, 16], [16, 8, 16], [16, 8, 32]],
        _ => &[],
    }
}

/// mma.sync of dense matrices.
pub(super) fn mma(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    together(f)?;
    let [m, n, k] = shape(f)?;
    f.required(&[("row", ())])?;
    f.required(&[("col", ())])?;
    let saturate = f.take("satfinite");
    let sum = f.ty(&[F16, F32, F64, S32])?;
    let factors: &[Type] = if sum == S32 { &BYTES } else { &[F16, Bf16, Tf32, F64, E4m3, E5m2] };
    let (a, b, c) = (f.ty(factors)?, f.ty(factors)?, f.ty(&[sum])?);
    debug_assert!(c == sum);
    let rounding = if sum == F64 { f.one_of(&Rounding::ALL[..4]).unwrap_or(Rounding::Nearest) } else { Rounding::Nearest };
    if !shapes(sum, a, b).contains(&[m, n, k]) || saturate && sum != S32 {
        let known = shapes(sum, a, b).iter().map(|[m, n, k]| format!(".m{m}n{n}k{k}")).collect::<Vec<_>>().join(", ");
        let expected = if known.is_empty() { "types of which there is a product".into() } else { format!("one of {known}") };
        return Err(f.combination(format!("a product .m{m}n{n}k{k} of .{a} and .{b} to .{sum}"), expected));
    }
    let product = MatrixProduct { m, n, k, sum, a, b, saturate, rounding };
    let (of_sums, of_factors) = (register_of(sum), register_of(a));
    let count = |elements: u32, ty: Type, register: Type| (elements * ty.bits() / 32 / register.bits()) as usize;
    let sums = count(m * n, sum, of_sums);
    Ok(Instruction::MatrixMultiply {
        product,
        d: registers(f, sums, of_sums)?,
        a: f.sources(count(m * k, a, of_factors), of_factors, false)?,
        b: f.sources(count(k * n, b, of_factors), of_factors, false)?,
        c: f.sources(sums, of_sums, false)?,
    })
}

/// What holds elements of a type: a register of as many as there is room for.
fn register_of(ty: Type) -> Type {
    match ty {
        F64 | F32 | S32 => ty,
        _ => B32,
    }
}

/// A vector of registers, none of which may be `_`.
fn registers(f: &mut Form<'_, '_>, count: usize, ty: Type) -> Result<Box<[Register]>, PtxError> {
    let registers: Option<Box<[Register]>> = f.destinations(count, ty, false)?.iter().copied().collect();
    registers.ok_or_else(|| f.combination("`_` among registers of a matrix", "registers"))
}

/// wgmma.mma_async of dense matrices, and what goes with it.
pub(super) fn wgmma(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    f.needs_target("wgmma", &["sm_90a"])?;
    let kind = f.required(&[("mma_async", 0), ("fence", 1), ("commit_group", 2), ("wait_group", 3)])?;
    together(f)?;
    match kind {
        0 => mma_async(f),
        1 => Ok(Instruction::WarpgroupFence {}),
        2 => Ok(Instruction::WarpgroupCommit {}),
        _ => Ok(Instruction::WarpgroupWait { groups: f.constant(1 << 32)? as u32 }),
    }
}

fn mma_async(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let [m, n, k] = shape(f)?;
    let saturate = f.take("satfinite");
    let sum = f.ty(&[F32, F16, S32])?;
    let a = match sum {
        F32 => f.ty(&[Bf16, F16, Tf32, E4m3, E5m2])?,
        F16 => f.ty(&[F16, E4m3, E5m2])?,
        _ => f.ty(&BYTES)?,
    };
    let b = match a {
        E4m3 | E5m2 => f.ty(&FP8)?,
        S8 | U8 => f.ty(&BYTES)?,
        _ => f.ty(&[a])?,
    };
    // Of integers there are fewer widths.
    let columns = n % 8 == 0 && (8..=256).contains(&n) && (sum != S32 || n % 16 == 0 || n < 32);
    let depth = if a == Tf32 { 8 } else { 256 / a.bits() };
    if m != 64 || k != depth || !columns {
        let step = if sum == S32 { "24 or a multiple of 16, or 8" } else { "a multiple of 8" };
        return Err(f.combination(format!("a product .m{m}n{n}k{k} of .{a} and .{b}"), format!(".m64nNk{depth} with N {step}, up to 256")));
    }
    if saturate && sum != S32 {
        return Err(f.combination(format!(".satfinite with .{sum}"), "it with .s32 only"));
    }
    let product = MatrixProduct { m, n, k, sum, a, b, saturate, rounding: Rounding::Zero };
    let sums = registers(f, (n * sum.bits() / 64) as usize, register_of(sum))?;
    let a_in_registers = f.next_is_vector();
    let source = if a_in_registers { MatrixSource::Registers(registers(f, 4, B32)?) } else { MatrixSource::Shared(descriptor(f)?) };
    let (b, keeps) = (descriptor(f)?, f.source(Pred)?);
    let (mut negated, mut transposed) = ([false; 2], [false; 2]);
    if sum != S32 {
        negated = [sign(f)?, sign(f)?];
    }
    if matches!(a, F16 | Bf16) {
        let along_m = !a_in_registers && f.constant(2)? == 1;
        transposed = [along_m, f.constant(2)? == 1];
    }
    Ok(Instruction::WarpgroupMultiply { product, negated, transposed, sums, a: source, b, keeps })
}

/// A matrix in shared memory.
fn descriptor(f: &mut Form<'_, '_>) -> Result<Operand, PtxError> {
    f.source(B64)
}

/// 1, or where it is negated -1.
fn sign(f: &mut Form<'_, '_>) -> Result<bool, PtxError> {
    let operand = f.operand("1 or -1")?;
    match operand.kind {
        OperandKind::Number(Number::Integer { value: 1, negative }) => Ok(negative),
        _ => Err(f.operand_error(operand, "1 or -1")),
    }
}

/// Takes how many matrices of 8 x 8 elements there are, whether they are transposed, and the space.
fn fragments(f: &mut Form<'_, '_>) -> Result<(usize, bool, Space), PtxError> {
    together(f)?;
    f.required(&[("m8n8", ())])?;
    let count = f.required(&[("x1", 1), ("x2", 2), ("x4", 4)])?;
    let (transposed, space) = (f.take("trans"), f.space());
    if !matches!(space, Space::Shared | Space::Generic) {
        return Err(f.combination(format!("space .{space}"), "one of .shared, .generic"));
    }
    f.ty(&[B16])?;
    Ok((count, transposed, space))
}

pub(super) fn ldmatrix(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let (count, transposed, space) = fragments(f)?;
    Ok(Instruction::LoadMatrix { space, transposed, destinations: registers(f, count, B32)?, address: f.address(space)? })
}

pub(super) fn stmatrix(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let (count, transposed, space) = fragments(f)?;
    Ok(Instruction::StoreMatrix { space, transposed, address: f.address(space)?, values: f.sources(count, B32, false)? })
}

pub(super) fn movmatrix(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    together(f)?;
    f.required(&[("m8n8", ())])?;
    f.required(&[("trans", ())])?;
    f.ty(&[B16])?;
    Ok(Instruction::MoveMatrix { destination: f.destination(B32)?, source: f.source(B32)? })
}
