//! All-gather and product: every rank has rows of A and a B of its own, and gets C = gather(A) x B.
//!
//! They are no [`Collective`](crate::collective::Collective), whose calls have one input and one shape: no case ids name them. tests/matmul.rs holds them
//! on GPUs against exact products and against each other, tests/forks.rs those of streams and library calls on the emulator, which
//! knows neither TMA nor wgmma and refuses the plans of the others.

mod chunked;
mod fused;
mod gathered;

pub use chunked::Chunked;
pub use fused::Fused;
pub use gathered::Gathered;

use super::copy_engine::{self, slot};
use crate::{
    collective::Product,
    plan::{BufferSpec, MatmulCall, Op, Operands, Plan, Region, Role},
};

/// One way to gather A and multiply it.
///
/// Products have the rows of each rank's part of A. `blocks` are those that a rank may fill its device with, as many as that has multiprocessors.
pub trait AllGatherMatmul: Sync {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Whether it can do a product at all.
    ///
    /// # Errors
    /// The argument, its value and what is allowed.
    fn supports(&self, product: &Product, world: u32, blocks: u32) -> Result<(), String>;

    /// Buffers that it needs beside the operands. Their names start with its own.
    fn workspace(&self, product: &Product, world: u32, blocks: u32) -> Vec<BufferSpec>;

    /// What all ranks do for a product that it supports.
    fn plan(&self, product: &Product, operands: &Operands, world: u32, blocks: u32) -> Plan;

    /// Whether it is others', here to be compared with.
    fn is_peer(&self) -> bool {
        false
    }

    /// Environment variables that the machine's process must have been started with.
    fn environment(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
}

/// All of them, the peers first.
pub fn all() -> &'static [&'static dyn AllGatherMatmul] {
    &[
        &Gathered::NCCL_RING,
        &Gathered::NCCL_SYMMETRIC_ST,
        &Gathered::PUSH,
        &Gathered::COPY_ENGINE,
        &Chunked,
        &Fused::PULL,
        &Fused::COPY_ENGINE,
    ]
}

/// The one of this name.
///
/// # Errors
/// Names those there are.
pub fn find(name: &str) -> Result<&'static dyn AllGatherMatmul, String> {
    all().iter().copied().find(|algorithm| algorithm.name() == name).ok_or_else(|| {
        let names: Vec<&str> = all().iter().map(|algorithm| algorithm.name()).collect();
        format!("unknown algorithm `{name}` of all_gather_matmul: expected one of {}", names.join(", "))
    })
}

fn plan_name(name: &str, product: &Product, world: u32) -> String {
    let Product { dtype, rows, columns, depth, .. } = product;
    format!("all_gather_matmul/{name} {dtype} w={world} {rows}x{columns}x{depth}")
}

/// Where A is gathered. It is local: only what copies to peers needs another's.
fn gathered(name: &str, product: &Product, world: u32, local: bool) -> BufferSpec {
    let bytes = u64::from(world) * product.a() * product.dtype.size();
    BufferSpec { local, ..BufferSpec::new(format!("{name}.gathered"), bytes, Role::Data) }
}

/// Memory of the library, for each of so many products at a time.
fn library_workspace(name: &str, products: u64) -> BufferSpec {
    BufferSpec { local: true, ..BufferSpec::new(format!("{name}.library"), products * MatmulCall::WORKSPACE, Role::Data) }
}

/// Part `rank` of a region of `world` equal ones.
fn part(of: &Region, rank: u32, world: u32) -> Region {
    slot(of, rank, of.bytes / u64::from(world))
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
/// - arrived: our copy, our word -> whoever waits for it at the peer ([`arrival`]).
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
