//! Control flow, and what threads do with one another: barriers, fences, atomics, multimem, warps.

use crate::{
    Access, Address, Argument, AtomicOp, BarrierReduction, Base, ClusterBarrier, Fence, Instruction, MatchMode, Operand, ProxyKind,
    ShuffleMode, VoteMode,
    error::{PtxError, shortened},
    form::Form,
    module::{Parameter, ParameterPlace},
    syntax::{self, OperandKind},
    types::{
        Scope, Semantics, Space,
        Type::{self, *},
    },
};

use super::data::{ATOMIC_SCOPE, vector};

pub(super) fn bra(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let uniform = f.take("uni");
    let operand = f.operand("a label")?;
    match operand.kind {
        OperandKind::Name(name, None) => Ok(Instruction::Branch { target: f.names.label(name, operand.at)?, uniform }),
        _ => Err(f.combination("no label", "a label")),
    }
}

pub(super) fn brx(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    f.required(&[("idx", ())])?;
    let uniform = f.take("uni");
    let index = f.source(U32)?;
    let operand = f.operand("a list of branch targets")?;
    match operand.kind {
        OperandKind::Name(name, None) => {
            let targets = f.names.table(name, operand.at, f.table_labels)?;
            Ok(Instruction::BranchIndexed { targets, uniform, index })
        }
        _ => Err(f.combination("no name", "the name of a list of branch targets")),
    }
}

pub(super) fn call<'t>(f: &mut Form<'_, 't>) -> Result<Instruction, PtxError> {
    let uniform = f.take("uni");
    let lists = f.instruction.operands.iter().filter(|operand| matches!(operand.kind, OperandKind::List(_))).count();
    let starts = matches!(f.instruction.operands.first().map(|operand| &operand.kind), Some(OperandKind::List(_)));
    let results = if starts { items(f)? } else { &[] };
    let operand = f.operand("a function")?;
    let OperandKind::Name(name, None) = operand.kind else { return Err(f.combination("no function", "a function's name")) };
    if f.names.register((name, None), operand.at)?.is_some() {
        let target = f.one_source(operand, B64, false)?;
        let arguments = if lists > usize::from(starts) { items(f)? } else { &[] };
        return call_indirect(f, target, uniform, results, arguments);
    }
    let function = f.callable.get(name).copied().ok_or_else(|| PtxError::undeclared(operand.at, name, "function"))?;
    let arguments = if lists > usize::from(starts) { items(f)? } else { &[] };
    let callee = &f.functions[function];
    let results = pass(f, results, &callee.returns, true)?;
    let arguments = pass(f, arguments, &callee.inputs, false)?;
    Ok(Instruction::Call { function: function as u32, uniform, results, arguments })
}

/// A call of the function whose address is in a register.
fn call_indirect<'t>(
    f: &mut Form<'_, 't>,
    target: Operand,
    uniform: bool,
    results: &[syntax::Operand<'t>],
    arguments: &[syntax::Operand<'t>],
) -> Result<Instruction, PtxError> {
    let operand = f.operand("a prototype")?;
    let OperandKind::Name(name, None) = operand.kind else { return Err(f.combination("no prototype", "the name of a prototype")) };
    let prototype = f.names.prototype(name, operand.at)?;
    let results = pass(f, results, &prototype.returns, true)?;
    let arguments = pass(f, arguments, &prototype.inputs, false)?;
    Ok(Instruction::CallIndirect { target, signature: Box::new(prototype.signature.clone()), uniform, results, arguments })
}

fn items<'f, 't>(f: &mut Form<'f, 't>) -> Result<&'f [syntax::Operand<'t>], PtxError> {
    match &f.operand("a list in parentheses")?.kind {
        OperandKind::List(items) => Ok(items),
        _ => Err(f.combination("no parentheses", "a list in parentheses")),
    }
}

