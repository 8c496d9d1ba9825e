//! What goes on beside the threads that start it: copies, bulk copies, stores that tell an mbarrier, and mbarriers themselves.

use crate::{
    Access, AtomicOp, BulkCompletion, Instruction, MbarrierAccess, MbarrierWait,
    error::PtxError,
    form::Form,
    types::{
        CacheHint, Scope, Semantics, Space,
        Type::{self, *},
    },
};

use super::data::vector;

/// What tells an mbarrier of its bytes says so.
pub(super) const COMPLETES: &[(&str, ())] = &[("mbarrier::complete_tx::bytes", ())];

/// cp: of a thread's few bytes, or in bulk.
pub(super) fn cp(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let reduces = f.take("reduce");
    f.required(&[("async", ())])?;
    if f.take("bulk") {
        return bulk(f, reduces);
    }
    if reduces || f.take("tensor") {
        return Err(f.unknown());
    }
    if f.take("mbarrier") {
        f.required(&[("arrive", ())])?;
        let counted = f.take("noinc");
        let space = shared(f, &[Space::Shared, Space::Generic])?;
        f.ty(&[B64])?;
        return Ok(Instruction::CopyArrive { space, counted, address: f.address(space)? });
    }
    match f.one_of(&[("commit_group", 0), ("wait_group", 1), ("wait_all", 2)]) {
        Some(0) => return Ok(Instruction::CopyCommit {}),
        Some(1) => return Ok(Instruction::CopyWait { groups: Some(f.constant(1 << 32)? as u32) }),
        Some(_) => return Ok(Instruction::CopyWait { groups: None }),
        None => {}
    }
    let level = f.required(&[("ca", CacheHint::All), ("cg", CacheHint::Global)])?;
    let (to, from) = (shared(f, &[Space::Shared])?, f.space());
    if from != Space::Global {
        return Err(f.combination(format!("a copy from .{from}"), "one from .global"));
    }
    let hints = f.hints();
    let (destination, source) = (f.address(to)?, f.address(from)?);
    let bytes = f.constant(17)? as u32;
    if !matches!((bytes, level), (16, _) | (4 | 8, CacheHint::All)) {
        return Err(f.combination(format!("{bytes} bytes"), "16, or with .ca also 4 or 8"));
    }
    let policies = usize::from(hints.contains(&CacheHint::L2CacheHint));
    let (mut source_bytes, mut ignored) = (None, None);
    if f.remaining() > policies {
        if f.next_is_predicate() {
            ignored = Some(f.condition()?);
        } else {
            source_bytes = Some(f.source(U32)?);
        }
    }
    policy(f, &hints)?;
    Ok(Instruction::Copy { destination, source, bytes, source_bytes, ignored })
}

/// A space of shared memory, which must be one of those.
fn shared(f: &mut Form<'_, '_>, allowed: &[Space]) -> Result<Space, PtxError> {
    let space = f.space();
    if allowed.contains(&space) {
        return Ok(space);
    }
    let names: Vec<String> = allowed.iter().map(|space| format!(".{space}")).collect();
    Err(f.combination(format!("space .{space}"), format!("one of {}", names.join(", "))))
}

/// Passes over the cache policy that `.L2::cache_hint` adds.
pub(super) fn policy(f: &mut Form<'_, '_>, hints: &[CacheHint]) -> Result<(), PtxError> {
    if hints.contains(&CacheHint::L2CacheHint) {
        f.source(B64)?;
    }
    Ok(())
}

/// The types of a bulk reduction, to global memory or to shared (PTX ISA 9.7.9.25.4.2).
fn reduced(op: AtomicOp, to: Space) -> &'static [Type] {
    match (op, to) {
        (AtomicOp::Add, Space::Global) => &[U32, S32, U64, F32, F64, F16, Bf16],
        (AtomicOp::Minimum | AtomicOp::Maximum, Space::Global) => &[U32, S32, U64, S64, F16, Bf16],
        (AtomicOp::And | AtomicOp::Or | AtomicOp::Xor, Space::Global) => &[B32, B64],
        (AtomicOp::Add, _) => &[U32, S32, U64],
        (AtomicOp::Minimum | AtomicOp::Maximum, _) => &[U32, S32],
        (AtomicOp::And | AtomicOp::Or | AtomicOp::Xor, _) => &[B32],
        (AtomicOp::Increment | AtomicOp::Decrement, _) => &[U32],
        (AtomicOp::Exchange | AtomicOp::CompareAndSwap, _) => &[],
    }
}

