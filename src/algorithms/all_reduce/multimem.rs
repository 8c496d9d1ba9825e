//! `all_reduce/multimem`: every rank has the switch reduce its slice and write it to all. See kernels/all_reduce/multimem.cu.

use super::{entry, plan_name};
use crate::{
    algorithms::{Algorithm, THREADS, Target, blocks_for, sync_argument, synchronisation},
    collective::{Collective, DType, ReduceOp, Roundings},
    contract::{Contract, Order},
    plan::{Arg, BufferSpec, Call, Launch, Op, Plan},
};

/// Load the own slice reduced by the switch, store it to all: (1 + 1 / world) x bytes each way over each rank's link.
pub struct Multimem;

const NAME: &str = "multimem";

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

/// Whether multimem instructions do a call.
///
/// A multicast object of one device would do, but there is nothing to reduce. An average would be rounded twice: the switch returns the sum
/// in the type of the elements.
///
/// # Errors
/// The reason why not, for people.
pub(super) fn supports(call: &Call) -> Result<(), String> {
    if call.world() == 1 {
        return Err("multimem reduces over 2 ranks or more".into());
    }
    match (call.dtype, call.op) {
        (_, ReduceOp::Avg) => Err("the average of sums that multimem has rounded to the element type would be rounded twice".into()),
        (_, ReduceOp::Prod) => Err("multimem has no products".into()),
        (DType::F32, ReduceOp::Sum) | (DType::F16 | DType::BF16, _) => Ok(()),
        (DType::E4M3 | DType::E5M2, op) => Err(format!("multimem {op} of {} needs sm_100a; these kernels are for sm_90", call.dtype)),
        (dtype, op) => Err(format!("multimem does sums of f32, and sums, minima and maxima of f16 and bf16, not {op} of {dtype}")),
    }
}

impl Algorithm for Multimem {
    fn collective(&self) -> Collective {
        Collective::AllReduce
    }

    fn name(&self) -> &'static str {
        NAME
    }

    /// One rank computes each element and all get it.
    fn contract(&self, call: &Call) -> Contract {
        Contract { equal_across_ranks: true, ..contract(call) }
    }

    fn supports(&self, call: &Call) -> Result<(), String> {
        supports(call)
    }

    fn workspace(&self, _: DType, _: u32, _: u64) -> Vec<BufferSpec> {
        synchronisation(NAME)
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let slice = call.bytes().div_ceil(16).div_ceil(u64::from(call.world()));
        let grid = blocks_for(slice, target.waiting_blocks);
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| {
            vec![Op::Launch(Launch {
                module: "all_reduce/multimem".into(),
                entry: entry(NAME, call),
                build: target.build,
                grid,
                block: THREADS,
                dynamic_shared: 0,
                waits_for_peers: true,
                args: vec![
                    Arg::Multicast(call.input.clone()),
                    Arg::Peers(call.input.clone()),
                    Arg::Multicast(call.output.clone()),
                    Arg::Peers(call.output.clone()),
                    Arg::U64(call.count),
                    sync_argument(NAME, rank, call.world()),
                ],
            })]
        })
    }

    fn uses_multicast(&self) -> bool {
        true
    }
}
