//! Products of matrices that ranks have parts of: the two halves of tensor parallelism.

use std::{fmt, str::FromStr, sync::Arc};

use crate::{
    collective::{Product, from_name},
    contract::Contract,
    plan::{BufferSpec, Op, Operands, Plan},
    words::UnknownName,
};

/// Which collective goes with a product, and on which side of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorParallelFusion {
    /// An all-gather of A before it.
    Gather,
    /// A reduce-scatter of C behind it.
    Scatter,
}

impl TensorParallelFusion {
    /// Both.
    pub const ALL: [TensorParallelFusion; 2] = [TensorParallelFusion::Gather, TensorParallelFusion::Scatter];

    /// The name in ids and reports.
    pub const fn name(self) -> &'static str {
        match self {
            TensorParallelFusion::Gather => "all_gather_matmul",
            TensorParallelFusion::Scatter => "matmul_reduce_scatter",
        }
    }

    /// That of a kernel's module or of an algorithm with its half before it: `all_gather_matmul/fused`.
    pub fn of(module: &str) -> Option<TensorParallelFusion> {
        // Every id of a case comes by here: no error is made for those of collectives.
        let half = module.split('/').next()?;
        TensorParallelFusion::ALL.into_iter().find(|known| known.name() == half)
    }

    /// Elements of a rank's A, B and C.
    pub fn elements(self, product: &Product, world: u32) -> [u64; 3] {
        match self {
            TensorParallelFusion::Gather => [product.a(), product.b(), product.c(world)],
            TensorParallelFusion::Scatter => [u64::from(world) * product.a(), product.b(), product.c(1)],
        }
    }
}

impl fmt::Display for TensorParallelFusion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TensorParallelFusion {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<TensorParallelFusion, UnknownName> {
        from_name(&TensorParallelFusion::ALL, text, "product", |half| half.name())
    }
}

/// One way to multiply matrices of which each rank has a part: a product with the collective before it, or behind it.
///
/// They are no [`Collective`](crate::collective::Collective), whose calls have one input and one shape, and have cases of their own
/// (`ProductCase` of the harness). tests/forks.rs has stand-ins for their kernels, and removes from plans what they synchronise by.
///
/// `blocks` are those that a rank may fill its device with, as many as that has SMs.
pub trait TensorParallel: Send + Sync {
    /// Which half of tensor parallelism it is a way to do.
    fn half(&self) -> TensorParallelFusion;

    /// Its name, unique within the half.
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

    /// The plain matmul kernel on whole matrices, for one rank, if this algorithm promises to be bit-identical to it: to C of the gathered A, or to the
    /// rank-ascending sum of the ranks' products. Uses tiles of another width than `other_than`.
    fn plain(&self, product: &Product, operands: &Operands, other_than: Option<u32>, blocks: u32) -> Option<Op> {
        let _ = (product, operands, other_than, blocks);
        None
    }

    /// Widths of its tiles in columns, the widest first. Empty if it has no choice.
    fn tiles(&self) -> Vec<u32> {
        Vec::new()
    }

    /// The same algorithm with tiles of `columns` columns, one of [`TensorParallel::tiles`].
    fn tiled(&self, columns: u32) -> Option<Arc<dyn TensorParallel>> {
        let _ = columns;
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
