//! Tiles of a product: which shapes the kernels have, and which fits a product best.

use passmuster_plan::collective::Product;

/// What one block computes at a time: 128 rows of C by `columns` columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Columns.
    pub columns: u32,
    /// Blocks of a cluster, whose tiles lie below each other: they load B together.
    pub cluster: u32,
}

impl Tile {
    /// Rows of a tile.
    pub const ROWS: u32 = 128;

    /// Every tile that the kernels have.
    pub const ALL: [Tile; 5] = [Tile::of(256), Tile::of(224), Tile::of(208), Tile::of(192), Tile::of(128)];

    /// Columns of each.
    pub(crate) fn widths() -> Vec<u32> {
        Tile::ALL.map(|tile| tile.columns).into()
    }

    /// The tile with this number of columns.
    pub(crate) fn of_width(columns: u32) -> Option<Tile> {
        Tile::ALL.into_iter().find(|tile| tile.columns == columns)
    }

    /// The one with the fewest columns.
    pub const NARROWEST: Tile = Tile::of(128);

    const fn of(columns: u32) -> Tile {
        Tile { columns, cluster: 2 }
    }

    /// Columns that take as long as what a tile costs besides: 8 waves of 128 columns take 1.08 times as long as 4 of 256, 16 of them 1.12 times as long as 8
    /// (H100). With 15 the choice is the one that was measured at all shapes below.
    const OVERHEAD: u32 = 15;

    /// The tile that keeps `blocks` blocks busiest: the fewest columns of tiles after each other, each with what it costs besides; the widest of those that have
    /// as few, which loads least.
    pub fn best(product: &Product, world: u32, blocks: u32) -> Tile {
        let after_each_other = |tile: &Tile| {
            let (rows, columns) = tile.counts(product);
            let at_once = u64::from((blocks / tile.cluster).max(1));
            (u64::from(world) * rows * columns).div_ceil(at_once) * u64::from(tile.columns + Tile::OVERHEAD)
        };
        Tile::ALL.into_iter().min_by_key(after_each_other).expect("there are tiles")
    }

    /// Rows and columns of tiles of one rank's part of C, a row being as high as a cluster.
    pub(crate) fn counts(self, product: &Product) -> (u64, u64) {
        (product.rows.div_ceil(u64::from(Tile::ROWS * self.cluster)), product.columns.div_ceil(u64::from(self.columns)))
    }

    /// Blocks of a launch: no more than there are tiles.
    pub(crate) fn grid(self, product: &Product, world: u32, blocks: u32) -> u32 {
        let (rows, columns) = self.counts(product);
        let clusters = u64::from((blocks / self.cluster).max(1)).min(u64::from(world) * rows * columns);
        clusters as u32 * self.cluster
    }

    /// Columns of one box of C: `Tile::COLUMNS` of kernels/matmul/matmul.cuh.
    pub(crate) fn box_columns(self) -> u32 {
        [64, 32].into_iter().find(|&columns| self.columns.is_multiple_of(columns)).unwrap_or(16)
    }

    /// Bytes of shared memory of a block: `Tile::SHARED_BYTES` there.
    pub(crate) fn shared_bytes(self) -> u32 {
        let stages = if self.columns <= 128 { 6 } else { 4 };
        224 * 1024 + 2 * stages * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use passmuster_plan::collective::{DType, Layout};
    use rstest::rstest;

    /// What was the fastest of all on an H200 with its 132 SMs, or within the noise of it.
    #[rstest]
    #[case(4096, 1792, 224)]
    #[case(8192, 1792, 224)]
    #[case(16384, 1792, 256)]
    #[case(4096, 3584, 224)]
    #[case(8192, 3584, 256)]
    #[case(4096, 6656, 208)]
    #[case(8192, 6656, 192)]
    #[case(16384, 6656, 192)]
    #[case(128, 8, 128)]
    // 125 waves of the narrowest are fewer columns than 63 of the widest (docs/performance/experiments.md).
    #[case(16384, 16384, 256)]
    fn the_last_wave_decides(#[case] rows: u64, #[case] columns: u64, #[case] width: u32) {
        let product = Product { dtype: DType::BF16, rows, columns, depth: 4096, layout: Layout::Nk };
        assert_eq!(Tile::best(&product, 1, 132).columns, width);
    }
}
