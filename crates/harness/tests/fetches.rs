//! What hosts fetch without waiting, on the emulator: what it is, when it is there, what a host's wait orders, and what goes wrong.

use std::{sync::Arc, time::Duration};

use passmuster_harness::emulator::{Emulator, EmulatorOptions, Interleaving, Profile};
use passmuster_plan::{
    machine::{Awaited, Machine, MachineError, Run},
    plan::{BufferSpec, Op, Plan, Region, Role, Script, Step},
};

const DEADLINE: Duration = Duration::from_secs(60);
const WORLD: u32 = 2;

fn word(at: u64) -> Region {
    Region::new("words", at, 4)
}

fn fill(at: u64, byte: u8) -> Op {
    Op::Fill { region: word(at), byte }
}

fn fetch(at: u64) -> Op {
    Op::Fetch { from: word(at) }
}

/// What is enqueued: operations on a stream of every rank, or the wait for a fetch.
enum Do {
    Enqueue(usize, Vec<Op>),
    Await(usize),
}

/// Has both ranks do it, in the n-th schedule.
fn run(schedule: usize, all: Vec<Do>) -> Result<Run, MachineError> {
    let mut machine = Emulator::new(EmulatorOptions { profile: Profile::Ptx, ..EmulatorOptions::default() });
    machine.set_interleaving(Interleaving::nth(5, schedule));
    let group = machine.open_group(WORLD as usize, &[BufferSpec::new("words", 64, Role::State)])?;
    let step = |one| match one {
        Do::Enqueue(stream, ops) => Step::Enqueue { group, stream, plan: Arc::new(Plan::per_rank("fetches", WORLD, |_| ops.clone())) },
        Do::Await(fetch) => Step::Await { fetch },
    };
    machine.run(&Script { steps: all.into_iter().map(step).collect() }, DEADLINE)
}

const SCHEDULES: usize = 24;

/// If this fails, a host gets what was there at another time, or what another fetch brought.
#[test]
fn a_fetch_brings_what_was_there_when_its_stream_came_to_it() {
    for schedule in 0..SCHEDULES {
        let forked = Op::Fork { stream: 1, ops: vec![fetch(0), fill(8, 3), fetch(8)] };
        let ops = vec![fill(0, 1), fetch(0), forked, fetch(4), Op::Join { stream: 1 }, fill(0, 2), fetch(0)];
        let run = run(schedule, vec![Do::Enqueue(1, ops), Do::Await(4)]).unwrap_or_else(|error| panic!("{error}"));
        for fetched in &run.fetched {
            let brought: Vec<u8> = fetched.iter().map(|fetched| fetched.bytes[0]).collect();
            assert_eq!(brought, [1, 1, 3, 0, 2], "counted as the host enqueues them, a fork's where it stands");
            let awaited: Vec<bool> = fetched.iter().map(|fetched| fetched.awaited.is_some()).collect();
            assert_eq!(awaited, [false, false, false, false, true]);
        }
    }
}

/// If this fails, a host never comes too early, and looking shows nothing; or it always does.
#[test]
fn whether_it_is_there_depends_on_the_schedule_and_waiting_does_not() {
    let mut early = [0; 2];
    for schedule in 0..SCHEDULES {
        let run = run(schedule, vec![Do::Enqueue(0, vec![fill(0, 7), fetch(0)]), Do::Await(0)]).unwrap();
        for fetched in run.fetched.iter().flatten() {
            let Awaited { was_there, blocked } = fetched.awaited.expect("it was awaited");
            early[usize::from(was_there)] += 1;
            assert_eq!(fetched.bytes, [7; 4]);
            assert!(blocked >= 0.0 && (!was_there || blocked == 0.0), "{blocked}");
        }
    }
    assert!(early.iter().all(|&times| times > 0), "not there, there: {early:?}");
}

/// If this fails, what a host enqueues when it has what it waited for is taken to race with what brought it, or what it enqueues without waiting is not.
#[test]
fn what_is_enqueued_after_a_wait_comes_after_what_was_fetched() {
    let ops = || vec![Do::Enqueue(1, vec![fill(0, 1), fetch(0)]), Do::Await(0), Do::Enqueue(2, vec![fill(0, 2)])];
    let mut races = 0;
    for schedule in 0..SCHEDULES {
        run(schedule, ops()).unwrap_or_else(|error| panic!("{error}"));
        let mut without = ops();
        without.remove(1);
        races += usize::from(matches!(run(schedule, without), Err(MachineError::Races { .. })));
    }
    assert_eq!(races, SCHEDULES);
}

/// If this fails, a host that waits for what never comes is no hang.
#[test]
fn a_wait_for_what_never_comes_is_a_hang() {
    let never = Op::WaitValue { at: word(0), value: 1 };
    let error = run(0, vec![Do::Enqueue(0, vec![never, fetch(0)]), Do::Await(0)]).unwrap_err();
    let MachineError::Hang { cause, standing, unfinished, .. } = &error else { panic!("{error}") };
    assert_eq!((cause.as_str(), &unfinished[..]), ("deadlock: streams wait for words that nobody is left to write", &[0, 1][..]));
    assert!(standing[0].starts_with("rank 0 stream 0 waits until"), "{standing:?}");
}
