//! Product and reduce-scatter: every rank has columns of A, and the B that belongs to them, and gets its rows of C = the sum over ranks of A x B.
//!
//! Products have the rows of each rank's part of C, and the depth of each rank's part of A, which has the rows of all of C. A rank's product is rounded
//! to the type before ranks add theirs; how they do is the [contract](crate::algorithms::matmul::TensorParallel::contract).

mod chunked;
mod fused;
mod scattered;

pub use chunked::Chunked;
pub use fused::Fused;
pub use scattered::Scattered;

use std::sync::Arc;

use crate::{
    copy_engine::{announce, gather, peers, tell},
    matmul,
};
use passmuster_plan::algorithms::{TensorParallel, TensorParallelFusion};
use passmuster_plan::{
    collective::{Collective, Product, ReduceOp, Shape},
    plan::{BufferSpec, Call, Op, Region, Role},
};

/// All of them, the peers first.
pub fn all() -> Vec<Arc<dyn TensorParallel>> {
    vec![
        Arc::new(Scattered::NCCL_RING),
        Arc::new(Scattered::NCCL_SYMMETRIC_LD),
        Arc::new(Scattered::PULL),
        Arc::new(Chunked),
        Arc::new(Fused::BEST),
    ]
}

fn plan_name(name: &str, product: &Product, world: u32) -> String {
    matmul::plan_name(TensorParallelFusion::Scatter, name, product, world)
}

/// Whether there are matrices of such sizes: of a rank the rows of all of C, and the columns of its part of A.
fn supports(product: &Product, world: u32) -> Result<(), String> {
    matmul::supports(product, world)?;
    matmul::supports(&product.gathered(world), 1)
}

/// A rank's product before it is scattered, rows of all ranks below each other. It is local: only what peers read needs another's.
fn products(name: &str, product: &Product, world: u32, local: bool) -> BufferSpec {
    BufferSpec { local, ..BufferSpec::new(format!("{name}.products"), product.c(world) * product.dtype.size(), Role::Data) }
}

/// The reduce-scatter of the ranks' products into C.
fn call(product: &Product, products: Region, c: &Region, world: u32) -> Result<Call, String> {
    let shape = Shape::new(Collective::ReduceScatter, world, product.c(1));
    Call::on_regions(shape, product.dtype, ReduceOp::Sum, products, c.clone()).map_err(|error| error.to_string())
}

/// What peers bring: a slot for each rank.
fn slots(name: &str, product: &Product, world: u32) -> BufferSpec {
    BufferSpec::new(format!("{name}.slots"), product.c(world) * product.dtype.size(), Role::Data)
}

/// Meetings of [`in_parts`].
const READY: u64 = 0;
const BROUGHT: u64 = 1;

/// Streams of [`in_parts`], the plan's own the last of them: at most 1 + [`MAX_SIDES`](crate::plan::MAX_SIDES).
const LANES: usize = 2;

/// Products of one rank's rows each, the peers' rows first, the own ones last; then `add`, which adds the own rows of all ranks' products.
///
/// - ready: peer's stream, in order -> the wait in `bring`. It has added what its slots held.
/// - brought: what `bring` does, our word -> peer's wait. Its slot holds our product of its rows.
///
/// Products take turns on the lanes, so that the last blocks of one do not leave the device empty before the next. `bring` and `own` are asked for the
/// lane's number.
fn in_parts(name: &str, (rank, world): (u32, u32), bring: impl Fn(u32, usize) -> Vec<Op>, own: impl Fn(usize) -> Op, add: Op) -> Vec<Op> {
    let mut lanes = [const { Vec::new() }; LANES];
    for (n, peer) in peers(rank, world).enumerate() {
        let lane = n % LANES;
        lanes[lane].extend(bring(peer, lane));
        lanes[lane].push(tell(name, BROUGHT, rank, peer));
    }
    let last = (world - 1) as usize % LANES;
    lanes[last].push(own(last));
    // The sides go first, for a fork is enqueued before what goes on beside it.
    let [sides @ .., beside] = lanes;
    let sides = (1..).zip(sides).filter(|(_, ops)| !ops.is_empty());
    let (forks, joins): (Vec<Op>, Vec<Op>) = sides.map(|(stream, ops)| (Op::Fork { stream, ops }, Op::Join { stream })).unzip();
    let mut ops: Vec<Op> = announce(name, READY, rank, world).collect();
    ops.extend(forks.into_iter().chain(beside).chain(joins));
    ops.extend(gather(name, BROUGHT, rank, world));
    ops.push(add);
    ops
}

#[cfg(test)]
mod tests {
    use super::*;
    use passmuster_plan::collective::{DType, Layout};
    use rstest::rstest;

    fn product(rows: u64, columns: u64, depth: u64) -> Product {
        Product { dtype: DType::BF16, rows, columns, depth, layout: Layout::Nk }
    }

    /// If this fails, a product is computed wrongly, or ends in an error of the driver, that no kernel or library can address.
    #[rstest]
    #[case(product(16, 12, 8), 2, "columns = 12: rows of 24 bytes, TMA needs a multiple of 16")]
    #[case(product(16, 8, 4), 2, "depth = 4: rows of 8 bytes, TMA needs a multiple of 16")]
    #[case(product(16, 0, 8), 2, "columns = 0: 1 to 16777216")]
    #[case(product(16, 8, 0), 2, "depth = 0: 1 to 16777216")]
    #[case(product(1 << 24, 8, 8), 2, "rows = 33554432: 1 to 16777216")]
    #[case(product(16, 8, 8), 17, "world size 17: 1 to 16")]
    fn what_cannot_be_addressed_is_refused_by_all(#[case] product: Product, #[case] world: u32, #[case] why: &str) {
        for algorithm in all() {
            assert_eq!(algorithm.supports(&product, world, 132), Err(why.into()), "{}", algorithm.name());
        }
    }
}
