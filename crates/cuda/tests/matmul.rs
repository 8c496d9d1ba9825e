//! Products of matrices on real GPUs: every kernel of the plain one and the library on small integers, to the bit, and on random numbers, to the bound of
//! a sum; products with a collective as `test-gpu` judges them.
//!
//! Without a GPU these are ignored, and their names say so.

use std::{sync::Arc, time::Duration};

use half::{bf16, f16};
use libtest_mimic::{Arguments, Failed, Trial};
use passmuster_cuda::{CudaMachine, CudaOptions};
use passmuster_harness::conformance::{Case, List, Status, runner::Settings};
use passmuster_kernels::matmul::Tile;
use passmuster_plan::{
    collective::{DType, Layout, Product},
    machine::Machine,
    plan::{BufferSpec, MatmulCall, Op, Operands, Plan, Role, Script, Step},
};

fn main() {
    // SAFETY: this thread is the only one yet.
    unsafe { passmuster_cuda::prepare_process() };
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
        trial("cases_of_products_pass", cases_of_products_pass),
    ];
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..Arguments::from_args() }, trials).exit();
}

const DEADLINE: Duration = Duration::from_secs(20);

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
fn buffers(product: &Product) -> ([BufferSpec; 3], Operands) {
    let size = product.dtype.size();
    let counts = [("a", product.a()), ("b", product.b()), ("c", product.c(1))];
    let specs = counts.map(|(name, elements)| BufferSpec::new(name, size * elements, Role::Data));
    let operands = Operands { a: specs[0].whole(), b: specs[1].whole(), c: specs[2].whole() };
    (specs, operands)
}

fn open() -> CudaMachine {
    CudaMachine::open(CudaOptions {
        gpus: Some(vec![0]),
        library: passmuster_harness::registry(passmuster_kernels::catalogue()).library(),
        ..CudaOptions::default()
    })
    .expect("these tests need a GPU")
}

/// C of A and B on one rank, by the kernel with these tiles or by the library.
fn multiply(machine: &mut CudaMachine, product: &Product, tile: Option<Tile>, a: &[u8], b: &[u8]) -> Vec<u8> {
    let (specs, operands) = buffers(product);
    let space = BufferSpec::new("space", MatmulCall::WORKSPACE, Role::Data);
    let group = machine.open_group(1, &[&specs[..], std::slice::from_ref(&space)].concat()).unwrap();
    machine.write(group, 0, &operands.a, a).unwrap();
    machine.write(group, 0, &operands.b, b).unwrap();
    let op = match tile {
        Some(tile) => passmuster_kernels::matmul::multiply_with(product, &operands, tile, 132),
        None => Op::Matmul(MatmulCall {
            product: *product,
            operands: operands.clone(),
            workspace: space.whole(),
            // Fewer than there are: what the library does with it is no matter of what it multiplies.
            sms: product.rows.is_multiple_of(2).then_some(100),
        }),
    };
    let plan = Arc::new(Plan::per_rank("product", 1, |_| vec![op.clone()]));
    machine
        .run(&Script { steps: vec![Step::Enqueue { group, stream: 0, plan }] }, DEADLINE)
        .unwrap_or_else(|error| panic!("{product:?} {tile:?}: {error}"));
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

/// What `test-gpu` does with products, in this process: without NCCL, whose paths are forced by the environment of a process.
fn cases_of_products_pass() {
    let registry = passmuster_harness::registry(passmuster_kernels::catalogue());
    let mut machine = CudaMachine::open(CudaOptions { library: registry.library(), ..CudaOptions::default() }).unwrap();
    let settings = Settings { registry: &registry, deadline: DEADLINE, shared_pads: false, progress: &|_| {} };
    let mut passed = 0;
    for case in List::Merge.products(&registry, 0).into_iter().map(Case::from).filter(|case| case.environment(&registry).is_empty()) {
        let verdict = case.judge(&mut machine, &settings);
        assert!(matches!(verdict.status, Status::Pass | Status::NotSupported), "{verdict:#?}");
        passed += usize::from(verdict.status == Status::Pass);
    }
    // On one GPU those of one rank, and of several that have no side streams.
    assert!(passed > 80, "{passed}");
}
