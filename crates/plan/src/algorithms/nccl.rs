//! NCCL's collectives, each forced onto one of its paths: the peers that everything is compared with.

use std::sync::Arc;

use super::kit::plan_name;
use crate::{
    algorithms::{Algorithm, Target},
    collective::{Collective, DType, ReduceOp, Roundings},
    contract::{Contract, Order},
    plan::{BufferSpec, Call, NcclCall, Op, Plan},
};

/// One way in which NCCL can be made to do a collective.
pub struct Nccl {
    collective: Collective,
    name: &'static str,
    environment: &'static [(&'static str, &'static str)],
    /// Buffers are registered as symmetric windows.
    windows: bool,
    order: Order,
    roundings: Roundings,
}

impl Nccl {
    /// The legacy ring: each chunk goes round the ranks and rounds to the element type at every hop. 8-bit floats are added and multiplied in
    /// f16, and rounded from there with saturation, at every hop too.
    pub const RING: Nccl = Nccl {
        collective: Collective::AllReduce,
        name: "nccl_ring",
        environment: &[("NCCL_ALGO", "Ring")],
        windows: false,
        order: Order::Any,
        roundings: Roundings::PerHop,
    };
    /// The legacy tree.
    pub const TREE: Nccl = Nccl { name: "nccl_tree", environment: &[("NCCL_ALGO", "Tree")], ..Nccl::RING };
    /// Symmetric windows, one-shot with flags in the data (`AllReduce_AGxLL_R`).
    pub const SYMMETRIC_LL: Nccl = Nccl {
        name: "nccl_symmetric_ll",
        environment: &[("NCCL_SYM_KERNEL", "AllReduce_AGxLL_R")],
        windows: true,
        order: Order::RankAscending,
        roundings: Roundings::Once,
        ..Nccl::RING
    };
    /// Symmetric windows, two-shot by loads and stores (`AllReduce_RSxLD_AGxST`).
    pub const SYMMETRIC_LD_ST: Nccl = Nccl {
        name: "nccl_symmetric_ld_st",
        environment: &[("NCCL_SYM_KERNEL", "AllReduce_RSxLD_AGxST")],
        order: Order::AnyRotation,
        ..Nccl::SYMMETRIC_LL
    };
    /// All-gather by the legacy ring.
    pub const ALL_GATHER_RING: Nccl = Nccl { collective: Collective::AllGather, order: Order::Copied, ..Nccl::RING };
    /// All-gather by stores to symmetric windows (`AllGather_ST`).
    pub const ALL_GATHER_SYMMETRIC_ST: Nccl = Nccl {
        collective: Collective::AllGather,
        name: "nccl_symmetric_st",
        environment: &[("NCCL_SYM_KERNEL", "AllGather_ST")],
        order: Order::Copied,
        ..Nccl::SYMMETRIC_LL
    };
    /// All-gather by copy engines: symmetric windows and no SMs to be used (`NCCL_CTA_POLICY_ZERO`).
    pub const ALL_GATHER_COPY_ENGINE: Nccl = Nccl {
        collective: Collective::AllGather,
        name: "nccl_copy_engine",
        environment: &[("NCCL_CTA_POLICY", "2")],
        order: Order::Copied,
        ..Nccl::SYMMETRIC_LL
    };
    /// Reduce-scatter by the legacy ring.
    pub const REDUCE_SCATTER_RING: Nccl = Nccl { collective: Collective::ReduceScatter, ..Nccl::RING };
    /// Reduce-scatter by loads from symmetric windows (`ReduceScatter_LD`).
    pub const REDUCE_SCATTER_SYMMETRIC_LD: Nccl = Nccl {
        collective: Collective::ReduceScatter,
        name: "nccl_symmetric_ld",
        environment: &[("NCCL_SYM_KERNEL", "ReduceScatter_LD")],
        ..Nccl::SYMMETRIC_LD_ST
    };
    /// All-gather by whichever of its symmetric kernels NCCL takes, which goes by the size; also for those who have it gather and reduce in one process,
    /// of which only one can be forced. Windows are on unless the environment says otherwise: it says so to have a process of their own.
    pub const ALL_GATHER_SYMMETRIC: Nccl =
        Nccl { name: "nccl_symmetric", environment: &[("NCCL_WIN_ENABLE", "1")], ..Nccl::ALL_GATHER_SYMMETRIC_ST };
    /// All-reduce by whichever of its symmetric kernels NCCL takes: some add in rank order, some in a rotation of it, and of others nothing is known.
    pub const ALL_REDUCE_SYMMETRIC: Nccl = Nccl { collective: Collective::AllReduce, order: Order::Any, ..Nccl::ALL_GATHER_SYMMETRIC };
    /// Reduce-scatter by whichever of its symmetric kernels NCCL takes.
    pub const REDUCE_SCATTER_SYMMETRIC: Nccl =
        Nccl { collective: Collective::ReduceScatter, order: Order::Any, ..Nccl::ALL_GATHER_SYMMETRIC };
    /// All-to-all by sends and receives in one group, as every version of NCCL has it. There is nothing to force: the environment is the
    /// ring's, so that the two share a process.
    pub const ALL_TO_ALL_SEND_RECV: Nccl =
        Nccl { collective: Collective::AllToAll, name: "nccl_send_recv", order: Order::Copied, ..Nccl::RING };
    /// `ncclAlltoAll` on symmetric windows, by whichever way NCCL takes.
    pub const ALL_TO_ALL_SYMMETRIC: Nccl = Nccl { collective: Collective::AllToAll, ..Nccl::ALL_GATHER_SYMMETRIC };
    /// `ncclAlltoAll` by copy engines, as all-gather is.
    pub const ALL_TO_ALL_COPY_ENGINE: Nccl = Nccl { collective: Collective::AllToAll, ..Nccl::ALL_GATHER_COPY_ENGINE };
    /// Broadcast by the legacy ring, a chain from the root.
    pub const BROADCAST_RING: Nccl = Nccl { collective: Collective::Broadcast, order: Order::Copied, ..Nccl::RING };
    /// Reduce by the legacy ring, a chain to the root.
    pub const REDUCE_RING: Nccl = Nccl { collective: Collective::Reduce, ..Nccl::RING };

