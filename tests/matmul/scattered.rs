//! Products whose sums over ranks are scattered.

use std::sync::Arc;

use half::{bf16, f16};
use passmuster::{
    algorithms::{
        matmul::{TensorParallel, Tile},
        matmul_reduce_scatter::{self, Fused},
    },
    collective::{Collective, DType, Element, Product, ReduceOp, Roundings, Shape},
    conformance::{InputClass, oracle},
    contract::{Contract, Order},
    cuda::{CudaMachine, CudaOptions},
    machine::Machine,
    plan::{BufferSpec, Operands, Plan, Region, Role, Step},
};

use super::{BLOCKS, Numbers, alone, draw, enqueue, exact, multiply, products, replayed, round, value};

/// A group with the operands of a scattered product and what its algorithm needs, B written, and the plan.
struct Scattered<'a> {
    algorithm: &'a dyn TensorParallel,
    product: Product,
    world: u32,
    group: usize,
    operands: Operands,
    plan: Arc<Plan>,
    b: Vec<Vec<f64>>,
}

/// Buffers of the operands: A has the rows of all of C, C those of one rank.
fn buffers(product: &Product, world: u32) -> [BufferSpec; 3] {
    [("a", u64::from(world) * product.a()), ("b", product.b()), ("c", product.c(1))]
        .map(|(name, elements)| BufferSpec::new(name, elements * product.dtype.size(), Role::Data))
}

fn plan(algorithm: &dyn TensorParallel, product: &Product, world: u32) -> (Operands, Plan) {
    algorithm.supports(product, world, BLOCKS).unwrap();
    let [a, b, c] = buffers(product, world).map(|buffer| buffer.whole());
    let operands = Operands { a, b, c };
    (operands.clone(), algorithm.plan(product, &operands, world, BLOCKS))
}

impl Scattered<'_> {
    fn open<'a>(
        machine: &mut CudaMachine,
        algorithm: &'a dyn TensorParallel,
        product: &Product,
        world: u32,
        numbers: Numbers,
    ) -> Scattered<'a> {
        let workspace = algorithm.workspace(product, world, BLOCKS);
        let group = machine.open_group(world as usize, &[&buffers(product, world)[..], &workspace].concat()).unwrap();
        let (operands, plan) = plan(algorithm, product, world);
        let write = |rank: u32| {
            let (bytes, values) = draw(numbers, product.dtype, 1000 + u64::from(rank), product.b());
            machine.write(group, rank as usize, &operands.b, &bytes).unwrap();
            values
        };
        let b = (0..world).map(write).collect();
        Scattered { algorithm, product: *product, world, group, operands, plan: Arc::new(plan), b }
    }

    /// Fresh A on every rank, and NaN where products and sums will be; of each rank its product of all rows, with the sums of magnitudes.
    fn refresh(&self, machine: &mut CudaMachine, call: u64, numbers: Numbers) -> Vec<Vec<(f64, f64)>> {
        let of_data = |buffer: &BufferSpec| buffer.role == Role::Data && !buffer.name.ends_with(".library");
        let workspace = self.algorithm.workspace(&self.product, self.world, BLOCKS).into_iter().filter(of_data);
        let poisoned: Vec<_> = workspace.map(|buffer| buffer.whole()).chain([self.operands.c.clone()]).collect();
        let write = |rank: u32| {
            let seed = 1 + 17 * call + u64::from(rank);
            let (a, values) = draw(numbers, self.product.dtype, seed, u64::from(self.world) * self.product.a());
            machine.write(self.group, rank as usize, &self.operands.a, &a).unwrap();
            for region in &poisoned {
                machine.write(self.group, rank as usize, region, &vec![0xff; region.bytes as usize]).unwrap();
            }
            exact(&self.product, &values, &self.b[rank as usize])
        };
        (0..self.world).map(write).collect()
    }

    fn run(&self, machine: &mut CudaMachine, steps: Vec<Step>) {
        super::run(machine, self.group, &self.plan, steps);
    }

    /// Holds every rank's C against the products of all.
    fn judge(&self, machine: &mut CudaMachine, numbers: Numbers, products: &[Vec<(f64, f64)>], what: &str) {
        for rank in 0..self.world {
            let c = machine.read(self.group, rank as usize, &self.operands.c).unwrap();
            let elements = self.product.c(1) as usize;
            let of_rank = |product: &Vec<(f64, f64)>| product[rank as usize * elements..][..elements].to_vec();
            let products: Vec<Vec<(f64, f64)>> = products.iter().map(of_rank).collect();
            let what = format!("{} {what} rank {rank}", self.plan.name);
            match (numbers, self.product.dtype) {
                (Numbers::Fractions, _) => within_the_bound(&self.product, &products, &c, &what),
                (Numbers::Integers, DType::F16) => as_promised::<f16>(&self.contract(), &products, &c, &what),
                (Numbers::Integers, _) => as_promised::<bf16>(&self.contract(), &products, &c, &what),
            }
        }
    }

    /// The contract of the algorithm; of NCCL what holds on each of its paths, for this process was not started for one.
    fn contract(&self) -> Contract {
        let contract = self.algorithm.contract(&self.product, self.world);
        if self.algorithm.is_peer() { Contract { order: Order::Any, roundings: Roundings::PerHop, ..contract } } else { contract }
    }
}

