//! The project's kernels, launch by launch, against its host references.

use std::sync::{Arc, LazyLock};

use passmuster_emulator::{
    execution::{Grid, Program, Shape},
    memory::{Address, Init, Memory, Owner},
};
use passmuster_harness::{
    conformance::{InputClass, Payload, Transform},
    emulator::limits,
};
use passmuster_plan::{
    algorithms::{
        Registry,
        kit::{self, entry},
    },
    collective::{DType, Element, ReduceOp, reduce_in_order},
    device::DeviceModel,
    plan::MAX_RANKS,
    with_element,
};
use passmuster_ptx as ptx;
use rstest::rstest;

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| passmuster_harness::registry(passmuster_kernels::catalogue()));

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

fn fill(program: &Arc<Program>, payload: &Payload, rank: u32, to: Address, count: u64, memory: &mut Memory) -> u64 {
    let (transform, argument) = match payload.transform {
        Transform::None => (0_u32, 0_u64),
        Transform::Negate => (1, 0),
        Transform::Scale(exponent) => (2, i64::from(exponent) as u64),
        Transform::Plus(call) => (3, call.into()),
        Transform::Flip { index, .. } => (4, index),
    };
    let mut parameters: Vec<u8> = [to.0, count, payload.seed].iter().flat_map(|word| word.to_le_bytes()).collect();
    for word in [payload.class as u32, rank, payload.world, payload.call, transform, 0] {
        parameters.extend(word.to_le_bytes());
    }
    parameters.extend(argument.to_le_bytes());
    let entry = format!("fill_{}", payload.dtype);
    let size = program.module().entry(&entry).unwrap().input_bytes as usize;
    assert_eq!(size, parameters.len());
    let grid = Grid::new(program.clone(), &entry, shape(count.div_ceil(256).min(1024) as u32, 256), &parameters, memory).unwrap();
    let (mut grid, mut instructions, mut pick) = (grid, 0, around_picker());
    while !grid.is_done() {
        instructions += grid.turn(memory, 0, 256, &mut pick).unwrap().instructions;
    }
    grid.finish(memory);
    instructions
}

#[test]
fn filling_on_the_emulator_gives_the_host_s_bits() {
    for dtype in DType::ALL {
        filling_gives_the_host_s_bits(dtype, 4, &[0, 1, 2, 3], 1000);
        // More ranks than 8-bit types can have count.
        filling_gives_the_host_s_bits(dtype, 72, &[0, 2, 71], 300);
    }
}

fn filling_gives_the_host_s_bits(dtype: DType, world: u32, ranks: &[u32], count: u64) {
    let text = REGISTRY.library().ptx("conformance/fill").unwrap().to_owned();
    let mut memory = Memory::new();
    let program = Arc::new(Program::load(Arc::new(ptx::parse(&text).unwrap()), 1, limits(&DeviceModel::MEASURED), &mut memory).unwrap());
    for class in InputClass::ALL {
        let flip = Transform::Flip { rank: 2, index: 77 };
        for transform in [Transform::None, Transform::Negate, Transform::Scale(-3), Transform::Plus(9), flip] {
            for &rank in ranks {
                if matches!(transform, Transform::Flip { rank: flipped, .. } if flipped != rank) {
                    continue;
                }
                let payload = Payload { class, dtype, world, seed: 0x5eed, call: 3, transform };
                let bytes = count * dtype.size();
                let to = memory.allocate(Owner::new(1, 0, "to"), bytes, Init::Uninitialised);
                fill(&program, &payload, rank, to, count, &mut memory);
                let got = memory.read(to, bytes, 1).unwrap();
                let same = got == payload.bytes(rank, 0..count);
                assert!(same, "{dtype} {class} {transform:?} rank {rank}");
                memory.free(to).unwrap();
            }
        }
    }
}

/// Turns after which a wait gives up, as some mutants must; a sound kernel of these tests needs a tenth of it.
const WAIT_LIMIT: u64 = 200_000;

/// All ranks of a group, whose structs are laid out by hand.
struct Group {
    memory: Memory,
    input: Vec<Address>,
    output: Vec<Address>,
    parameters: Vec<Vec<u8>>,
    programs: Vec<Arc<Program>>,
}

