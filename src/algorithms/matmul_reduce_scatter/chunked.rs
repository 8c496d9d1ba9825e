//! `matmul_reduce_scatter/chunked`: a product of the library for each rank's rows, which copy engines bring to their rank while the next is made.

use super::{call, plan_name, products, supports};
use crate::{
    algorithms::{
        all_reduce,
        copy_engine::{announce, gather, hear, part, peers, tell, words},
        matmul::{TensorParallel, library_workspace},
    },
    collective::Product,
    contract::Contract,
    plan::{BufferSpec, MatmulCall, Op, Operands, Plan, Role},
};

/// The peers' rows first, the own ones last; then the own rows of all ranks' products are added in rank order, in f32, and rounded once.
///
/// - ready: peer's stream, in order -> our wait. It has added what its slots held.
/// - brought: our copy, our word -> peer's wait. Its slot holds our product of its rows.
///
/// Products alternate between the plan's stream and a side stream, each with its copy behind it, so that one stream multiplies while the other copies.
pub struct Chunked;

const NAME: &str = "chunked";
/// Meetings.
const READY: u64 = 0;
const BROUGHT: u64 = 1;
/// The side stream.
const SIDE: usize = 1;
/// Streams, with the plan's own.
const LANES: u64 = 2;

/// What peers bring: a slot for each rank.
fn slots(product: &Product, world: u32) -> BufferSpec {
    BufferSpec::new(format!("{NAME}.slots"), product.c(world) * product.dtype.size(), Role::Data)
}

impl TensorParallel for Chunked {
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
        vec![words(NAME, 2), slots(product, world), products(NAME, product, world, true), library_workspace(NAME, LANES)]
    }

    fn plan(&self, product: &Product, operands: &Operands, world: u32, _: u32) -> Plan {
        let products = products(NAME, product, world, true).whole();
        let slots = slots(product, world).whole();
        let library = library_workspace(NAME, LANES).whole();
        let call = call(product, products.clone(), &operands.c, world).expect("it is supported");
        let multiply = |of: u32, lane: usize| {
            let operands = Operands { a: part(&operands.a, of, world), b: operands.b.clone(), c: part(&products, of, world) };
            Op::Matmul(MatmulCall {
                product: *product,
                operands,
                workspace: part(&library, lane as u32, LANES as u32),
                multiprocessors: None,
            })
        };
        Plan::per_rank(plan_name(NAME, product, world), world, |rank| {
            // The side goes first, for a fork is enqueued before what goes on beside it.
            let mut lanes = [Vec::new(), Vec::new()];
            for (n, peer) in peers(rank, world).enumerate() {
                let lane = n % 2;
                lanes[lane].push(multiply(peer, lane));
                lanes[lane].extend(hear(NAME, READY, peer));
                lanes[lane].push(Op::Copy { from: part(&products, peer, world), to: part(&slots, rank, world), to_rank: Some(peer) });
                lanes[lane].push(tell(NAME, BROUGHT, rank, peer));
            }
            let own = (world - 1) as usize % 2;
            lanes[own].push(multiply(rank, own));
            let [side, beside] = lanes;
            let input = |from| part(if from == rank { &products } else { &slots }, from, world);
            let mut ops: Vec<Op> = announce(NAME, READY, rank, world).collect();
            ops.push(Op::Fork { stream: SIDE, ops: side });
            ops.extend(beside);
            ops.push(Op::Join { stream: SIDE });
            ops.extend(gather(NAME, BROUGHT, rank, world));
            ops.push(all_reduce::copy_engine::reduce(&call, (0..world).map(input), operands.c.clone()));
            ops
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
    fn a_plan_begins_with_the_peers_rows_and_adds_in_rank_order() {
        let product = Product { dtype: DType::BF16, rows: 100, columns: 1000, depth: 520, layout: Layout::Nk };
        let region = |name: &str, elements: u64| Region::new(name, 0, 2 * elements);
        let operands = Operands { a: region("a", 3 * product.a()), b: region("b", product.b()), c: region("c", product.c(1)) };
        let sizes: Vec<String> =
            Chunked.workspace(&product, 3, 132).iter().map(|buffer| format!("{}: {}", buffer.name, buffer.bytes)).collect();
        insta::assert_snapshot!(format!("{}\n{}", Chunked.plan(&product, &operands, 3, 132), sizes.join("\n")));
    }
}
