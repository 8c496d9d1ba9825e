//! Products of matrices that ranks have parts of: the two halves of tensor parallelism.

use super::Tile;
use crate::{
    algorithms::TensorParallelFusion,
    collective::Product,
    contract::Contract,
    plan::{BufferSpec, MatmulCall, Operands, Plan, Role},
};

/// One way to multiply matrices of which each rank has a part: a product with the collective before it, or behind it.
///
/// They are no [`Collective`](crate::collective::Collective), whose calls have one input and one shape, and have cases of their own
/// (`ProductCase` of the harness). tests/forks.rs has stand-ins for their kernels, and removes from plans what they synchronise by.
///
/// `blocks` are those that a rank may fill its device with, as many as that has SMs.
pub trait TensorParallel: Sync {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Whether it can do a product at all.
    ///
    /// # Errors
    /// The argument, its value and what is allowed.
    fn supports(&self, product: &Product, world: u32, blocks: u32) -> Result<(), String>;

    /// What it promises about what the ranks' products come to, each rounded to the type before. Where nothing is added, that they are copied.
    fn contract(&self, product: &Product, world: u32) -> Contract;

    /// Buffers that it needs beside the operands. Their names start with its own.
    fn workspace(&self, product: &Product, world: u32, blocks: u32) -> Vec<BufferSpec>;

    /// What all ranks do for a product that it supports.
    fn plan(&self, product: &Product, operands: &Operands, world: u32, blocks: u32) -> Plan;

    /// Whether its products are those of the [plain kernel](super::multiply), whatever the tiles: to the bit C of the gathered A, or what rank-ascending
    /// sums make of the ranks' products.
    fn equals_plain(&self) -> bool {
        false
    }

    /// The same with tiles of this shape; none where it has no choice of tiles.
    fn tiled(&self, _tile: Tile) -> Option<Box<dyn TensorParallel>> {
        None
    }

    /// Whether it is others', here to be compared with.
    fn is_peer(&self) -> bool {
        false
    }

    /// Environment variables that the machine's process must have been started with.
    fn environment(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
}

/// A plan's name for reports.
pub(in crate::algorithms) fn plan_name(of: TensorParallelFusion, name: &str, product: &Product, world: u32) -> String {
    let Product { dtype, rows, columns, depth, .. } = product;
    format!("{of}/{name} {dtype} w={world} {rows}x{columns}x{depth}")
}

/// Memory of the library, for each of so many products at a time.
pub(in crate::algorithms) fn library_workspace(name: &str, products: u64) -> BufferSpec {
    BufferSpec { local: true, ..BufferSpec::new(format!("{name}.library"), products * MatmulCall::WORKSPACE, Role::Data) }
}
