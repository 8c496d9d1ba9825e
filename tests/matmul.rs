//! Products of matrices on real GPUs, plain, with the all-gather of A and with the reduce-scatter of C: small integers to the bit, random numbers to
//! the bound of a sum, and fused ones to the bit of the plain one, whatever is late.
//!
//! Without a GPU these are ignored, and their names say so. Ranks share one GPU, each with a part of its multiprocessors, where there are
//! fewer GPUs than ranks.

#[path = "matmul/scattered.rs"]
mod scattered;

use std::{sync::Arc, time::Duration};

use half::{bf16, f16};
use libtest_mimic::{Arguments, Failed, Trial};
use passmuster::{
    algorithms::{
        all_gather_matmul::{self, Fused},
        matmul::{self, TensorParallel, Tile},
    },
    collective::{DType, Layout, Product},
    cuda::{CudaMachine, CudaOptions},
    machine::{Machine, MachineError, Site},
    plan::{BufferSpec, MatmulCall, Op, Operands, Plan, Role, Script, Step},
};

fn main() {
    let gpus = CudaMachine::open(CudaOptions::default()).map_or(0, |machine| machine.info().gpus);
    let trial = |name: &str, test: fn()| {
        let name = if gpus == 0 { format!("{name} (needs a GPU)") } else { name.to_owned() };
        Trial::test(name, move || {
            test();
            Ok::<(), Failed>(())
        })
        .with_ignored_flag(gpus == 0)
    };
    let trials = vec![
        trial("every_kernel_multiplies_integers_to_the_bit", every_kernel_multiplies_integers_to_the_bit),
        trial("random_numbers_keep_the_bound_of_a_sum", random_numbers_keep_the_bound_of_a_sum),
        trial("the_library_multiplies_integers_to_the_bit", the_library_multiplies_integers_to_the_bit),
        trial("gathered_integers_are_exact_call_after_call", gathered_integers_are_exact_call_after_call),
        trial("fused_equals_plain_to_the_bit_whoever_is_late", fused_equals_plain_to_the_bit_whoever_is_late),
        trial("a_rank_that_stays_away_is_named", a_rank_that_stays_away_is_named),
        trial("scattered_integers_are_exact_call_after_call", scattered::integers_are_exact_call_after_call),
        trial("scattered_fractions_keep_the_bound_of_a_sum", scattered::fractions_keep_the_bound_of_a_sum),
        trial("scattered_integers_are_exact_whoever_is_late", scattered::integers_are_exact_whoever_is_late),
        trial("scatters_of_two_groups_at_once_keep_apart", scattered::two_groups_at_once_keep_apart),
        trial("fused_scatter_equals_plain_to_the_bit_whoever_is_late", scattered::fused_equals_plain_to_the_bit_whoever_is_late),
    ];
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..Arguments::from_args() }, trials).exit();
}

const DEADLINE: Duration = Duration::from_secs(20);
/// Of a GPU's 132, for each of four ranks.
const BLOCKS: u32 = 32;

/// Which numbers matrices hold.
#[derive(Clone, Copy, PartialEq)]
enum Numbers {
    /// From -4 to 4: every sum of these tests is exact in f32.
    Integers,
    /// Between -1 and 1.
    Fractions,
}

/// `count` elements that depend on the seed: their bytes, and their values.
fn draw(numbers: Numbers, dtype: DType, seed: u64, count: u64) -> (Vec<u8>, Vec<f64>) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(2 * count as usize);
    let values = (0..count).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let value = match numbers {
            Numbers::Integers => (state % 9) as f32 - 4.0,
            Numbers::Fractions => (state >> 40) as f32 / (1 << 23) as f32 - 1.0,
        };
        let (bits, value) = round(dtype, value);
        bytes.extend(bits.to_le_bytes());
        value
    });
    let values = values.collect();
    (bytes, values)
}

/// The element nearest to a value: its bits, and itself.
fn round(dtype: DType, value: f32) -> (u16, f64) {
    match dtype {
        DType::BF16 => (bf16::from_f32(value).to_bits(), bf16::from_f32(value).to_f64()),
        _ => (f16::from_f32(value).to_bits(), f16::from_f32(value).to_f64()),
    }
}

fn value(dtype: DType, bits: u16) -> f64 {
    match dtype {
        DType::BF16 => bf16::from_bits(bits).to_f64(),
        _ => f16::from_bits(bits).to_f64(),
    }
}