fn bulk(f: &mut Form<'_, '_>, reduces: bool) -> Result<Instruction, PtxError> {
    if f.take("tensor") {
        return super::tensor::copy(f, reduces);
    }
    match f.one_of(&[("commit_group", 0), ("wait_group", 1), ("prefetch", 2)]) {
        Some(0) => return Ok(Instruction::BulkCommit {}),
        Some(1) => {
            let reads = f.take("read");
            return Ok(Instruction::BulkWait { reads, groups: f.constant(1 << 32)? as u32 });
        }
        Some(_) => {
            f.required(&[("L2", ())])?;
            let space = f.space();
            let hints = f.hints();
            let address = f.address(space)?;
            f.source(U32)?;
            policy(f, &hints)?;
            return Ok(Instruction::Prefetch { space, address });
        }
        None => {}
    }
    let (to, from) = (f.space(), f.space());
    let with_mbarrier = f.one_of(COMPLETES).is_some();
    let expected = match (to, from) {
        (Space::Shared, Space::Global) if !reduces => true,
        (Space::SharedCluster, Space::Global) if !reduces => true,
        (Space::SharedCluster, Space::Shared) => true,
        (Space::Global, Space::Shared) => false,
        _ => return Err(f.combination(format!("a copy to .{to} from .{from}"), "between .global and .shared::cta or .shared::cluster")),
    };
    if with_mbarrier != expected {
        let wanted = if expected { ".mbarrier::complete_tx::bytes" } else { ".bulk_group" };
        return Err(f.combination(format!("a copy to .{to} from .{from} without {wanted}"), wanted));
    }
    if !with_mbarrier {
        f.required(&[("bulk_group", ())])?;
    }
    let multicast = (to, from) == (Space::SharedCluster, Space::Global) && f.take("multicast::cluster");
    let hints = f.hints();
    let masked = to == Space::Global && !reduces && f.take("cp_mask");
    if masked {
        f.needs_sm_100(".cp_mask")?;
    }
    let reduction = if reduces {
        let op = f.required(&AtomicOp::ALL[..8])?;
        let noftz = to == Space::Global && op == AtomicOp::Add && f.take("noftz");
        let ty = f.ty(reduced(op, to))?;
        if matches!(ty, F16 | Bf16) && op == AtomicOp::Add && !noftz {
            return Err(f.combination(format!("no .noftz with .{ty}"), ".noftz"));
        }
        Some((op, ty))
    } else {
        None
    };
    let (destination, source, bytes) = (f.address(to)?, f.address(from)?, f.source(U32)?);
    let mbarrier = if with_mbarrier { Some(f.address(to)?) } else { None };
    let blocks = if multicast { Some(f.source(B16)?) } else { None };
    policy(f, &hints)?;
    let mask = if masked { Some(f.source(B16)?) } else { None };
    let completion = match mbarrier {
        Some(address) => BulkCompletion::Mbarrier(address),
        None => BulkCompletion::Group,
    };
    Ok(Instruction::BulkCopy { to, from, reduction, destination, source, bytes, completion, blocks, mask })
}

/// st.bulk: zeros.
pub(super) fn st_bulk(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    f.needs_sm_100("st.bulk")?;
    f.take("weak");
    let space = shared(f, &[Space::Shared, Space::Generic])?;
    let (address, bytes) = (f.address(space)?, f.source(U64)?);
    f.constant(1)?;
    Ok(Instruction::BulkFill { space, address, bytes })
}

