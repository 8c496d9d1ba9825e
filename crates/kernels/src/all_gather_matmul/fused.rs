//! All-gather and product in one kernel. See kernels/all_gather_matmul/fused.cu.

use std::sync::Arc;

use super::{ARRIVED, copies, gathered, plan_name, words};
use crate::{
    copy_engine,
    matmul::{self, THREADS, Tile, entry_of, map_of_a, map_of_c, other_args, synchronisation},
};
use passmuster_plan::{
    algorithms::{TensorParallel, TensorParallelFusion, kit::sync_argument_of},
    collective::Product,
    contract::Contract,
    plan::{Arg, BufferSpec, Launch, Op, Operands, Plan, Region, Role},
};

/// C = gather(A) x B: the product starts with the own part of A and goes on with the peers' as they come.
///
/// Bit for bit the product of the gathered A, whatever arrives when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fused {
    name: &'static str,
    /// Who brings the parts: warps of the kernel, or else copy engines.
    pulls: bool,
    tile: Option<Tile>,
}

/// Columns up to which the gather takes as long as the product: the rate of a product over that of a link, 700 TFLOP/s over 370 GB/s.
const BALANCED: u64 = 1900;

/// Bytes of a slice of a row of A.
pub(crate) const SLICE_BYTES: u64 = 2048;

/// Side stream of the copies.
pub(super) const COPIES: usize = 1;

/// Bytes of a row of A.
fn row_bytes(product: &Product) -> u64 {
    product.depth * product.dtype.size()
}

impl Fused {
    /// Warps that have nothing to do in the product pull the peers' parts.
    pub const PULL: Fused = Fused { name: "pull", pulls: true, tile: None };
    /// Copy engines push the parts to the peers, whose kernels wait for the words that streams write behind them.
    pub const COPY_ENGINE: Fused = Fused { name: "fused", pulls: false, tile: None };

    /// The same with tiles of this shape instead of those that suit the product best.
    pub fn with_tile(self, tile: Tile) -> Fused {
        Fused { tile: Some(tile), ..self }
    }

    fn tile(&self, product: &Product, world: u32, blocks: u32) -> Tile {
        self.tile.unwrap_or_else(|| {
            // With so few columns the gather takes about as long as the product. Where parts come whole, its end is what is left when the last one came: the
            // less a tile is, the better they spread over the blocks.
            if product.columns <= BALANCED && !self.pulls { Tile::NARROWEST } else { Tile::best(product, world, blocks) }
        })
    }

    fn local(&self, name: &str, bytes: u64) -> BufferSpec {
        BufferSpec { local: true, ..BufferSpec::new(format!("{}.{name}", self.name), bytes, Role::State) }
    }

    /// Pieces that came, for each slice of each row of tiles.
    fn counts(&self, product: &Product, world: u32, blocks: u32) -> BufferSpec {
        let (rows, _) = self.tile(product, world, blocks).counts(product);
        self.local("counts", 4 * u64::from(world) * rows * row_bytes(product).div_ceil(SLICE_BYTES))
    }

    /// Blocks that ended.
    fn ended(&self) -> BufferSpec {
        self.local("ended", 4)
    }

    /// The kernel of a rank among `world`, which finds the peers' parts in `gathered`.
    pub(super) fn launch(&self, product: &Product, operands: &Operands, gathered: &Region, (rank, world): (u32, u32), blocks: u32) -> Op {
        let tile = self.tile(product, world, blocks);
        let part_bytes = product.a() * product.dtype.size();
        // What the kernel counts, and bytes of a row, which it looks at only where it pulls.
        let (counts, row_bytes) = match self.pulls {
            true => (self.counts(product, world, blocks).whole(), row_bytes(product)),
            false => (copy_engine::words_of(self.name, ARRIVED), 0),
        };
        let mut args = vec![Arg::TensorMap(map_of_a(product, &operands.a, 1)), Arg::TensorMap(map_of_a(product, gathered, world))];
        let c = Arg::TensorMap(map_of_c(product, &operands.c, tile, world));
        args.extend(other_args(product, &operands.b, c, tile, world, rank));
        args.extend([
            Arg::Address(gathered.clone()),
            Arg::U64(part_bytes),
            Arg::U64(row_bytes),
            Arg::Address(counts),
            Arg::Address(self.ended().whole()),
            sync_argument_of(&synchronisation(self.name, blocks), rank, world),
            Arg::Peers(operands.a.clone()),
        ]);
        Op::Launch(Launch {
            module: "all_gather_matmul/fused".into(),
            entry: entry_of(product, "all_gather_matmul_fused", tile),
            grid: (blocks / tile.cluster * tile.cluster).into(),
            block: THREADS.into(),
            cluster: None,
            dynamic_shared: tile.shared_bytes(),
            // Copy engines ask for no block.
            waits_for_peers: self.pulls,
            programmatic: false,
            registers: None,
            variables: Vec::new(),
            args,
        })
    }
}

