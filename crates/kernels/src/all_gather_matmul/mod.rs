//! All-gather and product: every rank has rows of A and a B of its own, and gets C = gather(A) x B. Products have the rows of each rank's part of A.

mod chunked;
mod control;
mod fused;
mod gathered;

pub use chunked::Chunked;
pub use control::Control;
pub use fused::Fused;
pub(crate) use fused::SLICE_BYTES;
pub use gathered::Gathered;

use std::sync::Arc;

use crate::{
    copy_engine::{self, part},
    matmul,
};
use passmuster_plan::algorithms::{TensorParallel, TensorParallelFusion};
use passmuster_plan::{
    collective::Product,
    plan::{BufferSpec, Op, Region, Role},
};

/// All of them, the peers first.
pub fn all() -> Vec<Arc<dyn TensorParallel>> {
    vec![
        Arc::new(Gathered::NCCL_RING),
        Arc::new(Gathered::NCCL_SYMMETRIC_ST),
        Arc::new(Gathered::PUSH),
        Arc::new(Gathered::COPY_ENGINE),
        Arc::new(Chunked),
        Arc::new(Fused::PULL),
        Arc::new(Fused::COPY_ENGINE),
    ]
}

fn plan_name(name: &str, product: &Product, world: u32) -> String {
    matmul::plan_name(TensorParallelFusion::Gather, name, product, world)
}

/// Where A is gathered. It is local: only what copies to peers needs another's.
fn gathered(name: &str, product: &Product, world: u32, local: bool) -> BufferSpec {
    let bytes = u64::from(world) * product.a() * product.dtype.size();
    BufferSpec { local, ..BufferSpec::new(format!("{name}.gathered"), bytes, Role::Data) }
}

/// Meetings of [`copies`].
const READY: u64 = 0;
const ARRIVED: u64 = 1;

/// Words of [`copies`].
fn words(name: &str) -> BufferSpec {
    copy_engine::words(name, 2)
}

/// Copies of a rank's part of A into its part of every peer's gathered A, each followed by the word that says so.
///
/// - ready: peer's stream, in order -> our wait. It reads its gathered A no more.
/// - arrived: our copy, our word -> what waits for it at the peer ([`arrivals`]).
fn copies(name: &str, a: &Region, gathered: &Region, rank: u32, world: u32) -> Vec<Op> {
    let mut ops: Vec<Op> = copy_engine::announce(name, READY, rank, world).chain(copy_engine::gather(name, READY, rank, world)).collect();
    for peer in copy_engine::peers(rank, world) {
        ops.push(Op::Copy { from: a.clone(), to: part(gathered, rank, world), to_rank: Some(peer) });
        ops.push(copy_engine::tell(name, ARRIVED, rank, peer));
    }
    ops
}

/// The peers of a rank in the order in which [`copies`] of all ranks reach it.
fn arrivals(rank: u32, world: u32) -> impl Iterator<Item = u32> {
    (1..world).map(move |distance| (rank + world - distance) % world)
}