fn pass<'t>(
    f: &mut Form<'_, 't>,
    passed: &[syntax::Operand<'t>],
    formal: &[Parameter],
    results: bool,
) -> Result<Box<[Argument]>, PtxError> {
    if passed.len() != formal.len() {
        let kind = if results { "results" } else { "arguments" };
        return Err(f.combination(format!("{} {kind}", passed.len()), formal.len()));
    }
    let mut arguments = Vec::new();
    for (operand, formal) in passed.iter().zip(formal) {
        let symbol = match operand.kind {
            OperandKind::Name(name, None) => f.names.symbol(name).filter(|symbol| symbol.space == Space::Param),
            _ => None,
        };
        arguments.push(match (symbol, formal.place) {
            (Some(symbol), ParameterPlace::Offset(callee)) => {
                if symbol.bytes != u64::from(formal.bytes) {
                    return Err(f.combination(
                        format!("{} bytes for `{}`", symbol.bytes, shortened(&formal.name)),
                        format!("{} bytes", formal.bytes),
                    ));
                }
                Argument::Bytes { caller: symbol.offset as u32, callee, bytes: formal.bytes }
            }
            (Some(_), ParameterPlace::Register(_)) => return Err(f.combination("a variable for a register parameter", "a register")),
            (None, place) => {
                let caller = f.one_source(operand, formal.ty, false)?;
                if results && matches!(caller, Operand::Immediate(_)) {
                    return Err(f.combination("a constant as result", "a register"));
                }
                match place {
                    ParameterPlace::Offset(callee) => Argument::Value { caller, callee, ty: formal.ty },
                    ParameterPlace::Register(callee) => Argument::Register { caller, callee, ty: formal.ty },
                }
            }
        });
    }
    Ok(arguments.into())
}

/// bar, and barrier, which is not aligned unless it says so.
pub(super) fn barrier(f: &mut Form<'_, '_>, bar: bool) -> Result<Instruction, PtxError> {
    if bar && f.take("warp") {
        f.required(&[("sync", ())])?;
        return Ok(Instruction::WarpSync { mask: f.source(U32)? });
    }
    let cluster = !bar && f.take("cluster");
    let _ = !cluster && f.take("cta");
    let aligned = bar || f.take("aligned");
    if cluster {
        return cluster_barrier(f, aligned);
    }
    match f.required(&[("sync", 0), ("arrive", 1), ("red", 2)])? {
        0 => {
            let barrier = f.source(U32)?;
            let threads = if f.remaining() > 0 { Some(f.source(U32)?) } else { None };
            Ok(Instruction::BarrierSync { aligned, barrier, threads })
        }
        1 => Ok(Instruction::BarrierArrive { aligned, barrier: f.source(U32)?, threads: f.source(U32)? }),
        _ => {
            let op = f.required(BarrierReduction::ALL)?;
            let ty = f.ty(if op == BarrierReduction::PopulationCount { &[U32] } else { &[Pred] })?;
            let (destination, barrier) = (f.destination(ty)?, f.source(U32)?);
            let threads = if f.remaining() > 1 { Some(f.source(U32)?) } else { None };
            Ok(Instruction::BarrierReduce { op, aligned, destination, barrier, threads, condition: f.condition()? })
        }
    }
}

fn cluster_barrier(f: &mut Form<'_, '_>, aligned: bool) -> Result<Instruction, PtxError> {
    let arrive = f.required(&[("arrive", true), ("wait", false)])?;
    let kind = if arrive {
        let semantics = f.one_of(&[("release", Semantics::Release), ("relaxed", Semantics::Relaxed)]);
        ClusterBarrier::Arrive(semantics.unwrap_or(Semantics::Release))
    } else {
        f.take("acquire");
        ClusterBarrier::Wait
    };
    Ok(Instruction::BarrierCluster { kind, aligned })
}

