//! Special registers, by their names.

use crate::{
    Axis,
    instruction::Special,
    types::{
        Type,
        Type::{Pred, U32, U64},
    },
};

/// Special registers that say where the driver keeps shared memory of its own (PTX ISA 10.32 to 10.37).
pub(crate) const UNMODELLED: &[&str] = &[
    "%reserved_smem_offset_begin",
    "%reserved_smem_offset_end",
    "%reserved_smem_offset_cap",
    "%reserved_smem_offset_0",
    "%reserved_smem_offset_1",
    "%aggr_smem_size",
];

/// Whether a name is that of a special register.
pub(crate) fn is_special(name: &str, component: Option<&str>) -> bool {
    special(name, component).is_some() || UNMODELLED.contains(&name)
}

/// Whether `name` is that of one of `count` special registers that differ by a number, as in `%envreg3`.
fn numbered(name: &str, stem: &str, count: u32) -> bool {
    name.strip_prefix(stem).is_some_and(|number| (0..count).any(|one| one.to_string() == number))
}

/// A special register and its type.
pub(crate) fn special(name: &str, component: Option<&str>) -> Option<(Special, Type)> {
    use Special::*;
    if let Some(component) = component {
        let axis = match component {
            "x" => Axis::X,
            "y" => Axis::Y,
            "z" => Axis::Z,
            _ => return None,
        };
        let special = match name {
            "%tid" => ThreadId(axis),
            "%ntid" => BlockSize(axis),
            "%ctaid" => BlockId(axis),
            "%nctaid" => GridSize(axis),
            "%cluster_ctaid" => ClusterBlockId(axis),
            "%cluster_nctaid" => ClusterSize(axis),
            "%clusterid" => ClusterId(axis),
            "%nclusterid" => ClusterCount(axis),
            _ => return None,
        };
        return Some((special, U32));
    }
    let special = match name {
        "%laneid" => LaneId,
        "%warpid" => WarpId,
        "%nwarpid" => WarpCount,
        "WARP_SZ" => WarpSize,
        "%smid" => SmId,
        "%nsmid" => SmCount,
        "%gridid" => return Some((GridId, U64)),
        "%lanemask_eq" => LaneMaskEqual,
        "%lanemask_lt" => LaneMaskLess,
        "%lanemask_le" => LaneMaskLessEqual,
        "%lanemask_gt" => LaneMaskGreater,
        "%lanemask_ge" => LaneMaskGreaterEqual,
        "%clock" => Clock,
        "%clock_hi" => ClockHigh,
        "%clock64" => return Some((Clock64, U64)),
        "%globaltimer" => return Some((GlobalTimer, U64)),
        "%globaltimer_lo" => GlobalTimerLow,
        "%globaltimer_hi" => GlobalTimerHigh,
        "%cluster_ctarank" => ClusterBlockRank,
        "%cluster_nctarank" => ClusterBlockCount,
        "%is_explicit_cluster" => return Some((IsExplicitCluster, Pred)),
        "%dynamic_smem_size" => DynamicSharedSize,
        "%total_smem_size" => TotalSharedSize,
        "%current_graph_exec" => return Some((CurrentGraph, U64)),
        name if numbered(name, "%envreg", 32) => EnvironmentRegister,
        name if numbered(name, "%pm", 8) => PerformanceCounter,
        name if name.strip_suffix("_64").is_some_and(|name| numbered(name, "%pm", 8)) => return Some((PerformanceCounter, U64)),
        _ => return None,
    };
    Some((special, U32))
}
