use std::sync::Arc;

use super::*;
use crate::memory::{Address, Init, Memory, Owner};
use passmuster_ptx as ptx;

mod asynchronous;
mod clusters;
mod coverage;
mod instructions;
mod matrix;
mod multimem;
mod shared;
mod tensor;
mod threads;

/// A program on a rank.
fn program(text: &str, rank: usize, memory: &mut Memory) -> Arc<Program> {
    let module = ptx::parse(text).unwrap_or_else(|error| panic!("{error}"));
    Arc::new(Program::load(Arc::new(module), rank, DeviceLimits::of_tests(), memory).unwrap())
}

/// A kernel `k` with parameters `out` and `in`, addresses in `%d0` and `%d1`, the thread in `%t`, and `out + 4 * thread` in `%d2`.
fn around(body: &str) -> String {
    format!(
        ".version 9.0\n.target sm_100a\n.address_size 64\n\
         .func (.param .b32 r) triple(.param .b32 x) {{ .reg .b32 %a; ld.param.b32 %a, [x]; mul.lo.u32 %a, %a, 3; st.param.b32 [r], %a; ret; }}\n\
         .func (.reg .b32 %o) deep(.reg .b32 %n) {{ .reg .pred %p; .reg .b32 %m; setp.eq.u32 %p, %n, 0; mov.u32 %o, 0; @%p ret;\n\
         sub.u32 %m, %n, 1; call (%o), deep, (%m); add.u32 %o, %o, %n; ret; }}\n\
         .visible .entry k(.param .u64 out, .param .u64 in)\n{{\n\
         .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<16>; .reg .b32 %t; .reg .f32 %f<8>; .reg .b64 %d<12>; .reg .f64 %g<4>;\n\
         .shared .align 16 .b8 block[4096];\n\
         ld.param.u64 %d0, [out];\nld.param.u64 %d1, [in];\nmov.u32 %t, %tid.x;\nmad.wide.u32 %d2, %t, 4, %d0;\n{body}\n}}\n"
    )
}

fn shape(blocks: u32, threads: u32) -> Shape {
    Shape { grid: [blocks, 1, 1], block: [threads, 1, 1], cluster: None, dynamic_shared: 0, registers: None }
}

/// A picker that goes around.
fn around_picker() -> impl FnMut(usize) -> usize {
    let mut next = 0_usize;
    move |n| {
        next = next.wrapping_add(1);
        next % n
    }
}

/// Runs a launch to its end; `None` if it hangs.
fn finish(mut grid: Grid, memory: &mut Memory) -> Result<Option<u64>, Fault> {
    let (mut instructions, mut idle, mut pick) = (0, 0, around_picker());
    while !grid.is_done() {
        let turn = grid.turn(memory, 0, 256, &mut pick)?;
        instructions += turn.instructions;
        idle = if turn.polled && !turn.wrote || turn.instructions == 0 { idle + 1 } else { 0 };
        if idle > 1000 {
            grid.finish(memory);
            return Ok(None);
        }
    }
    grid.finish(memory);
    Ok(Some(instructions))
}

/// Runs kernel `k` of a text with an input of words and an output of one word a thread (`CANARY`s first), and returns the output.
fn run(text: &str, shape: Shape, input: &[u32]) -> Result<Vec<u32>, Fault> {
    let mut memory = Memory::new();
    let program = program(text, 0, &mut memory);
    let threads = shape.block.iter().chain(&shape.grid).product::<u32>();
    let out = memory.allocate(Owner::new(0, 0, "out"), u64::from(threads) * 4, Init::Canary);
    let bytes: Vec<u8> = input.iter().flat_map(|word| word.to_le_bytes()).collect();
    let source = memory.allocate(Owner::new(0, 0, "in"), bytes.len() as u64, Init::Uninitialised);
    memory.write(source, 0, &bytes).unwrap();
    let parameters = [out.0.to_le_bytes(), source.0.to_le_bytes()].concat();
    let grid = Grid::new(program, "k", shape, &parameters, &mut memory)?;
    assert!(finish(grid, &mut memory)?.is_some(), "it hangs");
    Ok(words(&memory, out, threads))
}

fn words(memory: &Memory, address: Address, count: u32) -> Vec<u32> {
    let bytes = memory.peek_all(address, u64::from(count) * 4, 0).unwrap();
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// What a body leaves in `%r0` of each of `threads` threads.
fn results(body: &str, threads: u32) -> Vec<u32> {
    run(&around(&format!("{body}\nst.global.u32 [%d2], %r0;")), shape(1, threads), &[]).unwrap_or_else(|fault| panic!("{fault}\n{body}"))
}