pub(super) fn fence(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let fence = if f.take("mbarrier_init") {
        f.required(&[("release", ())])?;
        f.required(&[("cluster", ())])?;
        Fence::MbarrierInit
    } else if f.take("proxy") {
        if f.take("tensormap::generic") {
            let acquire = f.required(&[("acquire", true), ("release", false)])?;
            let scope = f.required(Scope::ALL)?;
            if acquire {
                let address = f.address(Space::Generic)?;
                super::tensor::map_bytes(f)?;
                Fence::TensormapAcquire(scope, address)
            } else {
                Fence::TensormapRelease(scope)
            }
        } else {
            if f.take("async::generic") {
                return proxy_fence_of_cluster(f);
            }
            let kind = f.required(&[("alias", ProxyKind::Alias), ("async", ProxyKind::Async)])?;
            let spaces = [
                ("global", ProxyKind::AsyncGlobal),
                ("shared::cta", ProxyKind::AsyncSharedCta),
                ("shared::cluster", ProxyKind::AsyncSharedCluster),
            ];
            Fence::Proxy(if kind == ProxyKind::Async { f.one_of(&spaces).unwrap_or(kind) } else { kind })
        }
    } else {
        let stated = f.one_of(&[
            ("acq_rel", Semantics::AcquireRelease),
            ("sc", Semantics::SequentiallyConsistent),
            ("acquire", Semantics::Acquire),
            ("release", Semantics::Release),
        ]);
        Fence::Memory(stated.unwrap_or(Semantics::AcquireRelease), f.required(Scope::ALL)?)
    };
    Ok(Instruction::Fence { fence })
}

/// fence.proxy.async::generic, of shared memory and one way: what is released is what a block's own shared memory has, what is acquired is of the
/// cluster's.
fn proxy_fence_of_cluster(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let acquires = f.required(&[("acquire", true), ("release", false)])?;
    let (place, kind) = match acquires {
        true => ("sync_restrict::shared::cluster", ProxyKind::AsyncSharedCluster),
        false => ("sync_restrict::shared::cta", ProxyKind::AsyncSharedCta),
    };
    f.required(&[(place, ())])?;
    f.required(&[("cluster", ())])?;
    Ok(Instruction::Fence { fence: Fence::Proxy(kind) })
}

pub(super) fn membar(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    if f.take("proxy") {
        f.required(&[("alias", ())])?;
        return Ok(Instruction::Fence { fence: Fence::Proxy(ProxyKind::Alias) });
    }
    let scope = f.required(&[("cta", Scope::Cta), ("gl", Scope::Gpu), ("sys", Scope::Sys)])?;
    Ok(Instruction::Fence { fence: Fence::Memory(Semantics::SequentiallyConsistent, scope) })
}

/// The types of an atomic operation, and whether it has vectors.
fn atomic_types(op: AtomicOp) -> &'static [Type] {
    match op {
        AtomicOp::Add => &[U32, S32, U64, S64, F32, F64, F16, F16x2, Bf16, Bf16x2],
        AtomicOp::Minimum | AtomicOp::Maximum => &[U32, S32, U64, S64, F16, F16x2, Bf16, Bf16x2],
        AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => &[B32, B64],
        AtomicOp::Increment | AtomicOp::Decrement => &[U32],
        AtomicOp::Exchange => &[B32, B64, B128],
        AtomicOp::CompareAndSwap => &[B16, B32, B64, B128],
    }
}

/// atom, and red, which returns nothing.
pub(super) fn atomic(f: &mut Form<'_, '_>, returns: bool) -> Result<Instruction, PtxError> {
    use Semantics::*;
    if !returns && f.take("async") {
        return super::asynchronous::st_async(f, true);
    }
    let semantics: &[Semantics] = if returns { &[Relaxed, Acquire, Release, AcquireRelease] } else { &[Relaxed, Release] };
    let access = f.access(semantics, ATOMIC_SCOPE)?;
    if !matches!(access.space, Space::Global | Space::Shared | Space::SharedCluster | Space::Generic) {
        return Err(f.combination(format!("space .{}", access.space), "one of .global, .shared"));
    }
    let op = f.required(AtomicOp::ALL)?;
    if !returns && matches!(op, AtomicOp::Exchange | AtomicOp::CompareAndSwap) {
        return Err(f.combination(format!(".{op}"), "an operation whose result may be dropped"));
    }
    let ty = f.ty(atomic_types(op))?;
    let halves = matches!(ty, F16 | F16x2 | Bf16 | Bf16x2);
    // Atomics of halves must say that they keep subnormals; vectors of f32 and of halves are of global memory only.
    let noftz = halves && f.take("noftz");
    let count = if ty.is_float() && access.space == Space::Global { vector(f, ty, 128)? } else { 1 };
    if halves && !noftz {
        return Err(f.combination(format!("no .noftz with .{ty}"), ".noftz"));
    }
    if count > 1 && op != AtomicOp::Add && !halves {
        return Err(f.combination(format!("a vector with .{op}.{ty}"), "a vector of .add, or of halves"));
    }
    let destinations = if returns { Some(f.destinations(count, ty, false)?) } else { None };
    let address = f.address(access.space)?;
    let mut values = f.sources(count, ty, false)?.into_vec();
    if op == AtomicOp::CompareAndSwap {
        values.push(f.source(ty)?);
    }
    f.cache_policy(&access)?;
    Ok(Instruction::Atomic { op, ty, access, destinations, address, values: values.into() })
}

