//! Product and reduce-scatter in one kernel. See kernels/matmul_reduce_scatter/fused.cu.

use std::sync::Arc;

use super::{plan_name, products, slots, supports};
use crate::{
    copy_engine::part,
    matmul::{THREADS, Tile, entry_of, map_of_a, map_of_c, other_args, synchronisation},
};
use passmuster_plan::{
    algorithms::{TensorParallel, TensorParallelFusion, kit::sync_argument_of},
    collective::Product,
    contract::Contract,
    plan::{Arg, BufferSpec, Launch, Op, Operands, Plan, Role},
};

/// The peers' rows first, the own ones last. Warps that have nothing to do in the product pull what peers made of the own rows while it goes on.
///
/// Between two ranks they pull it into C, and TMA adds the own tiles to it, so that nothing is left to be added behind the product. Among more they pull it into slots,
/// and the own rows of all ranks' products are added in rank order, in f32, and rounded once, each tile by the block that made it.
///
/// Bit for bit what products of the same kernel come to that are added in rank order: two values of the type have one sum in either order, which f32 holds so
/// exactly that rounding it once more is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fused {
    tile: Option<Tile>,
}

const NAME: &str = "fused";

/// Ranks up to which C is where sums are made: `slot` of kernels/matmul_reduce_scatter/fused.cu.
const IN_PLACE: u32 = 2;

/// Bytes of shared memory behind what a product has: `mailboxes` there.
const MAILBOXES: u32 = 16;

impl Fused {
    /// With the tiles that suit the product best.
    pub const BEST: Fused = Fused { tile: None };

    /// The same with tiles of this shape.
    pub fn with_tile(self, tile: Tile) -> Fused {
        Fused { tile: Some(tile) }
    }

    fn tile(&self, product: &Product, world: u32, blocks: u32) -> Tile {
        self.tile.unwrap_or_else(|| Tile::best(product, world, blocks))
    }

    /// Halves of tiles, each made by one of a block's two consumers, of all ranks' products of one rank's rows.
    fn halves(&self, product: &Product, world: u32, blocks: u32) -> u64 {
        let tile = self.tile(product, world, blocks);
        let (rows, columns) = tile.counts(product);
        u64::from(world) * rows * columns * u64::from(tile.cluster) * 2
    }

    /// Words by which peers tell that a half is made.
    fn made(&self, product: &Product, world: u32, blocks: u32) -> BufferSpec {
        BufferSpec::new(format!("{NAME}.made"), 4 * self.halves(product, world, blocks), Role::Signals)
    }

    /// Pieces of each half that were pulled.
    fn pulled(&self, product: &Product, world: u32, blocks: u32) -> BufferSpec {
        BufferSpec { local: true, ..BufferSpec::new(format!("{NAME}.pulled"), 4 * self.halves(product, world, blocks), Role::State) }
    }
}

impl TensorParallel for Fused {
    fn half(&self) -> TensorParallelFusion {
        TensorParallelFusion::Scatter
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn supports(&self, product: &Product, world: u32, _: u32) -> Result<(), String> {
        supports(product, world)
    }

    fn contract(&self, _: &Product, _: u32) -> Contract {
        Contract::ORDERED
    }

    fn workspace(&self, product: &Product, world: u32, blocks: u32) -> Vec<BufferSpec> {
        let mut buffers = synchronisation(NAME, blocks);
        buffers.push(products(NAME, product, world, false));
        // Only this rank's kernel fills them.
        buffers.extend((world > IN_PLACE).then(|| BufferSpec { local: true, ..slots(NAME, product, world) }));
        buffers.extend([self.made(product, world, blocks), self.pulled(product, world, blocks)]);
        buffers
    }

    fn plain(&self, product: &Product, operands: &Operands, other_than: Option<u32>, blocks: u32) -> Option<Op> {
        Some(crate::matmul::plain(product, operands, other_than, blocks))
    }

    fn tiles(&self) -> Vec<u32> {
        Tile::widths()
    }

    fn tiled(&self, columns: u32) -> Option<Arc<dyn TensorParallel>> {
        Some(Arc::new(self.with_tile(Tile::of_width(columns)?)))
    }

    fn plan(&self, product: &Product, operands: &Operands, world: u32, blocks: u32) -> Plan {
        let tile = self.tile(product, world, blocks);
        let (products, slots) = (products(NAME, product, world, false).whole(), slots(NAME, product, world).whole());
        Plan::per_rank(plan_name(NAME, product, world), world, |rank| {
            // Where what is pulled goes, and the own tiles.
            let (pulled, own) = match world > IN_PLACE {
                true => (slots.clone(), part(&slots, rank, world)),
                false => (operands.c.clone(), operands.c.clone()),
            };
            let [made, own] = [(&products, world), (&own, 1)].map(|(region, parts)| Arg::TensorMap(map_of_c(product, region, tile, parts)));
            let mut args = vec![Arg::TensorMap(map_of_a(product, &operands.a, world))];
            // The order starts behind the own rows, which come last.
            let mut others = other_args(product, &operands.b, made, tile, world, (rank + 1) % world);
            others.insert(2, own);
            args.extend(others);
            args.extend([
                Arg::Address(pulled),
                Arg::Address(operands.c.clone()),
                Arg::U32(product.rows as u32),
                Arg::U32(product.columns as u32),
                Arg::Address(self.pulled(product, world, blocks).whole()),
                sync_argument_of(&synchronisation(NAME, blocks), rank, world),
                Arg::Peers(products.clone()),
                Arg::Peers(self.made(product, world, blocks).whole()),
            ]);
            vec![Op::Launch(Launch {
                module: "matmul_reduce_scatter/fused".into(),
                entry: entry_of(product, "matmul_reduce_scatter_fused", tile),
                grid: tile.grid(product, world, blocks).into(),
                block: THREADS.into(),
                cluster: None,
                dynamic_shared: tile.shared_bytes() + MAILBOXES,
                waits_for_peers: true,
                programmatic: false,
                registers: None,
                variables: Vec::new(),
                args,
            })]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use passmuster_plan::{
        collective::{DType, Layout},
        plan::Region,
    };

    #[test]
    fn peers_tiles_are_pulled_into_c() {
        let product = Product { dtype: DType::F16, rows: 300, columns: 1000, depth: 520, layout: Layout::Kn };
        let region = |name: &str, elements: u64| Region::new(name, 0, 2 * elements);
        let operands = Operands { a: region("a", 2 * product.a()), b: region("b", product.b()), c: region("c", product.c(1)) };
        let plan = Fused::BEST.plan(&product, &operands, 2, 132);
        let sizes: Vec<String> =
            Fused::BEST.workspace(&product, 2, 132).iter().map(|buffer| format!("{}: {}", buffer.name, buffer.bytes)).collect();
        insta::assert_snapshot!(format!("{plan}\n{}", sizes.join("\n")));
    }
}
