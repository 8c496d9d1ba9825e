//! What algorithms have in common that use multimem instructions (PTX ISA 9.7.9.14): what these do, and what can be promised of it.

use passmuster_plan::{
    collective::{DType, ReduceOp, Roundings},
    contract::{Contract, Order},
    plan::Call,
};

/// What multimem instructions promise about the numbers of a call.
///
/// PTX leaves order and rounding of sums to the hardware (PTX ISA 9.7.9.14), and nothing says that two accesses to the same data agree: NCCL
/// has seen sums change with the history of multicast allocations (NCCL issue 1497). So sums are promised to be rounded once, to a
/// neighbour, and no two calls to be equal. Minima and maxima are the same in every order. What becomes of NaN, of the sign of zero and of
/// subnormals is not said.
pub(super) fn contract(call: &Call) -> Contract {
    let exact = !call.op.adds();
    Contract {
        order: Order::Any,
        roundings: Roundings::OnceToNeighbour,
        equal_across_ranks: exact,
        equal_run_to_run: exact,
        graph_equals_eager: exact,
        in_place_equals_out_of_place: exact,
        special_values: false,
    }
}

/// Whether there are ranks for a switch to be between. A multicast object of one device would do, but there is nothing for it to do.
///
/// # Errors
/// The reason why not, for people.
pub(super) fn has_ranks(call: &Call) -> Result<(), String> {
    if call.world() == 1 { Err("multimem is for 2 ranks or more".into()) } else { Ok(()) }
}

/// Whether multimem instructions reduce as a call says. An average would be rounded twice: the switch returns the sum in the type of the
/// elements.
///
/// # Errors
/// The reason why not, for people.
pub(super) fn reduces(call: &Call) -> Result<(), String> {
    has_ranks(call)?;
    match (call.dtype, call.op) {
        (_, ReduceOp::Avg) => Err("the average of sums that multimem has rounded to the element type would be rounded twice".into()),
        (_, ReduceOp::Prod) => Err("multimem has no products".into()),
        (DType::F32, ReduceOp::Sum) | (DType::F16 | DType::BF16, _) => Ok(()),
        (DType::E4M3 | DType::E5M2, op) => Err(format!("multimem {op} of {} needs sm_100a; these kernels are for sm_90", call.dtype)),
        (dtype, op) => Err(format!("multimem does sums of f32, and sums, minima and maxima of f16 and bf16, not {op} of {dtype}")),
    }
}
