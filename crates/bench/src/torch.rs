//! PyTorch's operations as contenders. They are timed by ranks of Python's own, whose script is with the command; here is which there are.

use super::{MatmulWorkload, Scenario, Workload};
use passmuster_plan::collective::{Collective, ReduceOp};

/// An operation of `torch.ops.symm_mem`. None of them uses NVLink multicast: no multimem operation is among them, and the ranks assert it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Torch {
    /// `one_shot_all_reduce`.
    OneShot,
    /// `two_shot_all_reduce_`, in place.
    TwoShot,
    /// `fused_all_gather_matmul`: products of parts on alternating streams, behind copies.
    FusedAllGatherMatmul,
    /// `fused_matmul_reduce_scatter`: products of parts on alternating streams, each with its copy behind it.
    FusedMatmulReduceScatter,
}

/// What the ranks' processes must be started with.
pub const WITHOUT_MULTICAST: super::Environment = &[("NCCL_NVLS_ENABLE", "0"), ("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")];

impl Torch {
    /// Those for a workload.
    pub fn of(workload: &Workload) -> &'static [Torch] {
        match workload {
            Workload::Collective(of) if of.collective == Collective::AllReduce && of.op == ReduceOp::Sum => {
                &[Torch::OneShot, Torch::TwoShot]
            }
            Workload::Matmul(MatmulWorkload { scenario: Scenario::AllGatherMatmul, .. }) => &[Torch::FusedAllGatherMatmul],
            Workload::Matmul(MatmulWorkload { scenario: Scenario::MatmulReduceScatter, .. }) => &[Torch::FusedMatmulReduceScatter],
            _ => &[],
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Torch::OneShot => "torch_one_shot",
            Torch::TwoShot => "torch_two_shot",
            Torch::FusedAllGatherMatmul | Torch::FusedMatmulReduceScatter => "torch_fused",
        }
    }
}