    /// The peers that lists of cases take, in the order of collectives.
    pub fn listed() -> Vec<Arc<dyn Algorithm>> {
        Collective::ALL.into_iter().flat_map(Nccl::of).collect()
    }

    /// Those of a collective.
    pub fn of(collective: Collective) -> Vec<Arc<dyn Algorithm>> {
        match collective {
            Collective::AllReduce => {
                vec![Arc::new(Nccl::RING), Arc::new(Nccl::TREE), Arc::new(Nccl::SYMMETRIC_LL), Arc::new(Nccl::SYMMETRIC_LD_ST)]
            }
            Collective::AllGather => vec![Arc::new(Nccl::ALL_GATHER_RING), Arc::new(Nccl::ALL_GATHER_SYMMETRIC_ST)],
            Collective::ReduceScatter => vec![Arc::new(Nccl::REDUCE_SCATTER_RING), Arc::new(Nccl::REDUCE_SCATTER_SYMMETRIC_LD)],
            Collective::AllToAll => vec![Arc::new(Nccl::ALL_TO_ALL_SEND_RECV)],
            Collective::Broadcast => vec![Arc::new(Nccl::BROADCAST_RING)],
            Collective::Reduce => vec![Arc::new(Nccl::REDUCE_RING)],
        }
    }

    /// Peers that are timed, and of which the lists have few cases or none: NCCL itself chooses the way, and does not say so if it cannot take the one that was asked
    /// for. A caller must check which one it took.
    pub fn bench_only() -> Vec<Arc<dyn Algorithm>> {
        vec![
            Arc::new(Nccl::ALL_REDUCE_SYMMETRIC),
            Arc::new(Nccl::ALL_GATHER_SYMMETRIC),
            Arc::new(Nccl::ALL_GATHER_COPY_ENGINE),
            Arc::new(Nccl::REDUCE_SCATTER_SYMMETRIC),
            Arc::new(Nccl::ALL_TO_ALL_SYMMETRIC),
            Arc::new(Nccl::ALL_TO_ALL_COPY_ENGINE),
        ]
    }
}