/// The exact product, and the sum of magnitudes, of each element of `a` (any rows) times `b`.
fn exact(product: &Product, a: &[f64], b: &[f64]) -> Vec<(f64, f64)> {
    let (columns, depth) = (product.columns as usize, product.depth as usize);
    let transposed: Vec<f64> = match product.layout {
        Layout::Nk => b.to_vec(),
        Layout::Kn => (0..columns).flat_map(|n| (0..depth).map(move |k| b[k * columns + n])).collect(),
    };
    let of_row = |row: &[f64]| -> Vec<(f64, f64)> {
        let of_column = |column: &[f64]| row.iter().zip(column).fold((0.0, 0.0), |(sum, size), (x, y)| (sum + x * y, size + (x * y).abs()));
        transposed.chunks_exact(depth).map(of_column).collect()
    };
    a.chunks_exact(depth).flat_map(of_row).collect()
}

/// Holds what a kernel wrote against the exact products.
fn judge(product: &Product, numbers: Numbers, got: &[u8], exact: &[(f64, f64)], what: &str) {
    let unit = if product.dtype == DType::BF16 { 2f64.powi(-8) } else { 2f64.powi(-11) };
    for (at, (word, &(sum, size))) in got.chunks_exact(2).zip(exact).enumerate() {
        let bits = u16::from_le_bytes([word[0], word[1]]);
        let got = value(product.dtype, bits);
        let right = match numbers {
            Numbers::Integers => got == round(product.dtype, sum as f32).1,
            // One rounding of what depth additions in f32 left, each off by no more than 2^-23 (they may truncate).
            Numbers::Fractions => {
                let added = product.depth as f64 * 2f64.powi(-23) * size;
                (got - sum).abs() <= added + unit * (sum.abs() + added) + 2f64.powi(-24)
            }
        };
        let (row, column) = (at as u64 / product.columns, at as u64 % product.columns);
        assert!(right, "{what} {product:?}: row {row} column {column} is {got}, exactly {sum}");
    }
}

/// Buffers of a call: their names are the operands'.
fn buffers(product: &Product, world: u32) -> ([BufferSpec; 3], Operands) {
    let size = product.dtype.size();
    let counts = [("a", product.a()), ("b", product.b()), ("c", product.c(world))];
    let specs = counts.map(|(name, elements)| BufferSpec::new(name, size * elements, Role::Data));
    let operands = Operands { a: specs[0].whole(), b: specs[1].whole(), c: specs[2].whole() };
    (specs, operands)
}

/// The second replay of a graph of two calls is the last: what a call leaves behind must serve the next.
fn replayed(group: usize, plan: &Arc<Plan>) -> Vec<Step> {
    let capture = Step::Capture { graph: 0, group, plans: vec![plan.clone(); 2] };
    let replay = Step::Replay { graph: 0, stream: 0 };
    vec![capture, replay.clone(), replay]
}

fn enqueue(group: usize, plan: &Arc<Plan>) -> Step {
    Step::Enqueue { group, stream: 0, plan: plan.clone() }
}

fn open() -> CudaMachine {
    CudaMachine::open(CudaOptions { gpus: Some(vec![0]), ..CudaOptions::default() }).expect("these tests need a GPU")
}

/// C of A and B on one rank, by the kernel with these tiles or by the library.
fn multiply(machine: &mut CudaMachine, product: &Product, tile: Option<Tile>, a: &[u8], b: &[u8]) -> Vec<u8> {
    let (specs, operands) = buffers(product, 1);
    let space = BufferSpec::new("space", MatmulCall::WORKSPACE, Role::Data);
    let group = machine.open_group(1, &[&specs[..], std::slice::from_ref(&space)].concat()).unwrap();
    machine.write(group, 0, &operands.a, a).unwrap();
    machine.write(group, 0, &operands.b, b).unwrap();
    let op = match tile {
        Some(tile) => matmul::multiply_with(product, &operands, tile, 132),
        None => Op::Matmul(MatmulCall {
            product: *product,
            operands: operands.clone(),
            workspace: space.whole(),
            // Fewer than there are: what the library does with it is no matter of what it multiplies.
            multiprocessors: product.rows.is_multiple_of(2).then_some(100),
        }),
    };
    let plan = Arc::new(Plan::per_rank("product", 1, |_| vec![op.clone()]));
    machine.run(&Script { steps: vec![enqueue(group, &plan)] }, DEADLINE).unwrap_or_else(|error| panic!("{product:?} {tile:?}: {error}"));
    assert_eq!(machine.broken_canary(group).unwrap(), None, "{product:?} {tile:?}");
    let c = machine.read(group, 0, &operands.c).unwrap();
    machine.close_groups();
    c
}

/// Rows, columns and depth: less than a tile, just a tile, and parts of tiles in every direction; less depth than the ring has stages.
const SHAPES: [(u64, u64, u64); 7] =
    [(1, 8, 8), (127, 200, 72), (128, 256, 64), (129, 264, 328), (300, 1000, 136), (700, 2064, 64), (1030, 520, 24)];