/// Products of integers are exact before they are rounded: what they come to is the contract's.
fn as_promised<T: Element>(contract: &Contract, products: &[Vec<(f64, f64)>], got: &[u8], what: &str) {
    let oracle = oracle(contract, ReduceOp::Sum, T::DTYPE, InputClass::Natural);
    for (at, bytes) in got.chunks_exact(2).enumerate() {
        let inputs: Vec<T> = products.iter().map(|product| T::of_bits(round(T::DTYPE, product[at].0 as f32).0.into())).collect();
        let (got, expected) = (T::from_bytes(bytes), oracle.expect(&inputs));
        assert!(expected.accepts(got), "{what}: element {at} is {got:?}, of the ranks' products {inputs:?}: not {oracle}");
    }
}

/// Each product as in [`super::judge`], rounded; then sums in f32, and one rounding.
fn within_the_bound(product: &Product, products: &[Vec<(f64, f64)>], got: &[u8], what: &str) {
    let unit = if product.dtype == DType::BF16 { 2f64.powi(-8) } else { 2f64.powi(-11) };
    for (at, bytes) in got.chunks_exact(2).enumerate() {
        let got = value(product.dtype, u16::from_le_bytes([bytes[0], bytes[1]]));
        let (mut sum, mut off, mut size) = (0.0, 0.0, 0.0);
        for of_rank in products {
            let added = product.depth as f64 * 2f64.powi(-23) * of_rank[at].1;
            let product_off = added + unit * (of_rank[at].0.abs() + added) + 2f64.powi(-24);
            (sum, off, size) = (sum + of_rank[at].0, off + product_off, size + of_rank[at].0.abs() + product_off);
        }
        off += products.len() as f64 * 2f64.powi(-23) * size;
        let bound = off + unit * (sum.abs() + off) + 2f64.powi(-24);
        assert!((got - sum).abs() <= bound, "{what}: element {at} is {got}, exactly {sum}, at most {bound} away");
    }
}

/// As [`super::worlds`] has them.
fn worlds(machine: &CudaMachine, algorithm: &dyn TensorParallel) -> std::ops::RangeInclusive<u32> {
    1..=if alone(algorithm, &plan(algorithm, &products()[0], 2).1) { machine.info().gpus.min(4) as u32 } else { 4 }
}

pub(super) fn integers_are_exact_call_after_call() {
    let mut machine = CudaMachine::open(CudaOptions::default()).unwrap();
    let tiles = [Tile::ALL[0], Tile::ALL[2], Tile::ALL[4]].map(|tile| Fused::BEST.with_tile(tile));
    let fused = tiles.iter().map(|fused| fused as &dyn TensorParallel);
    for algorithm in matmul_reduce_scatter::all().iter().copied().chain(fused) {
        for product in products() {
            for world in worlds(&machine, algorithm) {
                let scattered = Scattered::open(&mut machine, algorithm, &product, world, Numbers::Integers);
                for call in 0..3 {
                    let of_ranks = scattered.refresh(&mut machine, call, Numbers::Integers);
                    let (group, plan) = (scattered.group, &scattered.plan);
                    let steps = match call {
                        0 => vec![enqueue(group, plan)],
                        1 => vec![enqueue(group, plan); 3],
                        _ => replayed(group, plan),
                    };
                    scattered.run(&mut machine, steps);
                    scattered.judge(&mut machine, Numbers::Integers, &of_ranks, &format!("call {call}"));
                }
                machine.close_groups();
            }
        }
    }
}

