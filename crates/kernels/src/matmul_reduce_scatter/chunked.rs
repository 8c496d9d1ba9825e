//! `matmul_reduce_scatter/chunked`: a product of the library for each rank's rows, which copy engines bring to their rank while the next is made.

use super::{LANES, READY, call, in_parts, plan_name, products, slots, supports};
use crate::{
    all_reduce,
    copy_engine::{hear, part, words},
    matmul::library_workspace,
};
use passmuster_plan::{
    algorithms::{TensorParallel, TensorParallelFusion},
    collective::Product,
    contract::Contract,
    plan::{BufferSpec, MatmulCall, Op, Operands, Plan},
};

/// The peers' rows first, the own ones last, each part copied behind its product: one of the two streams multiplies while the other copies. The own rows
/// of all ranks' products are added in rank order, in f32, and rounded once.
pub struct Chunked;

const NAME: &str = "chunked";

impl TensorParallel for Chunked {
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

    fn workspace(&self, product: &Product, world: u32, _: u32) -> Vec<BufferSpec> {
        vec![words(NAME, 2), slots(NAME, product, world), products(NAME, product, world, true), library_workspace(NAME, LANES as u64)]
    }

    fn plan(&self, product: &Product, operands: &Operands, world: u32, _: u32) -> Plan {
        let products = products(NAME, product, world, true).whole();
        let slots = slots(NAME, product, world).whole();
        let library = library_workspace(NAME, LANES as u64).whole();
        let call = call(product, products.clone(), &operands.c, world).expect("it is supported");
        let multiply = |of: u32, lane: usize| {
            let operands = Operands { a: part(&operands.a, of, world), b: operands.b.clone(), c: part(&products, of, world) };
            Op::Matmul(MatmulCall { product: *product, operands, workspace: part(&library, lane as u32, LANES as u32), sms: None })
        };
        Plan::per_rank(plan_name(NAME, product, world), world, |rank| {
            let bring = |peer, lane| {
                let mut ops = vec![multiply(peer, lane)];
                ops.extend(hear(NAME, READY, peer));
                ops.push(Op::Copy { from: part(&products, peer, world), to: part(&slots, rank, world), to_rank: Some(peer) });
                ops
            };
            let input = |from| part(if from == rank { &products } else { &slots }, from, world);
            let add = all_reduce::copy_engine::reduce(&call, (0..world).map(input), operands.c.clone());
            in_parts(NAME, (rank, world), bring, |lane| multiply(rank, lane), add)
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
    fn a_plan_begins_with_the_peers_rows_and_adds_in_rank_order() {
        let product = Product { dtype: DType::BF16, rows: 100, columns: 1000, depth: 520, layout: Layout::Nk };
        let region = |name: &str, elements: u64| Region::new(name, 0, 2 * elements);
        let operands = Operands { a: region("a", 3 * product.a()), b: region("b", product.b()), c: region("c", product.c(1)) };
        let sizes: Vec<String> =
            Chunked.workspace(&product, 3, 132).iter().map(|buffer| format!("{}: {}", buffer.name, buffer.bytes)).collect();
        insta::assert_snapshot!(format!("{}\n{}", Chunked.plan(&product, &operands, 3, 132), sizes.join("\n")));
    }
}
