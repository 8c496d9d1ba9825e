//! Litmus tests: kernels of a few instructions in `litmus/`, each of which says in its first lines what it shows, where the ISA has it, how it is
//! launched, and what is found, under schedules of its warps and of what goes on beside them.

use std::{collections::BTreeSet, fs, path::PathBuf, sync::Arc};

use passmuster_emulator::{
    execution::{Arithmetic, DeviceLimits, Fault, Grid, Program, Shape},
    litmus::{BYTES, Launch, Litmus},
    memory::{AccessError, Init, Memory, Owner},
    races::{Profile, Races, Report},
    tensor_map::{ElementType, TensorMap},
};
use rstest::rstest;

/// Schedules of each.
const SCHEDULES: u64 = 100;

/// Turns that a kernel may take.
const MOST_TURNS: u32 = 5_000;

/// Numbers that follow from a seed.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % below
    }
}

/// Why a run did not get to its end.
enum Stopped {
    Fault(String),
    Hang,
}

/// Runs the launches one after the other; what was found, and what stopped them.
fn run(module: &Arc<passmuster_ptx::Module>, litmus: &Litmus, seed: u64) -> (BTreeSet<String>, Option<Stopped>) {
    let (ranks, Litmus { launches, hangs, map, .. }) = (litmus.ranks(), litmus);
    let mut memory = Memory::new();
    let buffers = ["data", "flag"].map(|name| memory.allocate(Owner::new(0, 0, name), BYTES, Init::Zero));
    buffers.iter().for_each(|&buffer| (0..ranks).for_each(|rank| memory.map(buffer, rank, true).unwrap()));
    let mut parameters = buffers.map(|buffer| buffer.0.to_le_bytes()).concat();
    if let Some([columns, rows, box_columns, box_rows]) = *map {
        let map = TensorMap {
            element: ElementType::U32,
            dimensions: 2,
            address: buffers[0].0,
            extents: [columns, rows, 1, 1, 1],
            strides: [4 * columns, 0, 0, 0],
            box_extents: [box_columns as u32, box_rows as u32, 1, 1, 1],
            element_strides: [1; 5],
            ..TensorMap::default()
        };
        parameters.resize(64, 0);
        parameters.extend(map.to_bytes());
    }
    let mut races = Races::new(Profile::Hopper, ranks, 1, Vec::new()).unwrap();
    let limits = DeviceLimits::by_threads(132, 2048, 227 << 10);
    let mut next = numbers(seed + 1);
    let mut stopped = None;
    'launches: for &Launch { rank, blocks, threads, ref kernel } in launches {
        let program = Arc::new(Program::load(module.clone(), rank, limits.clone(), &mut memory).unwrap());
        let shape = Shape { grid: [blocks, 1, 1], block: [threads, 1, 1], cluster: None, dynamic_shared: 0, registers: None };
        let launch = races.begin_launch(rank, 0, module, "litmus", kernel);
        let grid = Grid::new(program, kernel, shape, &parameters, &mut memory).unwrap();
        let mut grid = grid.varied(Arithmetic::default(), [0, seed]);
        grid.watch_as(launch);
        let mut turns = 0;
        while !grid.is_done() {
            turns += 1;
            if turns == MOST_TURNS {
                assert!(*hangs, "{kernel} hangs: {:?}", grid.standing());
                stopped = Some(Stopped::Hang);
                break 'launches;
            }
            // The first schedule lets warps go before what goes on beside them, the second after.
            let mut pick = |n: usize| match seed {
                0 if turns % 8 != 0 => 0,
                1 if turns % 8 != 0 => n - 1,
                _ => next(n),
            };
            match grid.watched_turn(&mut memory, Some(&mut races), 0, 1 + turns % 3, &mut pick) {
                Ok(_) => {}
                // What is read too early may not have been written at all.
                Err(Fault::Memory { error: AccessError::Uninitialised { .. }, .. }) => break 'launches,
                Err(fault) => {
                    stopped = Some(Stopped::Fault(fault.to_string()));
                    break 'launches;
                }
            }
        }
        races.end_launch(launch);
        grid.finish(&mut memory);
    }
    (races.reports(&memory).into_iter().map(line).collect(), stopped)
}

/// What it is and what is missing, without whose it is.
fn line(report: Report) -> String {
    let (kind, rest) = report.what.split_once(": ").unwrap();
    let (_, missing) = rest.split_once("; ").unwrap();
    format!("{}{kind}: {missing}", report.assumption.map(|name| format!("({name}) ")).unwrap_or_default())
}

#[rstest]
fn litmus(#[files("litmus/*.ptx")] path: PathBuf) {
    let text = fs::read_to_string(path).unwrap();
    let litmus = Litmus::of(&text).unwrap_or_else(|error| panic!("{error}"));
    let module = Arc::new(passmuster_ptx::parse(&text).unwrap_or_else(|error| panic!("{error}")));
    let mut found = BTreeSet::new();
    let mut faults = BTreeSet::new();
    let mut hung = false;
    for seed in 0..SCHEDULES {
        let (reports, stopped) = run(&module, &litmus, seed);
        found.extend(reports);
        match stopped {
            Some(Stopped::Fault(fault)) => drop(faults.insert(fault)),
            Some(Stopped::Hang) => hung = true,
            None => {}
        }
    }
    assert_eq!(hung, litmus.hangs, "whether it hangs");
    assert_eq!(found, litmus.expected.into_iter().collect());
    match litmus.fault {
        Some(fault) => assert!(!faults.is_empty() && faults.iter().all(|told| told.contains(&fault)), "{faults:#?}"),
        None => assert!(faults.is_empty(), "{faults:#?}"),
    }
}
