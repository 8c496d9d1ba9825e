//! All-reduce: every rank gets the reduction of all inputs.

mod multimem;
mod multimem_one_shot;
mod nccl;
mod one_shot;
mod one_shot_push;
mod two_shot;

pub use multimem::Multimem;
pub use multimem_one_shot::MultimemOneShot;
pub use nccl::Nccl;
pub use one_shot::OneShot;
pub use one_shot_push::OneShotPush;
pub use two_shot::TwoShot;

use crate::{
    collective::ReduceOp,
    plan::{Arg, Call},
};

/// The entry point for a call: `all_reduce_two_shot_bf16_sum`. The average is the sum's kernel with a divisor.
fn entry(algorithm: &str, call: &Call) -> String {
    let op = if call.op == ReduceOp::Avg { ReduceOp::Sum } else { call.op };
    format!("all_reduce_{algorithm}_{}_{op}", call.dtype)
}

/// The kernels' `average` argument.
fn average(call: &Call) -> Arg {
    Arg::U32(u32::from(call.op == ReduceOp::Avg))
}

/// A plan's name for reports.
pub(super) fn plan_name(algorithm: &str, call: &Call) -> String {
    let place = if call.in_place() { " in place" } else { "" };
    format!("all_reduce/{algorithm} {} {} w={} n={}{place}", call.dtype, call.op, call.world(), call.count)
}
