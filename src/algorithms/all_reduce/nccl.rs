//! NCCL's all-reduce, forced onto one of its paths: the peer that everything is held against.

use super::plan_name;
use crate::{
    algorithms::{Algorithm, Target},
    collective::{Collective, DType, ReduceOp, Roundings},
    contract::{Contract, Order},
    plan::{BufferSpec, Call, NcclCall, Op, Plan, RankCall},
};

/// One way in which NCCL can be made to do it.
pub struct Nccl {
    name: &'static str,
    environment: &'static [(&'static str, &'static str)],
    /// Buffers are registered as symmetric windows.
    windows: bool,
    order: Order,
    roundings: Roundings,
}

impl Nccl {
    /// The legacy ring: each chunk goes round the ranks and rounds to the element type at every hop.
    pub const RING: Nccl =
        Nccl { name: "nccl_ring", environment: &[("NCCL_ALGO", "Ring")], windows: false, order: Order::Any, roundings: Roundings::PerHop };
    /// The legacy tree.
    pub const TREE: Nccl =
        Nccl { name: "nccl_tree", environment: &[("NCCL_ALGO", "Tree")], windows: false, order: Order::Any, roundings: Roundings::PerHop };
    /// Symmetric windows, one-shot with flags in the data (`AllReduce_AGxLL_R`).
    pub const SYMMETRIC_LL: Nccl = Nccl {
        name: "nccl_symmetric_ll",
        environment: &[("NCCL_SYM_KERNEL", "AllReduce_AGxLL_R")],
        windows: true,
        order: Order::RankAscending,
        roundings: Roundings::Once,
    };
    /// Symmetric windows, two-shot by loads and stores (`AllReduce_RSxLD_AGxST`).
    pub const SYMMETRIC_LD_ST: Nccl = Nccl {
        name: "nccl_symmetric_ld_st",
        environment: &[("NCCL_SYM_KERNEL", "AllReduce_RSxLD_AGxST")],
        windows: true,
        order: Order::AnyRotation,
        roundings: Roundings::Once,
    };
}

impl Algorithm for Nccl {
    fn collective(&self) -> Collective {
        Collective::AllReduce
    }

    fn name(&self) -> &'static str {
        self.name
    }

    /// NCCL promises nothing about order. Averages it scales before the sum, by an inverse that is rounded to the element type: there, only
    /// the bound with a rounding at each step is tested.
    fn contract(&self, call: &Call) -> Contract {
        Contract {
            order: if call.op == ReduceOp::Avg { Order::Any } else { self.order },
            roundings: if call.op == ReduceOp::Avg { Roundings::PerHop } else { self.roundings },
            equal_across_ranks: true,
            equal_run_to_run: true,
            graph_equals_eager: false,
            in_place_equals_out_of_place: false,
            special_values: false,
        }
    }

    fn supports(&self, call: &Call) -> Result<(), String> {
        if self.windows && (!call.op.adds() || call.dtype == DType::F64 || !call.dtype.is_float()) {
            return Err(format!("NCCL's symmetric kernels do sums of f32, f16 and bf16, not {} of {}", call.op, call.dtype));
        }
        Ok(())
    }

    fn workspace(&self, _: DType, _: u32, _: u64) -> Vec<BufferSpec> {
        Vec::new()
    }

    fn plan(&self, call: &Call, _: &Target) -> Plan {
        Plan::per_rank(plan_name(self.name, call), call.world(), |_| {
            vec![Op::Nccl(NcclCall { call: RankCall::clone(call), windows: self.windows })]
        })
    }

    fn is_peer(&self) -> bool {
        true
    }

    fn environment(&self) -> &'static [(&'static str, &'static str)] {
        self.environment
    }
}