fn module(name: &str) -> Arc<ptx::Module> {
    Arc::new(ptx::parse(REGISTRY.library().ptx(name).unwrap()).unwrap())
}

fn group(module: &Arc<ptx::Module>, two_shot: bool, payload: &Payload, count: u64, reduction: u32) -> Group {
    let world = payload.world as usize;
    let mut memory = Memory::new();
    let load = |rank| Arc::new(Program::load(module.clone(), rank, limits(&DeviceModel::MEASURED), &mut memory).unwrap());
    let programs = (0..world).map(load).collect();
    let mut allocate = |name: &str, bytes: u64, init: Init, shared: bool| -> Vec<Address> {
        let make = |rank: usize| {
            let address = memory.allocate(Owner::new(rank, 0, name), bytes, init);
            (0..world).filter(|_| shared).for_each(|peer| memory.map(address, peer, true).unwrap());
            address
        };
        (0..world).map(make).collect()
    };
    let bytes = count * payload.dtype.size();
    let input = allocate("input", bytes, Init::Uninitialised, true);
    let output = allocate("output", bytes, Init::Uninitialised, true);
    let pads = allocate("pads", 64 * MAX_RANKS as u64 * 4, Init::Zero, true);
    let epochs = allocate("epochs", 64 * 4, Init::Zero, false);
    let stuck = allocate("stuck", 64 + 64 * MAX_RANKS as u64 * 16, Init::Zero, false);
    let peers = |addresses: &[Address]| -> Vec<u8> {
        (0..MAX_RANKS).flat_map(|rank| addresses.get(rank).map_or(0, |address| address.0).to_le_bytes()).collect()
    };
    let mut parameters = Vec::new();
    for rank in 0..world {
        memory.write(input[rank], rank, &payload.bytes(rank as u32, 0..count)).unwrap();
        let mut bytes = Vec::new();
        if !two_shot {
            bytes.extend(output[rank].0.to_le_bytes());
        }
        bytes.extend(count.to_le_bytes());
        bytes.extend(reduction.to_le_bytes());
        if two_shot {
            // Owners and receivers: all ranks.
            bytes.extend([0, world as u32, 0, world as u32].iter().flat_map(|word| word.to_le_bytes()));
        }
        bytes.extend([0; 4]); // padding
        bytes.extend([rank as u32, world as u32].iter().flat_map(|word| word.to_le_bytes()));
        // What ships does not look at it.
        let stalls = 0;
        for word in [epochs[rank].0, stuck[rank].0, stalls, WAIT_LIMIT] {
            bytes.extend(word.to_le_bytes());
        }
        for addresses in [&pads, &input] {
            bytes.extend(peers(addresses));
        }
        if two_shot {
            bytes.extend(peers(&output));
        }
        parameters.push(bytes);
    }
    Group { memory, input, output, parameters, programs }
}

/// Runs all ranks, one turn each in turn, and returns thread instructions.
fn all_reduce(group: &mut Group, entry: &str, blocks: u32, quantum: u32) -> u64 {
    let Group { memory, programs, parameters, .. } = group;
    let launch = |(program, parameters): (&Arc<Program>, &Vec<u8>)| {
        Grid::new(program.clone(), entry, shape(blocks, 512), parameters, memory).unwrap()
    };
    let mut grids: Vec<Grid> = programs.iter().zip(&*parameters).map(launch).collect();
    // One picker each: shared, it would step over the same warps of a grid for ever.
    let mut picks: Vec<_> = grids.iter().map(|_| around_picker()).collect();
    let (mut instructions, mut turns) = (0, 0_u64);
    while grids.iter().any(|grid| !grid.is_done()) {
        for (grid, pick) in grids.iter_mut().zip(&mut picks) {
            instructions += grid.turn(memory, turns, quantum, pick).unwrap_or_else(|fault| panic!("{fault}")).instructions;
            turns += 1;
            assert!(turns < 5_000_000, "{:?}", grid.standing());
        }
    }
    grids.into_iter().for_each(|grid| grid.finish(memory));
    instructions
}

