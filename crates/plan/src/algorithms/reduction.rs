//! What kernels get for a reduction: the entry point that does it, and the argument that says the rest.

use crate::{
    collective::{DType, ReduceOp},
    modules::{Calls, Module, OwnEntries},
    plan::{Arg, Call},
};

/// Bits of the argument of an entry `any`: whether the sum is divided, and from which bits on there are the operator and the type.
pub(crate) const AVERAGE: u32 = 1;
pub(crate) const OPERATOR_BITS: u32 = 4;
pub(crate) const TYPE_BITS: u32 = 8;

/// Whether a module has an entry for this type and operator. The others are done by the entry `any`: see kernels/common/any.cuh.
pub fn has_own_entry(module: &Module, dtype: DType, op: ReduceOp) -> bool {
    match module.own_entries {
        OwnEntries::Sums => DType::FEW.contains(&dtype) && matches!(op, ReduceOp::Sum | ReduceOp::Avg),
        OwnEntries::Untyped | OwnEntries::Product(_) => false,
        OwnEntries::Common => DType::COMMON.contains(&dtype) && ReduceOp::COMMON.contains(&op),
    }
}

/// The entry point of a module's kernel for a type and an operator: `all_reduce_two_shot_bf16_sum`. The average is the sum's kernel with a
/// divisor; products are of a type; copies know elements by their width in bits alone: `all_gather_push_b16`.
pub fn entry(module: &Module, dtype: DType, op: ReduceOp) -> String {
    let name = module.name.replace('/', "_");
    if let OwnEntries::Product(narrowest) = module.own_entries {
        return format!("{name}_{dtype}_nk_{narrowest}");
    }
    match op {
        _ if module.own_entries == OwnEntries::Untyped => name,
        _ if module.calls == Calls::AllToAllV => format!("{name}_b8"),
        ReduceOp::PremulSum => format!("{name}_{dtype}"),
        ReduceOp::Copy => format!("{name}_b{}", 8 * dtype.size()),
        _ if !has_own_entry(module, dtype, op) => format!("{name}_any"),
        ReduceOp::Avg => format!("{name}_{dtype}_{}", ReduceOp::Sum),
        _ => format!("{name}_{dtype}_{op}"),
    }
}

/// The `average` argument of a module's kernel that reduces, which for the entry `any` is `how`.
pub fn argument(module: &Module, dtype: DType, op: ReduceOp) -> u32 {
    let average = if op == ReduceOp::Avg { AVERAGE } else { 0 };
    if has_own_entry(module, dtype, op) { average } else { average | op.code() << OPERATOR_BITS | dtype.code() << TYPE_BITS }
}

/// The same of a call, as the argument of a launch.
pub fn reduction(module: &Module, call: &Call) -> Arg {
    Arg::U32(argument(module, call.dtype, call.op))
}
