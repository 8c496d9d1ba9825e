//! `all_gather_matmul/chunked`: a product of the library for each rank's part of A, when that has come.
//!
//! Copies go on at a side stream. Products alternate between the plan's stream and another side, so that the last blocks of one do not leave the
//! device empty before the next.

use super::{ARRIVED, arrivals, copies, gathered, plan_name, words};
use crate::{
    copy_engine::{self, part},
    matmul::{self, library_workspace},
};
use passmuster_plan::{
    algorithms::{TensorParallel, TensorParallelFusion},
    collective::Product,
    contract::Contract,
    plan::{BufferSpec, MatmulCall, Op, Operands, Plan, Region},
};

/// The own part is multiplied at once, then the peers' in the order of their arrival.
pub struct Chunked;

const NAME: &str = "chunked";
/// Side streams.
const COPIES: usize = 1;
const PRODUCTS: usize = 2;

impl TensorParallel for Chunked {
    fn half(&self) -> TensorParallelFusion {
        TensorParallelFusion::Gather
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn supports(&self, product: &Product, world: u32, _: u32) -> Result<(), String> {
        matmul::supports(product, world)
    }

    fn contract(&self, _: &Product, _: u32) -> Contract {
        Contract::COPIED
    }

    fn workspace(&self, product: &Product, world: u32, _: u32) -> Vec<BufferSpec> {
        vec![words(NAME), gathered(NAME, product, world, false), library_workspace(NAME, 2)]
    }

    fn plan(&self, product: &Product, operands: &Operands, world: u32, _: u32) -> Plan {
        let gathered = gathered(NAME, product, world, false).whole();
        let library = library_workspace(NAME, 2).whole();
        // `lane` is 0 on the plan's stream and 1 at its side.
        let multiply = |a: Region, rank: u32, lane: u32| {
            let operands = Operands { a, b: operands.b.clone(), c: part(&operands.c, rank, world) };
            Op::Matmul(MatmulCall { product: *product, operands, workspace: part(&library, lane, 2), sms: None })
        };
        Plan::per_rank(plan_name(NAME, product, world), world, |rank| {
            let mut lanes = [vec![multiply(operands.a.clone(), rank, 0)], Vec::new()];
            for (n, peer) in arrivals(rank, world).enumerate() {
                let lane = (n + 1) % 2;
                lanes[lane].extend(copy_engine::hear(NAME, ARRIVED, peer));
                lanes[lane].push(multiply(part(&gathered, peer, world), peer, lane as u32));
            }
            let [own, beside] = lanes;
            // Forks first, for they wait for all that is enqueued before them.
            let sides = [(COPIES, copies(NAME, &operands.a, &gathered, rank, world)), (PRODUCTS, beside)];
            let sides = sides.into_iter().filter(|(_, ops)| !ops.is_empty());
            let (forks, joins): (Vec<Op>, Vec<Op>) = sides.map(|(stream, ops)| (Op::Fork { stream, ops }, Op::Join { stream })).unzip();
            forks.into_iter().chain(own).chain(joins).collect()
        })
    }
}