/// st.async, and red.async, which has an operation.
pub(super) fn st_async(f: &mut Form<'_, '_>, reduces: bool) -> Result<Instruction, PtxError> {
    if f.take("release") {
        return async_release(f, reduces);
    }
    if reduces {
        f.required(&[("relaxed", ())])?;
        f.required(&[("cluster", ())])?;
    } else {
        f.take("weak");
    }
    let space = shared(f, &[Space::SharedCluster, Space::Generic])?;
    f.required(COMPLETES)?;
    let op = if reduces { Some(f.required(&AtomicOp::ALL[..8])?) } else { None };
    let ty = match op {
        None => f.ty(&[B32, B64, U32, U64, S32, S64, F32, F64])?,
        Some(op) => f.ty(reduced(op, Space::SharedCluster))?,
    };
    let count = if reduces { 1 } else { vector(f, ty, 128)? };
    let address = f.address(space)?;
    let values = f.sources(count, ty, false)?;
    Ok(Instruction::StoreAsync { op, ty, space, address, values, mbarrier: f.address(space)? })
}

/// `st.async.release` and `red.async.release`, of global memory and without an mbarrier (PTX ISA 9.7.9.12, 9.7.13.7). Each is done by the thread here,
/// as the store or the reduction with the same order: that the device may do it later changes nothing that others could rely on.
fn async_release(f: &mut Form<'_, '_>, reduces: bool) -> Result<Instruction, PtxError> {
    f.needs_sm_100(if reduces { "red.async.release" } else { "st.async.release" })?;
    let mmio = f.take("mmio");
    let scope = f.required(&[("gpu", Scope::Gpu), ("sys", Scope::Sys)])?;
    if mmio && scope != Scope::Sys {
        return Err(f.combination("mmio", ".mmio.release.sys"));
    }
    let space = f.space();
    if !matches!(space, Space::Global | Space::Generic) {
        return Err(f.combination(format!("space .{space}"), ".global"));
    }
    let access = Access { space, semantics: Semantics::Release, scope: Some(scope), hints: Box::default() };
    if !reduces {
        let ty = f.ty(&[B8, B16, B32, B64, U8, U16, U32, U64, S8, S16, S32, S64, F32, F64])?;
        let address = f.address(space)?;
        return Ok(Instruction::Store { ty, access, address, values: f.sources(1, ty, true)? });
    }
    let op = f.required(&AtomicOp::ALL[..8])?;
    let types: &[Type] = match op {
        AtomicOp::Add => &[U32, S32, U64, S64],
        AtomicOp::Minimum | AtomicOp::Maximum => &[U32, S32],
        AtomicOp::And | AtomicOp::Or | AtomicOp::Xor => &[B32],
        AtomicOp::Increment | AtomicOp::Decrement | AtomicOp::Exchange | AtomicOp::CompareAndSwap => &[U32],
    };
    let ty = f.ty(types)?;
    let address = f.address(space)?;
    Ok(Instruction::Atomic { op, ty, access, destinations: None, address, values: f.sources(1, ty, false)? })
}

/// What an operation of mbarriers orders, and with whom: `.relaxed` must say with whom, all else may.
fn mbarrier_access(f: &mut Form<'_, '_>, ordered: Semantics, allowed: &[Space]) -> Result<MbarrierAccess, PtxError> {
    let semantics =
        f.one_of(&[("relaxed", Semantics::Relaxed), (if ordered == Semantics::Acquire { "acquire" } else { "release" }, ordered)]);
    let scope = f.one_of(&[("cta", Scope::Cta), ("cluster", Scope::Cluster)]);
    if semantics.is_some() != scope.is_some() {
        return Err(f.combination("semantics and scope of which one is missing", "both or none"));
    }
    let space = shared(f, allowed)?;
    Ok(MbarrierAccess { space, semantics: semantics.unwrap_or(ordered), scope })
}

