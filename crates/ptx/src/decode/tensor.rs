//! Copies of boxes of tensors, and the maps that say where these are (PTX ISA 9.7.9.27).

use crate::{
    AtomicOp, BulkCompletion, Instruction, TensorMapField,
    error::PtxError,
    form::Form,
    types::{Scope, Space, Type::*},
};

use super::asynchronous::{COMPLETES, policy};

/// Bytes of a tensor map.
const MAP_BYTES: u64 = 128;

/// cp.async.bulk.tensor, cp.reduce.async.bulk.tensor and cp.async.bulk.prefetch.tensor, of which `.tensor` was taken. Boxes are tiles: `.im2col` and what
/// gathers or scatters rows is not known.
pub(super) fn copy(f: &mut Form<'_, '_>, reduces: bool) -> Result<Instruction, PtxError> {
    let prefetches = !reduces && f.take("prefetch");
    let dimensions = f.required(&[("1d", 1), ("2d", 2), ("3d", 3), ("4d", 4), ("5d", 5)])?;
    if prefetches {
        f.required(&[("L2", ())])?;
        f.required(&[("global", ())])?;
        f.take("tile");
        let hints = f.hints();
        let (map, coordinates) = f.place_in_tensor(dimensions)?;
        policy(f, &hints)?;
        return Ok(Instruction::TensorPrefetch { map, coordinates });
    }
    let (to, from) = (f.space(), f.space());
    let loads = match (to, from) {
        (Space::Shared | Space::SharedCluster, Space::Global) if !reduces => true,
        (Space::Global, Space::Shared) => false,
        _ => {
            return Err(
                f.combination(format!("a copy of a box to .{to} from .{from}"), "between .global and .shared::cta or .shared::cluster")
            );
        }
    };
    let reduction = if reduces { Some(f.required(&AtomicOp::ALL[..8])?) } else { None };
    f.take("tile");
    if !loads {
        f.required(&[("bulk_group", ())])?;
        let hints = f.hints();
        let (map, coordinates) = f.place_in_tensor(dimensions)?;
        let shared = f.address(from)?;
        policy(f, &hints)?;
        return Ok(Instruction::TensorCopy {
            to,
            from,
            reduction,
            map,
            coordinates,
            shared,
            completion: BulkCompletion::Group,
            blocks: None,
        });
    }
    f.required(COMPLETES)?;
    let multicast = to == Space::SharedCluster && f.take("multicast::cluster");
    let hints = f.hints();
    let shared = f.address(to)?;
    let (map, coordinates) = f.place_in_tensor(dimensions)?;
    let completion = BulkCompletion::Mbarrier(f.address(to)?);
    let blocks = if multicast { Some(f.source(B16)?) } else { None };
    policy(f, &hints)?;
    Ok(Instruction::TensorCopy { to, from, reduction, map, coordinates, shared, completion, blocks })
}

/// tensormap.replace and tensormap.cp_fenceproxy.
pub(super) fn tensormap(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    if f.required(&[("replace", true), ("cp_fenceproxy", false)])? { replace(f) } else { publish(f) }
}

fn replace(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    use TensorMapField::*;
    f.required(&[("tile", ())])?;
    let field = f.required(TensorMapField::ALL)?;
    let space = f.space();
    if !matches!(space, Space::Global | Space::Shared | Space::Generic) {
        return Err(f.combination(format!("space .{space}"), "one of .global, .shared::cta"));
    }
    f.required(&[("b1024", ())])?;
    let ty = f.ty(if matches!(field, GlobalAddress | Stride) { &[B64] } else { &[B32] })?;
    let address = f.address(space)?;
    let dimensions = match field {
        BoxExtent | Extent | ElementStride | Stride => 5,
        _ => 0,
    };
    let dimension = if dimensions > 0 { f.constant(dimensions)? as u32 } else { 0 };
    let choices = match field {
        ElementType => 13,
        Interleave => 3,
        Swizzle => 4,
        Fill => 2,
        _ => 0,
    };
    let value = if choices > 0 { crate::Operand::Immediate(f.constant(choices)?) } else { f.source(ty)? };
    Ok(Instruction::TensorMapReplace { field, dimension, space, address, value })
}

fn publish(f: &mut Form<'_, '_>) -> Result<Instruction, PtxError> {
    let (to, from) = (f.space(), f.space());
    if (to, from) != (Space::Global, Space::Shared) {
        return Err(f.combination(format!("a copy of a tensor map to .{to} from .{from}"), "one to .global from .shared::cta"));
    }
    for modifier in ["tensormap::generic", "release"] {
        f.required(&[(modifier, ())])?;
    }
    let scope = f.required(Scope::ALL)?;
    for modifier in ["sync", "aligned"] {
        f.required(&[(modifier, ())])?;
    }
    let (destination, source) = (f.address(to)?, f.address(from)?);
    map_bytes(f)?;
    Ok(Instruction::TensorMapPublish { scope, destination, source })
}

/// The size of a map, which copies and fences of one say.
pub(super) fn map_bytes(f: &mut Form<'_, '_>) -> Result<(), PtxError> {
    match f.constant(1 << 32)? {
        MAP_BYTES => Ok(()),
        bytes => Err(f.combination(format!("{bytes} bytes of a tensor map"), MAP_BYTES)),
    }
}
