//! All-gather and product in one kernel. See kernels/all_gather_matmul/pull.cu.

use super::{THREADS, Tile};
use crate::{
    algorithms::{sync_argument_of, synchronisation_with},
    collective::Product,
    plan::{Arg, BufferSpec, Build, Launch, MAX_WORLD, Op, Operands, Plan, Role},
};

/// C = gather(A) x B: warps that have nothing to do in the product pull the peers' parts of A while it goes on with the own one.
///
/// Bit for bit the product of the gathered A, whatever arrives when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pull {
    product: Product,
    tile: Tile,
    world: u32,
    blocks: u32,
}

const NAME: &str = "pull";
/// Columns up to which the gather takes as long as the product: the rate of a product over that of a link, 700 TFLOP/s over 370 GB/s.
const BALANCED: u64 = 1900;

impl Pull {
    /// For `world` ranks with `blocks` blocks each, all of which must be resident at once: as many as the device has multiprocessors.
    ///
    /// # Errors
    /// As [`Product::check`]; fewer blocks than a cluster has.
    pub fn new(product: Product, world: u32, blocks: u32) -> Result<Pull, String> {
        product.check(world)?;
        // With so few columns the gather takes about as long as the product, whose end is what is left when the last rows came: the less
        // a tile is, the better they spread over the blocks.
        let tile = if product.columns <= BALANCED { Tile::NARROWEST } else { Tile::best(&product, world, blocks) };
        if blocks < tile.cluster {
            return Err(format!("blocks = {blocks}: a cluster has {}", tile.cluster));
        }
        Ok(Pull { product, tile, world, blocks: blocks / tile.cluster * tile.cluster })
    }

    /// The same with tiles of this shape.
    pub fn with_tile(self, tile: Tile) -> Pull {
        Pull { tile, ..self }
    }

    /// Buffers that it needs beside the operands. Their names start with `pull.`.
    pub fn workspace(&self) -> Vec<BufferSpec> {
        let local = |name: &str, bytes, role| BufferSpec { local: true, ..BufferSpec::new(format!("{NAME}.{name}"), bytes, role) };
        let mut buffers = self.synchronisation();
        buffers.push(local("gathered", u64::from(self.world) * self.product.a() * self.product.dtype.size(), Role::Data));
        buffers.push(local("counts", 4 * u64::from(self.world) * self.tile.counts(&self.product).0, Role::State));
        buffers.push(local("ended", 4, Role::State));
        buffers
    }

    fn synchronisation(&self) -> Vec<BufferSpec> {
        let blocks = u64::from(self.blocks);
        let mut buffers = synchronisation_with(NAME, blocks * MAX_WORLD as u64 * 4, blocks * 4);
        buffers
            .iter_mut()
            .filter(|buffer| buffer.role == Role::StuckReport)
            .for_each(|report| report.bytes = 64 + blocks * MAX_WORLD as u64 * 16);
        buffers
    }

    /// What all ranks do.
    pub fn plan(&self, operands: &Operands) -> Plan {
        let Pull { product, tile, world, blocks } = *self;
        let shard = product.a() * product.dtype.size();
        let row_of_tiles = u64::from(Tile::ROWS * tile.cluster) * product.depth * product.dtype.size();
        let workspace = self.workspace();
        let [gathered, counts, ended] = ["gathered", "counts", "ended"].map(|name| {
            let name = format!("{NAME}.{name}");
            workspace.iter().find(|buffer| buffer.name == name).expect("the workspace has it").whole()
        });
        Plan::per_rank(product.name("all_gather_matmul/pull", world), world, |rank| {
            let mut args = vec![Arg::TensorMap(product.map_of_a(&operands.a, 1)), Arg::TensorMap(product.map_of_a(&gathered, world))];
            args.extend(product.other_args(operands, tile, world, rank));
            args.extend([
                Arg::Peers(operands.a.clone()),
                Arg::Address(gathered.clone()),
                Arg::U64(shard),
                Arg::U64(row_of_tiles),
                Arg::Address(counts.clone()),
                Arg::Address(ended.clone()),
                sync_argument_of(&self.synchronisation(), rank, world),
            ]);
            vec![Op::Launch(Launch {
                module: "all_gather_matmul/pull".into(),
                entry: product.entry("all_gather_matmul_pull", tile),
                build: Build::Release,
                grid: blocks,
                block: THREADS,
                dynamic_shared: tile.shared_bytes(),
                waits_for_peers: true,
                args,
            })]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        collective::{DType, Layout},
        plan::Region,
    };

    #[test]
    fn a_plan_starts_at_the_own_part_and_has_a_workspace_for_all() {
        let product = Product { dtype: DType::BF16, rows: 300, columns: 4096, depth: 520, layout: Layout::Nk };
        let pull = Pull::new(product, 2, 131).unwrap();
        let region = |name: &str, elements: u64| Region::new(name, 0, 2 * elements);
        let operands = Operands { a: region("a", product.a()), b: region("b", product.b()), c: region("c", product.c(2)) };
        let sizes: Vec<String> = pull.workspace().iter().map(|buffer| format!("{}: {}", buffer.name, buffer.bytes)).collect();
        insta::assert_snapshot!(format!("{}\n{}", pull.plan(&operands), sizes.join("\n")));
    }

    #[test]
    fn a_cluster_needs_its_blocks() {
        let product = Product { dtype: DType::F16, rows: 1, columns: 8, depth: 8, layout: Layout::Kn };
        assert_eq!(Pull::new(product, 2, 1), Err("blocks = 1: a cluster has 2".into()));
        assert_eq!(Pull::new(product, 17, 2), Err("world size 17: 1 to 16".into()));
    }
}