impl Algorithm for Nccl {
    fn collective(&self) -> Collective {
        self.collective
    }

    fn name(&self) -> &'static str {
        self.name
    }

    /// Copies are copies. NCCL promises nothing about order. Averages it scales before the sum, by an inverse that is rounded to the element type: there, only
    /// the bound with a rounding at each step is tested. So it is of pre-multiplied sums, of whose roundings its documentation says nothing.
    fn contract(&self, call: &Call) -> Contract {
        if !call.op.reduces() {
            return Contract::COPIED;
        }
        let scales = matches!(call.op, ReduceOp::Avg | ReduceOp::PremulSum);
        Contract {
            order: if scales { Order::Any } else { self.order },
            roundings: if scales { Roundings::PerHop } else { self.roundings },
            equal_across_ranks: true,
            equal_run_to_run: true,
            graph_equals_eager: false,
            in_place_equals_out_of_place: false,
            special_values: false,
        }
    }

    fn check_supported(&self, call: &Call) -> Result<(), String> {
        let in_kernels = call.op.adds() && call.op != ReduceOp::PremulSum;
        if self.windows && call.op.reduces() && (!in_kernels || call.dtype == DType::F64 || !call.dtype.is_float()) {
            return Err(format!("NCCL's symmetric kernels do sums of f32, f16, bf16, e4m3 and e5m2, not {} of {}", call.op, call.dtype));
        }
        if self.windows && call.counts().is_some() {
            return Err("ncclAlltoAll has slots of one size".into());
        }
        Ok(())
    }

    fn workspace(&self, _: DType, _: u32, _: u64) -> Vec<BufferSpec> {
        Vec::new()
    }

    fn plan(&self, call: &Call, _: &Target) -> Plan {
        Plan::per_rank(plan_name(self.name, call), call.world(), |rank| vec![Op::Nccl(NcclCall::of_all(call.of_rank(rank), self.windows))])
    }

    fn spans_nodes(&self) -> bool {
        !self.windows
    }

    fn is_peer(&self) -> bool {
        true
    }

    fn accepts_unregistered(&self) -> bool {
        !self.windows
    }

    fn environment(&self) -> &'static [(&'static str, &'static str)] {
        self.environment
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Shape;
    use rstest::rstest;

    fn call(collective: Collective, dtype: DType, op: ReduceOp) -> Call {
        Call::standalone(Shape::new(collective, 4, 100), dtype, op).unwrap().0
    }

    /// If this fails, NCCL's own choice is held to the order of one of its kernels, or is not told from a legacy algorithm that rounds at each hop.
    #[rstest]
    #[case(Nccl::ALL_REDUCE_SYMMETRIC)]
    #[case(Nccl::REDUCE_SCATTER_SYMMETRIC)]
    fn what_nccl_chooses_on_windows_adds_in_any_order_and_rounds_once(#[case] chosen: Nccl) {
        let collective = chosen.collective();
        assert!(Nccl::bench_only().iter().any(|known| (known.collective(), known.name()) == (collective, "nccl_symmetric")));
        let contract = chosen.contract(&call(collective, DType::BF16, ReduceOp::Sum));
        assert_eq!((contract.order, contract.roundings), (Order::Any, Roundings::Once));
        assert_eq!(chosen.contract(&call(collective, DType::BF16, ReduceOp::Avg)).roundings, Roundings::PerHop);
        assert!(chosen.is_peer() && !chosen.accepts_unregistered());
        assert!(chosen.check_supported(&call(collective, DType::BF16, ReduceOp::Max)).is_err());
        assert!(chosen.check_supported(&call(collective, DType::I32, ReduceOp::Sum)).is_err());
        // A process of its own, shared by those who gather and reduce in one.
        assert_eq!(chosen.environment(), [("NCCL_WIN_ENABLE", "1")]);
    }
}