#[rstest]
fn all_reduces_of_two_ranks_give_the_reference(
    #[values("one_shot", "two_shot")] algorithm: &str,
    #[values(1, 1037)] count: u64,
    #[values(7, 256)] quantum: u32,
) {
    let payload = Payload { class: InputClass::Natural, dtype: DType::BF16, world: 2, seed: 11, call: 0, transform: Transform::None };
    let mut group = group(&module(&format!("all_reduce/{algorithm}")), algorithm == "two_shot", &payload, count, 0);
    all_reduce(&mut group, &format!("all_reduce_{algorithm}_bf16_sum"), 2, quantum);
    let [first, second] = [0, 1].map(|rank| payload.elements::<half::bf16>(rank, 0..count));
    let sum = |(a, b): (&half::bf16, &half::bf16)| reduce_in_order(ReduceOp::Sum, &[*a, *b]).to_le_bytes();
    let expected: Vec<u8> = first.iter().zip(&second).flat_map(sum).collect();
    for rank in 0..2 {
        assert!(group.memory.read(group.output[rank], count * 2, rank).unwrap() == expected, "rank {rank}");
        assert_eq!(group.memory.read(group.input[rank], count * 2, rank).unwrap(), payload.bytes(rank as u32, 0..count));
    }
}

#[rstest]
fn every_entry_gives_the_reference(
    #[values("one_shot", "two_shot")] algorithm: &str,
    #[values(InputClass::Natural, InputClass::Special)] class: InputClass,
) {
    let (path, count) = (format!("all_reduce/{algorithm}"), 83);
    let module = module(&path);
    let reductions = DType::ALL.into_iter().flat_map(|dtype| ReduceOp::ALL.map(|op| (dtype, op)));
    // Pre-multiplied sums are sums to it: whole cases multiply.
    for (dtype, op) in reductions.filter(|(_, op)| *op != ReduceOp::PremulSum) {
        let payload = Payload { class, dtype, world: 3, seed: 5, call: 1, transform: Transform::None };
        let mut group = group(&module, algorithm == "two_shot", &payload, count, kit::argument(REGISTRY.module(&path).unwrap(), dtype, op));
        all_reduce(&mut group, &entry(REGISTRY.module(&path).unwrap(), dtype, op), 1, 256);
        with_element!(dtype, T => {
            let inputs: Vec<Vec<T>> = (0..3).map(|rank| payload.elements::<T>(rank, 0..count)).collect();
            for rank in 0..3 {
                let got = group.memory.read(group.output[rank], count * dtype.size(), rank).unwrap();
                for (index, got) in got.chunks_exact(dtype.size() as usize).map(T::from_bytes).enumerate() {
                    let values: Vec<T> = inputs.iter().map(|input| input[index]).collect();
                    let expected: T = reduce_in_order(op, &values);
                    let nan = got.to_f64().is_nan() && expected.to_f64().is_nan();
                    assert!(nan || got.bits() == expected.bits(), "{dtype} {op} element {index} of {values:?}: {got:?}, expected {expected:?}");
                }
            }
        });
    }
}

/// Mutants synchronise wrongly or compute wrongly, but nothing in them is unknown to the emulator: an unmodelled instruction would hide them.
#[test]
fn every_mutant_runs() {
    let mut ran = 0;
    // Those that other collectives show may leave the memory of an all-reduce; whole cases run them.
    for mutant in REGISTRY.mutants().iter().filter(|mutant| mutant.shown_by == mutant.module && mutant.half().is_none()) {
        let module = Arc::new(ptx::parse(mutant.ptx).unwrap());
        let entries = module.entries().map(|entry| entry.name.clone());
        // Those of multimem, of pushes, of Lamport packs and of other collectives, and the entries `any`, take other arguments; whole cases run them.
        let others = |entry: &String| ["multimem", "push", "lamport", "any"].iter().any(|name| entry.contains(name));
        let entries: Vec<String> = entries.filter(|entry| entry.starts_with("all_reduce") && !others(entry)).collect();
        for entry in entries {
            let dtype = DType::ALL.into_iter().find(|dtype| entry.contains(&format!("_{dtype}_"))).unwrap();
            let payload = Payload { class: InputClass::Natural, dtype, world: 2, seed: 5, call: 1, transform: Transform::None };
            let mut group = group(&module, entry.contains("two_shot"), &payload, 83, 0);
            all_reduce(&mut group, &entry, 1, 256);
            ran += 1;
        }
    }
    assert!(ran >= 20, "only {ran} mutants");
}
