//! `matmul_reduce_scatter/fused`: products that are stored where they are added. The kernel is that of plain products, kernels/matmul/matmul.cuh.

use super::{READY, call, in_parts, plan_name, slots, supports};
use crate::{
    algorithms::{
        all_reduce,
        copy_engine::{hear, part, words},
        matmul::{TensorParallel, Tile, multiply_to},
    },
    collective::Product,
    contract::Contract,
    plan::{BufferSpec, Operands, Plan},
};

/// The peers' rows first, the own ones last, in parts whose tiles go to their owner's slot by TMA when they are made: nothing is copied, and links are busy
/// while products are. The own rows of all ranks' products are added in rank order, in f32, and rounded once.
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

    fn workspace(&self, product: &Product, world: u32, _: u32) -> Vec<BufferSpec> {
        vec![words(NAME, 2), slots(NAME, product, world)]
    }

    fn equals_plain(&self) -> bool {
        true
    }

    fn tiled(&self, tile: Tile) -> Option<Box<dyn TensorParallel>> {
        Some(Box::new(self.with_tile(tile)))
    }

    fn plan(&self, product: &Product, operands: &Operands, world: u32, blocks: u32) -> Plan {
        let slots = slots(NAME, product, world).whole();
        let call = call(product, slots.clone(), &operands.c, world).expect("it is supported");
        // One part goes on where another leaves blocks idle: it is as if all were one product.
        let tile = self.tile.unwrap_or_else(|| Tile::best(product, world, blocks));
        Plan::per_rank(plan_name(NAME, product, world), world, |rank| {
            let multiply = |of: u32| {
                let operands = Operands { a: part(&operands.a, of, world), b: operands.b.clone(), c: part(&slots, rank, world) };
                multiply_to(product, &operands, (of != rank).then_some(of), tile, blocks)
            };
            let bring = |peer, _| hear(NAME, READY, peer).into_iter().chain([multiply(peer)]).collect();
            let add = all_reduce::copy_engine::reduce(&call, (0..world).map(|from| part(&slots, from, world)), operands.c.clone());
            in_parts(NAME, (rank, world), bring, |_| multiply(rank), add)
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
