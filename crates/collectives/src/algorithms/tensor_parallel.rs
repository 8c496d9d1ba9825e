//! The two halves of tensor parallelism, by name.

use std::{fmt, str::FromStr};

use super::{all_gather_matmul, matmul::TensorParallel, matmul_reduce_scatter};
use crate::collective::{Product, from_name};

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
        module.split('/').next()?.parse().ok()
    }

    /// Its algorithms, the peers first.
    pub fn algorithms(self) -> &'static [&'static dyn TensorParallel] {
        match self {
            TensorParallelFusion::Gather => all_gather_matmul::all(),
            TensorParallelFusion::Scatter => matmul_reduce_scatter::all(),
        }
    }

    /// The one of this name.
    ///
    /// # Errors
    /// Names those there are.
    pub fn find(self, name: &str) -> Result<&'static dyn TensorParallel, String> {
        self.algorithms().iter().copied().find(|algorithm| algorithm.name() == name).ok_or_else(|| {
            let names: Vec<&str> = self.algorithms().iter().map(|algorithm| algorithm.name()).collect();
            format!("unknown algorithm `{name}` of {self}: expected one of {}", names.join(", "))
        })
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
    type Err = String;

    fn from_str(text: &str) -> Result<TensorParallelFusion, String> {
        from_name(&TensorParallelFusion::ALL, text, "product", |half| half.name())
    }
}