pub(super) fn mbarrier(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    const OWN: &[Space] = &[Space::Shared, Space::Generic];
    const ANY: &[Space] = &[Space::Shared, Space::SharedCluster, Space::Generic];
    let kinds = [
        ("init", 0),
        ("inval", 1),
        ("arrive", 2),
        ("arrive_drop", 3),
        ("test_wait", 4),
        ("try_wait", 5),
        ("pending_count", 6),
        ("expect_tx", 7),
        ("complete_tx", 8),
    ];
    match f.required(&kinds)? {
        0 => {
            let space = shared(f, OWN)?;
            f.ty(&[B64])?;
            Ok(Instruction::MbarrierInit { space, address: f.address(space)?, count: f.source(U32)? })
        }
        1 => {
            let space = shared(f, OWN)?;
            f.ty(&[B64])?;
            Ok(Instruction::MbarrierInvalidate { space, address: f.address(space)? })
        }
        kind @ (2 | 3) => {
            let (expects, completes) = (f.take("expect_tx"), !f.take("noComplete"));
            let access = mbarrier_access(f, Semantics::Release, ANY)?;
            f.ty(&[B64])?;
            let state = f.destination_or_sink(B64, false)?;
            if state.is_some() && access.space == Space::SharedCluster {
                return Err(f.combination("a state of another block's mbarrier", "`_`"));
            }
            let address = f.address(access.space)?;
            let operand = if f.remaining() > 0 || expects || !completes { Some(f.source(U32)?) } else { None };
            let (count, bytes) = if expects { (None, operand) } else { (operand, None) };
            Ok(Instruction::MbarrierArrive { access, drops: kind == 3, completes, state, address, count, bytes })
        }
        kind @ (4 | 5) => {
            let parity = f.take("parity");
            let access = mbarrier_access(f, Semantics::Acquire, OWN)?;
            f.ty(&[B64])?;
            let (complete, address) = (f.destination(Pred)?, f.address(access.space)?);
            let phase = f.source(if parity { U32 } else { B64 })?;
            if kind == 5 && f.remaining() > 0 {
                f.source(U32)?;
            }
            let phase = if parity { MbarrierWait::Parity(phase) } else { MbarrierWait::State(phase) };
            Ok(Instruction::MbarrierTest { access, complete, address, phase })
        }
        6 => {
            f.ty(&[B64])?;
            Ok(Instruction::MbarrierPending { count: f.destination(U32)?, state: f.source(B64)? })
        }
        kind => {
            let access = mbarrier_access(f, Semantics::Relaxed, ANY)?;
            f.ty(&[B64])?;
            let (space, address, bytes) = (access.space, f.address(access.space)?, f.source(U32)?);
            Ok(Instruction::MbarrierBytes { space, completes: kind == 8, address, bytes })
        }
    }
}

/// setmaxnreg. A program does not see how many registers a warp has, only whether the block has that many to give.
pub(super) fn setmaxnreg(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let more = f.required(&[("inc", true), ("dec", false)])?;
    f.required(&[("sync", ())])?;
    f.required(&[("aligned", ())])?;
    f.ty(&[U32])?;
    let count = f.constant(257)? as u32;
    if !(24..=256).contains(&count) || !count.is_multiple_of(8) {
        return Err(f.combination(format!("{count} registers"), "a multiple of 8 from 24 to 256"));
    }
    Ok(Instruction::SetRegisters { more, count })
}

/// createpolicy: what is made is only good as a hint.
pub(super) fn createpolicy(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let kind = f.required(&[("fractional", 0), ("range", 1), ("cvt", 2)])?;
    let priorities = [("L2::evict_last", ()), ("L2::evict_normal", ()), ("L2::evict_first", ()), ("L2::evict_unchanged", ())];
    if kind == 2 {
        f.required(&[("L2", ())])?;
    } else {
        let _ = kind == 1 && f.take("global");
        f.required(&priorities)?;
        let _ = f.one_of(&priorities);
    }
    f.ty(&[B64])?;
    let destination = f.destination(B64)?;
    match kind {
        0 if f.remaining() > 0 => drop(f.source(F32)?),
        0 => {}
        1 => {
            f.address(Space::Global)?;
            f.source(U32)?;
            f.source(U32)?;
        }
        _ => drop(f.source(B64)?),
    }
    Ok(Instruction::CreatePolicy { destination })
}
