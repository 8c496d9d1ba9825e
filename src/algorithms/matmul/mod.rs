//! Matrix products, plain and fused with the all-gather of A. See kernels/matmul/matmul.cuh.
//!
//! They are no [`Collective`](crate::collective::Collective) yet, so no case ids name them: tests/matmul.rs holds them on GPUs against exact
//! products. The emulator knows neither TMA nor wgmma and refuses their plans.
//!
//! Times at the heads of the kernels were taken beside torch.mm with scripts that are not in this repository; no command times products yet.

mod pull;
mod tile;

pub use pull::Pull;
pub use tile::Tile;

use crate::{
    collective::{DType, Layout, Product},
    plan::{Arg, Build, Launch, Op, Operands, Plan, Region, TensorMap},
};

impl Product {
    /// Whether the kernels can do it.
    ///
    /// # Errors
    /// The argument, its value and what is allowed.
    pub fn check(&self, world: u32) -> Result<(), String> {
        let Product { dtype, rows, columns, depth, .. } = *self;
        if ![DType::BF16, DType::F16].contains(&dtype) {
            return Err(format!("dtype {dtype}: products have bf16 and f16"));
        }
        // Coordinates of TMA are signed words; numbers of tiles and of what is pulled are words, too.
        let most = 1 << 24;
        for (argument, value) in [("rows", rows), ("columns", columns), ("depth", depth)] {
            if value == 0 || value > most {
                return Err(format!("{argument} = {value}: 1 to {most}"));
            }
        }
        for (argument, value) in [("columns", columns), ("depth", depth)] {
            if !value.is_multiple_of(8) {
                return Err(format!("{argument} = {value}: rows of {} bytes, TMA needs a multiple of 16", value * dtype.size()));
            }
        }
        let most = 1u64 << 40;
        for (matrix, elements) in [("gathered A", u64::from(world) * self.a()), ("B", self.b()), ("C", self.c(world))] {
            if elements > most {
                return Err(format!("{matrix} of {elements} elements: at most {most}"));
            }
        }
        if world == 0 || world as usize > crate::plan::MAX_WORLD {
            return Err(format!("world size {world}: 1 to {}", crate::plan::MAX_WORLD));
        }
        Ok(())
    }

    /// The plan of C = A x B on one rank, in `blocks` blocks, as many as the device has multiprocessors.
    ///
    /// # Errors
    /// As [`Product::check`].
    pub fn plan(&self, operands: &Operands, blocks: u32) -> Result<Plan, String> {
        self.check(1)?;
        let tile = Tile::best(self, 1, blocks);
        Ok(self.plan_with(operands, tile, blocks))
    }

    /// The same with tiles of this shape.
    pub fn plan_with(&self, operands: &Operands, tile: Tile, blocks: u32) -> Plan {
        let mut args = vec![Arg::TensorMap(self.map_of_a(&operands.a, 1))];
        args.extend(self.other_args(operands, tile, 1, 0));
        let launch = Launch {
            module: "matmul/matmul".into(),
            entry: self.entry("matmul", tile),
            build: Build::Release,
            grid: tile.grid(self, 1, blocks),
            block: THREADS,
            dynamic_shared: tile.shared_bytes(),
            waits_for_peers: false,
            args,
        };
        Plan { name: self.name("matmul", 1), ranks: vec![vec![Op::Launch(launch)]] }
    }

    /// A as `parts` matrices below each other.
    fn map_of_a(&self, region: &Region, parts: u32) -> TensorMap {
        let extents = vec![self.depth, self.rows, u64::from(parts)];
        TensorMap { region: region.clone(), dtype: self.dtype, extents, tile: vec![DEPTH, Tile::ROWS, 1], swizzle: 128 }
    }

    /// What kernels take after A: B, C, the raster and the number of stages of a tile.
    fn other_args(&self, operands: &Operands, tile: Tile, world: u32, first: u32) -> Vec<Arg> {
        let (b_extents, b_tile) = match self.layout {
            Layout::Nk => (vec![self.depth, self.columns], vec![DEPTH, tile.columns / tile.cluster]),
            Layout::Kn => (vec![self.columns, self.depth], vec![64, DEPTH / tile.cluster]),
        };
        let c_extents = vec![self.columns, self.rows, u64::from(world)];
        let (dtype, c_columns) = (self.dtype, tile.box_columns());
        let b = TensorMap { region: operands.b.clone(), dtype, extents: b_extents, tile: b_tile, swizzle: 128 };
        let c = TensorMap { region: operands.c.clone(), dtype, extents: c_extents, tile: vec![c_columns, 64, 1], swizzle: 2 * c_columns };
        let (rows, columns) = tile.counts(self);
        let group = GROUP / tile.cluster;
        let raster = [world, first, rows as u32, columns as u32, group].map(Arg::U32).to_vec();
        vec![Arg::TensorMap(b), Arg::TensorMap(c), Arg::Struct(raster), Arg::U32(self.depth.div_ceil(u64::from(DEPTH)) as u32)]
    }

    fn entry(&self, module: &str, tile: Tile) -> String {
        let layout = match self.layout {
            Layout::Nk => "nk",
            Layout::Kn => "kn",
        };
        format!("{module}_{}_{layout}_{}x{}", self.dtype, tile.columns, tile.cluster)
    }

    fn name(&self, algorithm: &str, world: u32) -> String {
        let Product { dtype, rows, columns, depth, .. } = self;
        format!("{algorithm} {dtype} w={world} {rows}x{columns}x{depth}")
    }
}

/// Threads of a block: `MATMUL_THREADS` of kernels/matmul/matmul.cuh.
const THREADS: u32 = 384;
/// Terms of a sum that a stage holds: `Tile::K` there.
const DEPTH: u32 = 64;
/// Rows of tiles that are gone through together, so that what runs at a time finds A and B in the L2.
const GROUP: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn product(rows: u64, columns: u64, depth: u64) -> Product {
        Product { dtype: DType::BF16, rows, columns, depth, layout: Layout::Nk }
    }

    #[rstest]
    #[case(product(0, 8, 8), "rows = 0: 1 to 16777216")]
    #[case(product(1, 12, 8), "columns = 12: rows of 24 bytes, TMA needs a multiple of 16")]
    #[case(product(1, 8, 4), "depth = 4: rows of 8 bytes, TMA needs a multiple of 16")]
    #[case(product(1 << 20, 1 << 20, 8), "C of 2199023255552 elements: at most 1099511627776")]
    #[case(Product { dtype: DType::F32, ..product(1, 8, 8) }, "dtype f32: products have bf16 and f16")]
    fn what_cannot_be_addressed_is_refused(#[case] product: Product, #[case] why: &str) {
        assert_eq!(product.check(2), Err(why.into()));
    }

    #[test]
    fn a_plan_speaks_of_regions() {
        let product = Product { layout: Layout::Kn, ..product(300, 1000, 520) };
        let region = |name: &str, elements: u64| Region::new(name, 0, 2 * elements);
        let operands = Operands { a: region("a", product.a()), b: region("b", product.b()), c: region("c", product.c(1)) };
        insta::assert_snapshot!(product.plan(&operands, 132).unwrap());
    }
}