/// Every entry of the module on every shape.
fn of_all_kernels(mut check: impl FnMut(&Product, Tile)) {
    for dtype in [DType::BF16, DType::F16] {
        for layout in [Layout::Nk, Layout::Kn] {
            for (rows, columns, depth) in SHAPES {
                for tile in Tile::ALL {
                    check(&Product { dtype, rows, columns, depth, layout }, tile);
                }
            }
        }
    }
}

fn every_kernel_multiplies_integers_to_the_bit() {
    judge_all_kernels(Numbers::Integers);
}

fn random_numbers_keep_the_bound_of_a_sum() {
    judge_all_kernels(Numbers::Fractions);
}

fn judge_all_kernels(numbers: Numbers) {
    let mut machine = open();
    of_all_kernels(|product, tile| {
        let (a, a_values) = draw(numbers, product.dtype, 1 + product.rows, product.a());
        let (b, b_values) = draw(numbers, product.dtype, 2 + product.depth, product.b());
        let c = multiply(&mut machine, product, Some(tile), &a, &b);
        judge(product, numbers, &c, &exact(product, &a_values, &b_values), &format!("{tile:?}"));
    });
}

/// If this fails, the library's matrices lie otherwise than ours.
fn the_library_multiplies_integers_to_the_bit() {
    let mut machine = open();
    for dtype in [DType::BF16, DType::F16] {
        for layout in [Layout::Nk, Layout::Kn] {
            for (rows, columns, depth) in SHAPES {
                let product = Product { dtype, rows, columns, depth, layout };
                let (a, a_values) = draw(Numbers::Integers, dtype, 1 + rows, product.a());
                let (b, b_values) = draw(Numbers::Integers, dtype, 2 + depth, product.b());
                let c = multiply(&mut machine, &product, None, &a, &b);
                judge(&product, Numbers::Integers, &c, &exact(&product, &a_values, &b_values), "the library");
            }
        }
    }
}

/// What gathered products are tried on: rows of a rank's part less than a tile, no multiple of it, and several.
fn products() -> Vec<Product> {
    let shapes = [(8, 64, 72), (200, 256, 200), (300, 520, 64), (513, 208, 136)];
    let product = |(rows, columns, depth)| Product { dtype: DType::BF16, rows, columns, depth, layout: Layout::Nk };
    let mut products: Vec<Product> = shapes.map(product).into();
    products.push(Product { dtype: DType::F16, layout: Layout::Kn, ..products[2] });
    products
}

/// A group with the operands of a gathered product and what its algorithm needs, B written, and the plan.
struct Gathered<'a> {
    algorithm: &'a dyn TensorParallel,
    product: Product,
    world: u32,
    group: usize,
    operands: Operands,
    plan: Arc<Plan>,
}

impl Gathered<'_> {
    fn open<'a>(
        machine: &mut CudaMachine,
        algorithm: &'a dyn TensorParallel,
        product: &Product,
        world: u32,
        numbers: Numbers,
    ) -> Gathered<'a> {
        algorithm.supports(product, world, BLOCKS).unwrap();
        let (specs, operands) = buffers(product, world);
        let workspace = algorithm.workspace(product, world, BLOCKS);
        let group = machine.open_group(world as usize, &[&specs[..], &workspace].concat()).unwrap();
        for rank in 0..world {
            let (b, _) = draw(numbers, product.dtype, 1000 + u64::from(rank), product.b());
            machine.write(group, rank as usize, &operands.b, &b).unwrap();
        }
        let plan = Arc::new(algorithm.plan(product, &operands, world, BLOCKS));
        Gathered { algorithm, product: *product, world, group, operands, plan }
    }

    /// Fresh A on every rank, and NaN where it will be gathered and where C will be; the gathered A.
    fn refresh(&self, machine: &mut CudaMachine, call: u64, numbers: Numbers) -> (Vec<u8>, Vec<f64>) {
        let workspace = self.algorithm.workspace(&self.product, self.world, BLOCKS);
        let gathered = workspace.into_iter().find(|buffer| buffer.name.ends_with(".gathered")).unwrap();
        let (mut bytes, mut values) = (Vec::new(), Vec::new());
        for rank in 0..self.world {
            let (a, a_values) = draw(numbers, self.product.dtype, 1 + 17 * call + u64::from(rank), self.product.a());
            machine.write(self.group, rank as usize, &self.operands.a, &a).unwrap();
            for region in [gathered.whole(), self.operands.c.clone()] {
                machine.write(self.group, rank as usize, &region, &vec![0xff; region.bytes as usize]).unwrap();
            }
            bytes.extend(a);
            values.extend(a_values);
        }
        (bytes, values)
    }

    fn run(&self, machine: &mut CudaMachine, steps: Vec<Step>) {
        run(machine, self.group, &self.plan, steps);
    }
}

