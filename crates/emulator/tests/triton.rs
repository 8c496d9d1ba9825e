//! A product of matrices as Triton compiles it: copies of threads into three stages, products of a warpgroup that read them, fragments on the way out.

use std::sync::Arc;

use passmuster_emulator::{
    execution::{DeviceLimits, Grid, Program, Shape},
    memory::{Address, Init, Memory, Owner},
    races::{Profile, Races},
};

const TEXT: &str = include_str!("triton_matmul.ptx");

/// Rows and columns of the product; K.
const SIZE: usize = 64;
const DEPTH: usize = 4 * 64;

/// Shared memory that Triton asks for, in bytes.
const SHARED: u32 = 49152;

fn a_at(row: usize, k: usize) -> f32 {
    ((row * 7 + k * 3) % 5) as f32 - 2.0
}

fn b_at(k: usize, column: usize) -> f32 {
    ((k * 5 + column * 11) % 7) as f32 - 3.0
}

/// To nearest, ties to even.
fn bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// Runs the kernel under a schedule; whether the product is right, and what was found or stopped it.
fn run(text: &str, seed: u64) -> (bool, Vec<String>) {
    let mut memory = Memory::new();
    let module = Arc::new(passmuster_ptx::parse(text).unwrap_or_else(|error| panic!("{error}")));
    let mut buffer = |name: &str, values: Vec<u16>| -> Address {
        let bytes: Vec<u8> = values.into_iter().flat_map(u16::to_le_bytes).collect();
        let address = memory.allocate(Owner::new(0, 0, name), bytes.len() as u64, Init::Zero);
        memory.write(address, 0, &bytes).unwrap();
        address
    };
    let a = buffer("a", (0..SIZE * DEPTH).map(|at| bf16(a_at(at / DEPTH, at % DEPTH))).collect());
    let b = buffer("b", (0..DEPTH * SIZE).map(|at| bf16(b_at(at / SIZE, at % SIZE))).collect());
    let c = buffer("c", vec![0xffff; SIZE * SIZE]);
    let mut parameters: Vec<u8> = [a, b, c].iter().flat_map(|address| address.0.to_le_bytes()).collect();
    // K, and two buffers that are not used.
    parameters.extend((DEPTH as u64).to_le_bytes());
    parameters.extend([0; 16]);
    let limits = DeviceLimits::by_threads(132, 2048, 227 << 10);
    let program = Arc::new(Program::load(module.clone(), 0, limits, &mut memory).unwrap());
    let shape = Shape { grid: [1, 1, 1], block: [128, 1, 1], cluster: None, dynamic_shared: SHARED, registers: None };
    let mut races = Races::new(Profile::Hopper, 1, 1, Vec::new()).unwrap();
    let launch = races.begin_launch(0, 0, &module, "triton", "mm");
    let mut grid = Grid::new(program, "mm", shape, &parameters, &mut memory).unwrap();
    grid.watch_as(launch);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % below
    };
    let (mut turns, mut stopped) = (0, None);
    while !grid.is_done() {
        turns += 1;
        assert!(turns < 100_000, "it hangs: {:?}", grid.standing());
        // The first schedule lets warps go before what goes on beside them, the second after.
        let mut pick = |n: usize| match seed {
            0 if turns % 8 != 0 => 0,
            1 if turns % 8 != 0 => n - 1,
            _ => next(n),
        };
        if let Err(fault) = grid.watched_turn(&mut memory, Some(&mut races), 0, 32, &mut pick) {
            stopped = Some(fault.to_string());
            break;
        }
    }
    races.end_launch(launch);
    grid.finish(&mut memory);
    let found = memory.peek_all(c, 2 * (SIZE * SIZE) as u64, 0).unwrap();
    let right = found.chunks_exact(2).enumerate().all(|(at, bits)| {
        let exact: f32 = (0..DEPTH).map(|k| a_at(at / SIZE, k) * b_at(k, at % SIZE)).sum();
        u16::from_le_bytes([bits[0], bits[1]]) == bf16(exact)
    });
    (right, races.reports(&memory).into_iter().map(|report| report.what).chain(stopped).collect())
}

/// If this fails, a compiler's pipeline is reported as wrong, or is computed wrongly.
#[test]
fn a_product_of_triton_is_right_and_nothing_is_found() {
    for seed in 0..4 {
        assert_eq!(run(TEXT, seed), (true, Vec::new()), "schedule {seed}");
    }
}

fn found_without(what: &str, instead: &str) -> Vec<String> {
    assert!(TEXT.contains(what), "`{what}` is not there");
    (0..3).flat_map(|seed| run(&TEXT.replace(what, instead), seed).1).collect()
}

/// If this fails, a bug that products on two GPUs would not show is not found here either.
#[test]
fn what_is_taken_out_of_it_is_missed() {
    let missing = found_without("fence.proxy.async.shared::cta;", "");
    assert!(missing.iter().any(|what| what.contains("fence.proxy.async is missing between")), "{missing:#?}");
    // The stage that is copied into is then still being read.
    let early = found_without("wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 2;");
    assert!(early.iter().any(|what| what.contains("a wait for the asynchronous operation is missing between")), "{early:#?}");
    // What is read before it is there may not have been written at all.
    let unread = found_without("cp.async.wait_group \t2;", "cp.async.wait_group 4;");
    let missed = ["a wait for the asynchronous operation is missing between", "was never written"];
    assert!(unread.iter().any(|what| missed.iter().any(|missed| what.contains(missed))), "{unread:#?}");
}