/// Targets whose multimem operations take 8-bit types (PTX ISA 9.7.9.14).
const MULTIMEM_OF_FP8: &[&str] =
    &["sm_100a", "sm_100f", "sm_101a", "sm_101f", "sm_103a", "sm_103f", "sm_110a", "sm_110f", "sm_120a", "sm_121a"];

pub(super) fn multimem(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    use Semantics::*;
    let kind = f.required(&[("ld_reduce", 0), ("st", 1), ("red", 2)])?;
    let allowed: &[Semantics] = match kind {
        0 => &[Weak, Relaxed, Acquire],
        1 => &[Weak, Relaxed, Release],
        _ => &[Relaxed, Release],
    };
    let access = f.access(allowed, (kind == 2).then_some(Scope::Sys))?;
    if !matches!(access.space, Space::Global | Space::Generic) {
        return Err(f.combination(format!("space .{}", access.space), ".global"));
    }
    if kind == 1 {
        let ty = f.ty(&[B32, B64, U32, U64, S32, S64, F16, F16x2, Bf16, Bf16x2, F32, F64, E4m3, E4m3x2, E4m3x4, E5m2, E5m2x2, E5m2x4])?;
        multimem_target(f, ty)?;
        let count = multimem_vector(f, ty)?;
        return Ok(Instruction::MultimemStore { ty, address: multimem_address(f, &access)?, access, values: f.sources(count, ty, true)? });
    }
    let op = f.required(&AtomicOp::ALL[..6])?;
    let types: &[Type] = match op {
        // Of floating-point types red has sums only, and none of 8 bits.
        AtomicOp::Add if kind == 2 => &[U32, S32, U64, S64, F16, F16x2, Bf16, Bf16x2, F32, F64],
        AtomicOp::Minimum | AtomicOp::Maximum if kind == 2 => &[U32, S32, U64, S64],
        AtomicOp::Add => &[U32, S32, U64, S64, F16, F16x2, Bf16, Bf16x2, F32, F64, E4m3, E4m3x2, E4m3x4, E5m2, E5m2x2, E5m2x4],
        AtomicOp::Minimum | AtomicOp::Maximum => {
            &[U32, S32, U64, S64, F16, F16x2, Bf16, Bf16x2, E4m3, E4m3x2, E4m3x4, E5m2, E5m2x2, E5m2x4]
        }
        AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => &[B32, B64],
        AtomicOp::Increment | AtomicOp::Decrement | AtomicOp::Exchange | AtomicOp::CompareAndSwap => &[],
    };
    let ty = f.ty(types)?;
    multimem_target(f, ty)?;
    let count = multimem_vector(f, ty)?;
    if kind == 2 {
        let address = multimem_address(f, &access)?;
        return Ok(Instruction::MultimemReduce { op, ty, access, address, values: f.sources(count, ty, true)? });
    }
    let accumulator = if ty.is_fp8() { "acc::f16" } else { "acc::f32" };
    let widened = op == AtomicOp::Add && (ty.is_fp8() || matches!(ty, F16 | F16x2 | Bf16 | Bf16x2));
    let wide = widened && f.take(accumulator);
    let destinations = f.destinations(count, ty, true)?;
    Ok(Instruction::MultimemLoadReduce { op, ty, wide, address: multimem_address(f, &access)?, access, destinations })
}

fn multimem_target(f: &Form<'_, '_>, ty: Type) -> Result<(), PtxError> {
    if ty.is_fp8() { f.needs_target(format!("type .{ty}"), MULTIMEM_OF_FP8) } else { Ok(()) }
}

fn multimem_address(f: &mut Form<'_, '_>, access: &Access) -> Result<Address, PtxError> {
    let address = f.address(access.space)?;
    if matches!(address.base, Base::Register(_)) { Ok(address) } else { Err(f.combination("a constant address", "a register")) }
}