/// World sizes up to four. Ranks have GPUs of their own where NCCL is called, and where plans have side streams: too many of ranks that share a GPU
/// do not make progress together, and a copy within one may need the multiprocessors that the fused kernel holds.
fn worlds(machine: &CudaMachine, algorithm: &dyn TensorParallel) -> std::ops::RangeInclusive<u32> {
    let product = products()[0];
    let plan = algorithm.plan(&product, &buffers(&product, 2).1, 2, BLOCKS);
    1..=if alone(algorithm, &plan) { machine.info().gpus.min(4) as u32 } else { 4 }
}

fn alone(algorithm: &dyn TensorParallel, plan: &Plan) -> bool {
    algorithm.is_peer() || plan.ranks[0].iter().any(|op| matches!(op, Op::Fork { .. }))
}

fn run(machine: &mut CudaMachine, group: usize, plan: &Plan, steps: Vec<Step>) {
    machine.run(&Script { steps }, DEADLINE).unwrap_or_else(|error| panic!("{}: {error}", plan.name));
    assert_eq!(machine.broken_canary(group).unwrap(), None, "{}", plan.name);
}

fn gathered_integers_are_exact_call_after_call() {
    let mut machine = CudaMachine::open(CudaOptions::default()).unwrap();
    let tiles = [Tile::ALL[0], Tile::ALL[2], Tile::ALL[4]].map(|tile| Fused::PULL.with_tile(tile));
    let pulls = tiles.iter().map(|fused| fused as &dyn TensorParallel);
    for algorithm in all_gather_matmul::all().iter().copied().chain(pulls) {
        for product in products() {
            for world in worlds(&machine, algorithm) {
                let gathered = Gathered::open(&mut machine, algorithm, &product, world, Numbers::Integers);
                for call in 0..3 {
                    let (_, a) = gathered.refresh(&mut machine, call, Numbers::Integers);
                    let (group, plan) = (gathered.group, &gathered.plan);
                    let steps = match call {
                        2 => replayed(group, plan),
                        _ => vec![enqueue(group, plan)],
                    };
                    gathered.run(&mut machine, steps);
                    for rank in 0..world {
                        let (_, b) = draw(Numbers::Integers, product.dtype, 1000 + u64::from(rank), product.b());
                        let c = machine.read(group, rank as usize, &gathered.operands.c).unwrap();
                        let what = format!("{} call {call} rank {rank}", plan.name);
                        judge(&product, Numbers::Integers, &c, &exact(&product, &a, &b), &what);
                    }
                }
                machine.close_groups();
            }
        }
    }
}

fn fused_equals_plain_to_the_bit_whoever_is_late() {
    let mut machine = CudaMachine::open(CudaOptions::default()).unwrap();
    for fused in [Fused::PULL.with_tile(Tile::ALL[1]), Fused::COPY_ENGINE.with_tile(Tile::ALL[1])] {
        let world = *worlds(&machine, &fused).end().min(&3);
        for product in products() {
            for late in 0..world as usize {
                let gathered = Gathered::open(&mut machine, &fused, &product, world, Numbers::Fractions);
                let mut a = Vec::new();
                for call in 0..2 {
                    (a, _) = gathered.refresh(&mut machine, call, Numbers::Fractions);
                    let rank = (late + call as usize) % world as usize;
                    gathered.run(&mut machine, vec![Step::Delay { rank, microseconds: 2000 }, enqueue(gathered.group, &gathered.plan)]);
                }
                let read = |rank| machine.read(gathered.group, rank, &gathered.operands.c).unwrap();
                let fused: Vec<Vec<u8>> = (0..world as usize).map(read).collect();
                machine.close_groups();
                for (rank, fused) in fused.into_iter().enumerate() {
                    let (b, _) = draw(Numbers::Fractions, product.dtype, 1000 + rank as u64, product.b());
                    let plain = multiply(&mut machine, &product.gathered(world), Some(Tile::ALL[0]), &a, &b);
                    assert!(fused == plain, "{}: rank {rank} differs from the plain product", gathered.plan.name);
                }
            }
        }
    }
}

fn a_rank_that_stays_away_is_named() {
    let options = CudaOptions { gpus: Some(vec![0]), wait_limit: Duration::from_millis(300), ..CudaOptions::default() };
    let mut machine = CudaMachine::open(options).unwrap();
    let gathered = Gathered::open(&mut machine, &Fused::PULL, &products()[1], 3, Numbers::Integers);
    let steps = vec![Step::Leave { rank: 1 }, enqueue(gathered.group, &gathered.plan)];
    let error = machine.run(&Script { steps }, DEADLINE).unwrap_err();
    let MachineError::Hang { stuck, unfinished, .. } = &error else { panic!("{error}") };
    assert!(unfinished.is_empty(), "{error}");
    assert!(stuck.iter().any(|entry| entry.peer == 1 && entry.site == Site::Start) && stuck.iter().all(|entry| entry.rank != 1), "{error}");
}
