//! Product and reduce-scatter in one kernel. See kernels/matmul_reduce_scatter/fused.cu.

use super::{BROUGHT, READY, plan_name, slots, supports};
use crate::{
    algorithms::{
        copy_engine::{announce, gather, part, peers, set_back, words, words_of},
        matmul::{THREADS, TensorParallel, Tile, entry_of, map_of_a, map_of_c, other_args, synchronisation},
        sync_argument_of,
    },
    collective::Product,
    contract::Contract,
    plan::{Arg, BufferSpec, Build, Launch, MAX_WORLD, Op, Operands, Plan, Role, TensorMap},
};

/// The peers' rows first, the own ones last, in tiles that go to their owner's slot by TMA when they are made: links are busy while products are made. The
/// own rows of all ranks' products are added in rank order, in f32, and rounded once, each tile by the block that made it.
///
/// Bit for bit what products of the same kernel come to that are added so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fused {
    tile: Option<Tile>,
}

const NAME: &str = "fused";

impl Fused {
    /// With the tiles that suit the product best.
    pub const BEST: Fused = Fused { tile: None };

    /// The same with tiles of this shape.
    pub fn with_tile(self, tile: Tile) -> Fused {
        Fused { tile: Some(tile) }
    }
}

impl TensorParallel for Fused {
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
        buffers.extend([words(NAME, 2), slots(NAME, product, world), counts()]);
        buffers
    }

    fn equals_plain(&self) -> bool {
        true
    }

    fn tiled(&self, tile: Tile) -> Option<Box<dyn TensorParallel>> {
        Some(Box::new(self.with_tile(tile)))
    }

    fn plan(&self, product: &Product, operands: &Operands, world: u32, blocks: u32) -> Plan {
        let slots = slots(NAME, product, world).whole();
        let tile = self.tile.unwrap_or_else(|| Tile::best(product, world, blocks));
        Plan::per_rank(plan_name(NAME, product, world), world, |rank| {
            // This rank's slot at each; one for each rank that a group may have.
            let slot = map_of_c(product, &part(&slots, rank, world), tile, 1);
            let target = |of: u32| TensorMap { of_rank: (of != rank && of < world).then_some(of), ..slot.clone() };
            let targets = (0..MAX_WORLD as u32).map(|of| Arg::TensorMap(target(of))).collect();
            let mut args = vec![Arg::TensorMap(map_of_a(product, &operands.a, world))];
            // The order starts behind the own rows, which come last.
            args.extend(other_args(product, &operands.b, Arg::Struct(targets), tile, world, (rank + 1) % world));
            args.extend([
                Arg::Address(slots.clone()),
                Arg::Address(operands.c.clone()),
                Arg::U64(product.rows),
                Arg::U64(product.columns),
                Arg::Address(counts().whole()),
                Arg::Peers(words_of(NAME, BROUGHT)),
                sync_argument_of(&synchronisation(NAME, blocks), rank, world),
            ]);
            let launch = Op::Launch(Launch {
                module: "matmul_reduce_scatter/fused".into(),
                entry: entry_of(product, "matmul_reduce_scatter_fused", tile),
                build: Build::Release,
                grid: tile.grid(product, world, blocks).into(),
                block: THREADS.into(),
                cluster: None,
                dynamic_shared: tile.shared_bytes(),
                waits_for_peers: true,
                programmatic: false,
                args,
            });
            let mut ops: Vec<Op> = announce(NAME, READY, rank, world).chain(gather(NAME, READY, rank, world)).collect();
            ops.push(launch);
            // All had come when the kernel ended.
            ops.extend(peers(rank, world).map(|peer| set_back(NAME, BROUGHT, peer)));
            ops
        })
    }
}

/// For each rank, tiles of its rows that were stored.
fn counts() -> BufferSpec {
    BufferSpec { local: true, ..BufferSpec::new(format!("{NAME}.counts"), MAX_WORLD as u64 * 4, Role::State) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        collective::{DType, Layout},
        plan::Region,
    };

    #[test]
    fn products_go_to_the_peers_slots() {
        let product = Product { dtype: DType::F16, rows: 300, columns: 1000, depth: 520, layout: Layout::Kn };
        let region = |name: &str, elements: u64| Region::new(name, 0, 2 * elements);
        let operands = Operands { a: region("a", 2 * product.a()), b: region("b", product.b()), c: region("c", product.c(1)) };
        let plan = Fused::BEST.plan(&product, &operands, 2, 132);
        let sizes: Vec<String> =
            Fused::BEST.workspace(&product, 2, 132).iter().map(|buffer| format!("{}: {}", buffer.name, buffer.bytes)).collect();
        insta::assert_snapshot!(format!("{plan}\n{}", sizes.join("\n")));
    }
}