pub(super) fn fractions_keep_the_bound_of_a_sum() {
    let mut machine = CudaMachine::open(CudaOptions::default()).unwrap();
    for algorithm in matmul_reduce_scatter::all().iter().copied().filter(|algorithm| !algorithm.is_peer()) {
        for product in products() {
            let world = *worlds(&machine, algorithm).end();
            let scattered = Scattered::open(&mut machine, algorithm, &product, world, Numbers::Fractions);
            let of_ranks = scattered.refresh(&mut machine, 0, Numbers::Fractions);
            scattered.run(&mut machine, vec![enqueue(scattered.group, &scattered.plan)]);
            scattered.judge(&mut machine, Numbers::Fractions, &of_ranks, "fractions");
            machine.close_groups();
        }
    }
}

pub(super) fn integers_are_exact_whoever_is_late() {
    let mut machine = CudaMachine::open(CudaOptions::default()).unwrap();
    for algorithm in matmul_reduce_scatter::all().iter().copied().filter(|algorithm| !algorithm.is_peer()) {
        let world = *worlds(&machine, algorithm).end().min(&3);
        for product in products() {
            for late in 0..world as usize {
                let scattered = Scattered::open(&mut machine, algorithm, &product, world, Numbers::Integers);
                for call in 0..2 {
                    let of_ranks = scattered.refresh(&mut machine, call, Numbers::Integers);
                    let rank = (late + call as usize) % world as usize;
                    // The second call has everyone meet what the late rank has left behind.
                    let enqueued = enqueue(scattered.group, &scattered.plan);
                    scattered.run(&mut machine, vec![Step::Delay { rank, microseconds: 2000 }, enqueued.clone(), enqueued]);
                    scattered.judge(&mut machine, Numbers::Integers, &of_ranks, &format!("rank {rank} late"));
                }
                machine.close_groups();
            }
        }
    }
}

/// Products of the plain kernel, with other tiles, that are added in rank order.
pub(super) fn fused_equals_plain_to_the_bit_whoever_is_late() {
    let mut machine = CudaMachine::open(CudaOptions::default()).unwrap();
    let fused = Fused::BEST.with_tile(Tile::ALL[1]);
    for world in worlds(&machine, &fused) {
        for product in products() {
            let scattered = Scattered::open(&mut machine, &fused, &product, world, Numbers::Fractions);
            for call in 0..2 {
                scattered.refresh(&mut machine, call, Numbers::Fractions);
                let late = Step::Delay { rank: call as usize % world as usize, microseconds: 2000 };
                scattered.run(&mut machine, vec![late, enqueue(scattered.group, &scattered.plan)]);
            }
            let mut read = |region: &Region| -> Vec<Vec<u8>> {
                (0..world as usize).map(|rank| machine.read(scattered.group, rank, region).unwrap()).collect()
            };
            let [a, b, c] = [&scattered.operands.a, &scattered.operands.b, &scattered.operands.c].map(&mut read);
            machine.close_groups();
            let whole = product.gathered(world);
            let products: Vec<Vec<u8>> = a.iter().zip(&b).map(|(a, b)| multiply(&mut machine, &whole, Some(Tile::ALL[0]), a, b)).collect();
            let sums = Shape::new(Collective::ReduceScatter, world, product.c(1)).results(product.dtype, ReduceOp::Sum, &products);
            for (rank, (c, sum)) in c.iter().zip(&sums).enumerate() {
                assert!(c == sum, "{}: rank {rank} differs from the sum of plain products", scattered.plan.name);
            }
        }
    }
}

/// If this fails, calls of two groups share words or memory.
pub(super) fn two_groups_at_once_keep_apart() {
    let mut machine = CudaMachine::open(CudaOptions::default()).unwrap();
    for name in ["chunked", "fused"] {
        let algorithm = matmul_reduce_scatter::find(name).unwrap();
        let world = *worlds(&machine, algorithm).end();
        let [first, second] =
            [products()[1], products()[3]].map(|product| Scattered::open(&mut machine, algorithm, &product, world, Numbers::Integers));
        let expected = [&first, &second].map(|scattered| scattered.refresh(&mut machine, 0, Numbers::Integers));
        let calls = [(&first, 0), (&second, 1), (&second, 1), (&first, 0)];
        let steps = calls.map(|(scattered, stream)| Step::Enqueue { group: scattered.group, stream, plan: scattered.plan.clone() });
        first.run(&mut machine, steps.to_vec());
        for (scattered, expected) in [&first, &second].into_iter().zip(expected) {
            scattered.judge(&mut machine, Numbers::Integers, &expected, "beside another group");
        }
        machine.close_groups();
    }
}