impl TensorParallel for Fused {
    fn half(&self) -> TensorParallelFusion {
        TensorParallelFusion::Gather
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn supports(&self, product: &Product, world: u32, blocks: u32) -> Result<(), String> {
        matmul::supports(product, world)?;
        let tile = self.tile(product, world, blocks);
        if blocks < tile.cluster {
            return Err(format!("blocks = {blocks}: a cluster has {}", tile.cluster));
        }
        Ok(())
    }

    fn contract(&self, _: &Product, _: u32) -> Contract {
        Contract::COPIED
    }

    fn workspace(&self, product: &Product, world: u32, blocks: u32) -> Vec<BufferSpec> {
        // The kernel that waits for words uses but the report.
        let mut buffers = synchronisation(self.name, blocks);
        buffers.extend([gathered(self.name, product, world, self.pulls), self.ended()]);
        buffers.push(if self.pulls { self.counts(product, world, blocks) } else { words(self.name) });
        buffers
    }

    fn plain(&self, product: &Product, operands: &Operands, other_than: Option<u32>, blocks: u32) -> Option<Op> {
        Some(matmul::plain(product, operands, other_than, blocks))
    }

    fn tiles(&self) -> Vec<u32> {
        Tile::widths()
    }

    fn tiled(&self, columns: u32) -> Option<Arc<dyn TensorParallel>> {
        Some(Arc::new(self.with_tile(Tile::of_width(columns)?)))
    }

    fn plan(&self, product: &Product, operands: &Operands, world: u32, blocks: u32) -> Plan {
        let gathered = gathered(self.name, product, world, self.pulls).whole();
        Plan::per_rank(plan_name(self.name, product, world), world, |rank| {
            let launch = self.launch(product, operands, &gathered, (rank, world), blocks);
            if self.pulls || world == 1 {
                return vec![launch];
            }
            let mut ops = vec![Op::Fork { stream: COPIES, ops: copies(self.name, &operands.a, &gathered, rank, world) }, launch];
            // All had come when the kernel ended.
            ops.extend(copy_engine::peers(rank, world).map(|peer| copy_engine::set_back(self.name, ARRIVED, peer)));
            ops.push(Op::Join { stream: COPIES });
            ops
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use passmuster_plan::collective::{DType, Layout};
    use rstest::rstest;

    #[rstest]
    #[case(Fused::PULL)]
    #[case(Fused::COPY_ENGINE)]
    fn a_plan_starts_at_the_own_part_and_has_a_workspace_for_all(#[case] fused: Fused) {
        let product = Product { dtype: DType::BF16, rows: 300, columns: 4096, depth: 520, layout: Layout::Nk };
        let region = |name: &str, elements: u64| Region::new(name, 0, 2 * elements);
        let operands = Operands { a: region("a", product.a()), b: region("b", product.b()), c: region("c", product.c(2)) };
        let sizes: Vec<String> =
            fused.workspace(&product, 2, 131).iter().map(|buffer| format!("{}: {}", buffer.name, buffer.bytes)).collect();
        insta::assert_snapshot!(fused.name, format!("{}\n{}", fused.plan(&product, &operands, 2, 131), sizes.join("\n")));
    }

    #[test]
    fn a_cluster_needs_its_blocks() {
        let product = Product { dtype: DType::F16, rows: 1, columns: 8, depth: 8, layout: Layout::Kn };
        assert_eq!(Fused::PULL.supports(&product, 2, 1), Err("blocks = 1: a cluster has 2".into()));
        assert_eq!(Fused::PULL.supports(&product, 17, 2), Err("world size 17: 1 to 16".into()));
    }
}