/// Elements of a multimem operation: 32, 64 or 128 bits together, and vectors of floating-point types only.
fn multimem_vector(f: &mut Form<'_, '_>, ty: Type) -> Result<usize, PtxError> {
    let count = vector(f, ty, 128)?;
    let bits = count as u32 * ty.bits();
    if bits < 32 || (count > 1 && (!ty.is_float() || ty == F64)) {
        return Err(f.combination(format!("{count} elements of .{ty}"), "32, 64 or 128 bits, of which vectors are of .f32 or narrower"));
    }
    Ok(count)
}

/// Takes `.sync`, which operations of a warp must have.
fn sync(f: &mut Form<'_, '_>) -> Result<(), PtxError> {
    f.required(&[("sync", ())])
}

pub(super) fn shfl(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    sync(f)?;
    f.ty(&[B32])?;
    let mode = f.required(ShuffleMode::ALL)?;
    let (destination, predicate) = f.destination_pair(B32)?;
    let (a, lane, clamp, mask) = (f.source(B32)?, f.source(B32)?, f.source(B32)?, f.source(B32)?);
    Ok(Instruction::Shuffle { mode, destination, predicate, a, lane, clamp, mask })
}

pub(super) fn vote(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    sync(f)?;
    let mode = f.required(VoteMode::ALL)?;
    let ty = f.ty(if mode == VoteMode::Ballot { &[B32] } else { &[Pred] })?;
    Ok(Instruction::Vote { mode, destination: f.destination(ty)?, condition: f.condition()?, mask: f.source(B32)? })
}

pub(super) fn activemask(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    f.ty(&[B32])?;
    Ok(Instruction::ActiveMask { destination: f.destination(B32)? })
}

pub(super) fn matching(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    sync(f)?;
    let mode = f.required(MatchMode::ALL)?;
    let ty = f.ty(&[B32, B64])?;
    let (destination, predicate) = f.destination_pair(B32)?;
    if mode == MatchMode::Any && predicate.is_some() {
        return Err(f.combination("a predicate", "none with .any"));
    }
    Ok(Instruction::Match { mode, ty, destination, predicate, a: f.source(ty)?, mask: f.source(B32)? })
}

pub(super) fn elect(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    sync(f)?;
    let (destination, predicate) = f.destination_pair(B32)?;
    Ok(Instruction::Elect { destination, predicate, mask: f.source(B32)? })
}

pub(super) fn redux(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    sync(f)?;
    let op = f.required(&AtomicOp::ALL[..6])?;
    let logic = matches!(op, AtomicOp::And | AtomicOp::Or | AtomicOp::Xor);
    let ty = f.ty(if logic { &[B32] } else { &[U32, S32] })?;
    Ok(Instruction::WarpReduce { op, ty, destination: f.destination(ty)?, a: f.source(ty)?, mask: f.source(B32)? })
}

pub(super) fn nanosleep(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    f.ty(&[U32])?;
    Ok(Instruction::Sleep { nanoseconds: f.source(U32)? })
}

pub(super) fn griddepcontrol(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    Ok(Instruction::GridDependency { wait: f.required(&[("wait", true), ("launch_dependents", false)])? })
}

/// prefetch, prefetchu, applypriority.
pub(super) fn prefetch(f: &mut Form<'_, '_>, opcode: &str) -> Result<Instruction, PtxError> {
    let space = if opcode == "prefetchu" { Space::Generic } else { f.space() };
    match opcode {
        "prefetchu" => f.required(&[("L1", ())])?,
        "applypriority" => f.required(&[("L2::evict_normal", ())])?,
        _ => f.required(&[("L1", ()), ("L2", ()), ("L2::evict_last", ()), ("L2::evict_normal", ()), ("tensormap", ())])?,
    }
    let address = f.address(space)?;
    if opcode == "applypriority" {
        f.constant(129)?;
    }
    Ok(Instruction::Prefetch { space, address })
}

pub(super) fn discard(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    f.required(&[("L2", ())])?;
    let space = f.space();
    let address = f.address(space)?;
    f.constant(129)?;
    Ok(Instruction::Discard { space, address })
}
