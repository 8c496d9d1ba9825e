//! What kernels are told of a reduction: the entry point that does it, and the argument that says the rest.

use crate::{
    collective::{DType, ReduceOp},
    kernels::{Calls, Module, OwnEntries},
    plan::{Arg, Call},
};

/// The types of [`OwnEntries::Sums`].
const FEW_TYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// Whether a module has an entry for this type and operator. The others are done by the entry `any`: see kernels/common/any.cuh.
pub(super) fn has_own_entry(module: &Module, dtype: DType, op: ReduceOp) -> bool {
    match module.own_entries {
        OwnEntries::Sums => FEW_TYPES.contains(&dtype) && matches!(op, ReduceOp::Sum | ReduceOp::Avg),
        OwnEntries::Common => DType::COMMON.contains(&dtype) && ReduceOp::COMMON.contains(&op),
    }
}

/// The entry point of a module's kernel for a type and an operator: `all_reduce_two_shot_bf16_sum`. The average is the sum's kernel with a
/// divisor; products are of a type; copies know elements by their width in bits alone: `all_gather_push_b16`.
pub fn entry(module: &Module, dtype: DType, op: ReduceOp) -> String {
    let is_own = has_own_entry(module, dtype, op);
    let (module, calls) = (module.name.replace('/', "_"), module.calls);
    match op {
        _ if calls == Calls::AllToAllV => format!("{module}_b8"),
        ReduceOp::PremulSum => format!("{module}_{dtype}"),
        ReduceOp::Copy => format!("{module}_b{}", 8 * dtype.size()),
        _ if !is_own => format!("{module}_any"),
        ReduceOp::Avg => format!("{module}_{dtype}_{}", ReduceOp::Sum),
        _ => format!("{module}_{dtype}_{op}"),
    }
}

/// The `average` argument of a module's kernel that reduces, which for the entry `any` is `how`.
pub fn argument(module: &Module, dtype: DType, op: ReduceOp) -> u32 {
    let average = u32::from(op == ReduceOp::Avg);
    if has_own_entry(module, dtype, op) { average } else { average | operator(op) << 4 | type_code(dtype) << 8 }
}

/// The same of a call, as the argument of a launch.
pub fn reduction(module: &Module, call: &Call) -> Arg {
    Arg::U32(argument(module, call.dtype, call.op))
}

/// `Operator` of any.cuh.
const fn operator(op: ReduceOp) -> u32 {
    match op {
        ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PremulSum | ReduceOp::Copy => 0,
        ReduceOp::Prod => 1,
        ReduceOp::Min => 2,
        ReduceOp::Max => 3,
    }
}

/// `Type` of any.cuh.
const fn type_code(dtype: DType) -> u32 {
    let number = match dtype {
        DType::E4M3 | DType::F16 | DType::F32 | DType::F64 => 0,
        DType::E5M2 | DType::BF16 | DType::I32 | DType::I64 => 1,
        DType::I8 | DType::U32 | DType::U64 => 2,
        DType::U8 => 3,
    };
    number << 2 | dtype.size().ilog2()
}

/// The type and the operator that the argument of a module's entry `any` stands for.
pub fn of_argument(module: &Module, how: u32) -> (DType, ReduceOp) {
    let reductions = DType::ALL.into_iter().flat_map(|dtype| ReduceOp::ALL.map(|op| (dtype, op)));
    let mut others = reductions.filter(|&(dtype, op)| !has_own_entry(module, dtype, op) && op != ReduceOp::PremulSum);
    others.find(|&(dtype, op)| argument(module, dtype, op) == how).expect("the argument of an entry `any`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::find;
    use std::collections::HashSet;

    /// Two types of one code would be reduced as one of them.
    #[test]
    fn codes_are_those_of_the_kernels() {
        let header = include_str!("../../kernels/common/any.cuh");
        let codes: HashSet<u32> = DType::ALL.map(type_code).into();
        assert_eq!(codes.len(), DType::ALL.len());
        for dtype in DType::ALL {
            let name = dtype.name().to_uppercase();
            assert!(header.contains(&format!("TYPE_{name} = {}", type_code(dtype))), "{dtype}");
        }
        assert!(header.contains("enum Operator : u32 { SUM, PROD, MIN, MAX };"));
        assert_eq!([ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max].map(operator), [0, 1, 2, 3]);
    }

    #[test]
    fn common_reductions_keep_their_entries() {
        let of = |name| find(name).unwrap();
        assert_eq!(entry(of("all_reduce/two_shot"), DType::BF16, ReduceOp::Avg), "all_reduce_two_shot_bf16_sum");
        assert_eq!(entry(of("all_reduce/two_shot"), DType::BF16, ReduceOp::Prod), "all_reduce_two_shot_any");
        assert_eq!(entry(of("all_reduce/two_shot"), DType::F64, ReduceOp::Min), "all_reduce_two_shot_f64_min");
        assert_eq!(entry(of("all_reduce/push"), DType::BF16, ReduceOp::Avg), "all_reduce_push_bf16_sum");
        assert_eq!(entry(of("all_reduce/push"), DType::F64, ReduceOp::Sum), "all_reduce_push_any");
        assert_eq!(entry(of("all_reduce/push"), DType::BF16, ReduceOp::Min), "all_reduce_push_any");
        assert_eq!(entry(of("reduce_scatter/ll"), DType::E4M3, ReduceOp::Sum), "reduce_scatter_ll_any");
        assert_eq!(entry(of("all_gather/push"), DType::E4M3, ReduceOp::Copy), "all_gather_push_b8");
    }
}
