//! Product and reduce-scatter: every rank has columns of A, and the B that belongs to them, and gets its rows of C = the sum over ranks of A x B.
//!
//! Products have the rows of each rank's part of C, and the depth of each rank's part of A, which has the rows of all of C. A rank's product is rounded
//! to the type before ranks add theirs; how they do is the [contract](crate::algorithms::matmul::TensorParallel::contract).

mod chunked;
mod scattered;

pub use chunked::Chunked;
pub use scattered::Scattered;

use super::matmul::{self, TensorParallel};
use crate::{
    collective::{Collective, Product, ReduceOp},
    plan::{BufferSpec, Call, RankCall, Region, Role},
};

/// All of them, the peers first.
pub fn all() -> &'static [&'static dyn TensorParallel] {
    &[&Scattered::NCCL_RING, &Scattered::NCCL_SYMMETRIC_LD, &Scattered::PULL, &Chunked]
}

/// The one of this name.
///
/// # Errors
/// Names those there are.
pub fn find(name: &str) -> Result<&'static dyn TensorParallel, String> {
    matmul::find(MATMUL_REDUCE_SCATTER, all(), name)
}

const MATMUL_REDUCE_SCATTER: &str = "matmul_reduce_scatter";

fn plan_name(name: &str, product: &Product, world: u32) -> String {
    matmul::plan_name(MATMUL_REDUCE_SCATTER, name, product, world)
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
    let buffers = [&products, c].map(|region| BufferSpec::new(region.buffer.clone(), region.offset + region.bytes, Role::Data));
    let first = RankCall {
        collective: Collective::ReduceScatter,
        dtype: product.dtype,
        op: ReduceOp::Sum,
        count: product.c(1),
        root: 0,
        input: products,
        output: c.clone(),
    };
    Call::of_all_ranks(&first, world, &buffers).map_err(|error| error.to_string())
}
