//! Streams that synchronise by words, on the emulator: what a wait orders, what is said of one that nobody ends, and the algorithms whose ranks meet
//! that way.

mod occupancy;

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use passmuster_harness::{
    conformance::{
        Case, CollectiveCase, Status, Verdict,
        runner::{self, Settings},
    },
    emulator::{Emulator, EmulatorOptions, Interleaving, Profile},
};
use passmuster_kernels::Holders;
use passmuster_plan::{
    algorithms::Registry,
    collective::Collective,
    machine::{Machine, MachineError, Run},
    plan::{BufferSpec, Departure, Op, Plan, Region, Role, Script, Step},
};
use rstest::rstest;

const DEADLINE: Duration = Duration::from_secs(120);

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| passmuster_harness::registry(passmuster_kernels::catalogue()));

fn in_profile(profile: Profile) -> Emulator {
    Emulator::new(EmulatorOptions { profile, ..EmulatorOptions::of(&REGISTRY) })
}

fn judge(case: &CollectiveCase, machine: &mut Emulator) -> Verdict {
    runner::judge(case, machine, &Settings { registry: &REGISTRY, deadline: DEADLINE, shared_pads: false, progress: &|_| {} })
}

fn enqueue(group: usize, stream: usize, plan: &Arc<Plan>) -> Step {
    Step::Enqueue { group, stream, plan: plan.clone() }
}

fn run(machine: &mut Emulator, steps: Vec<Step>) -> Result<Run, MachineError> {
    machine.run(&Script { steps }, DEADLINE)
}

/// A group with a buffer and two words on each rank, and a plan for its ranks.
fn with_words(machine: &mut Emulator, world: usize, ops: impl Fn(u32) -> Vec<Op>) -> (usize, Arc<Plan>) {
    let buffers = [BufferSpec::new("data", 64, Role::State), BufferSpec::new("words", 8, Role::Signals)];
    let group = machine.open_group(world, &buffers).unwrap();
    (group, Arc::new(Plan::per_rank("words", world as u32, ops)))
}

fn write_word(to_rank: Option<u32>, at: u64, value: u32) -> Op {
    Op::WriteValue { to: Region::new("words", at, 4), value, to_rank }
}

fn wait_for_word(at: u64) -> Op {
    Op::WaitValue { at: Region::new("words", at, 4), value: 1 }
}

/// What machines with GPUs replay from an earlier capture, this one carries out again. If this fails, a script's graph is that of an earlier script's plans
/// or group.
#[test]
fn a_graph_is_of_its_own_plans_and_group() {
    let a = BufferSpec::new("a", 8, Role::Data);
    let fill = |byte| Arc::new(Plan::per_rank("fill", 2, |_| vec![Op::Fill { region: a.whole(), byte }]));
    let (one, two) = (fill(1), fill(2));
    let mut machine = Emulator::new(EmulatorOptions::default());
    let replayed = |machine: &mut Emulator, group: usize, plan: &Arc<Plan>| {
        machine.write(group, 1, &a.whole(), &[0; 8]).unwrap();
        let capture = Step::Capture { graph: 0, group, plans: vec![plan.clone()] };
        run(machine, vec![capture, Step::Replay { graph: 0, stream: 0 }]).unwrap();
        machine.read(group, 1, &a.whole()).unwrap()[0]
    };
    for buffers in [vec![a.clone()], vec![BufferSpec::new("pad", 4096, Role::Data), a.clone()]] {
        let group = machine.open_group(2, &buffers).unwrap();
        assert_eq!([&one, &one, &two, &one].map(|plan| replayed(&mut machine, group, plan)), [1, 1, 2, 1]);
        machine.close_groups();
    }
}

/// Rank 0 fills its data, copies it to rank 1 and says so; rank 1 copies it on within its own memory when `op` lets it.
fn message(write: Option<Op>, wait: Option<Op>) -> impl Fn(u32) -> Vec<Op> {
    let data = |at| Region::new("data", at, 16);
    move |rank| match rank {
        0 => {
            let fill = Op::Fill { region: data(0), byte: 7 };
            let copy = Op::Copy { from: data(0), to: data(16), to_rank: Some(1) };
            [fill, copy].into_iter().chain(write.clone()).collect()
        }
        _ => wait.clone().into_iter().chain([Op::Copy { from: data(16), to: data(32), to_rank: None }]).collect(),
    }
}

/// If this fails, copies to peers go astray, or a wait lets its stream go on before its word is there.
#[test]
fn a_stream_that_waits_for_a_word_goes_on_when_it_is_written() {
    for n in 0..9 {
        let mut machine = in_profile(Profile::Hopper);
        machine.set_interleaving(Interleaving::nth(1, n));
        let (group, plan) = with_words(&mut machine, 2, message(Some(write_word(Some(1), 4, 1)), Some(wait_for_word(4))));
        let delay = Step::Delay { rank: 0, microseconds: 50 };
        run(&mut machine, vec![delay, enqueue(group, 0, &plan)]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(machine.read(group, 1, &Region::new("data", 32, 16)).unwrap(), [7; 16]);
        assert_eq!(machine.read(group, 0, &Region::new("data", 16, 16)).unwrap(), [0; 16], "the copy went to the peer");
    }
}

/// If this fails, a stream's write of a word releases nothing, its wait acquires nothing, or either orders without the other.
#[test]
fn words_order_what_streams_of_different_ranks_do() {
    let of = |write: Option<Op>, wait: Option<Op>| {
        let mut machine = in_profile(Profile::Ptx);
        let (group, plan) = with_words(&mut machine, 2, message(write, wait));
        (0..2).for_each(|rank| machine.write(group, rank, &Region::new("words", 4, 4), &[0; 4]).unwrap());
        run(&mut machine, vec![enqueue(group, 0, &plan)])
    };
    let write = || Some(write_word(Some(1), 4, 1));
    of(write(), Some(wait_for_word(4))).expect("ordered by the word");
    for (write, wait) in [(write(), None), (None, None)] {
        let error = of(write, wait).unwrap_err();
        let MachineError::Races { findings, ended: None, .. } = &error else { panic!("{error}") };
        assert!(findings[0].contains("rank 1 data+16..32") && findings[0].contains("synchronisation between ranks"), "{error}");
    }
    // The word is written, but before what it is to tell of.
    let mut machine = in_profile(Profile::Ptx);
    let early = |rank| {
        let mut ops = message(Some(write_word(Some(1), 4, 1)), Some(wait_for_word(4)))(rank);
        if rank == 0 {
            ops.swap(1, 2);
        }
        ops
    };
    let (group, plan) = with_words(&mut machine, 2, early);
    let error = run(&mut machine, vec![enqueue(group, 0, &plan)]).unwrap_err();
    assert!(matches!(error, MachineError::Races { ended: None, .. }), "{error}");
}

/// If this fails, nobody learns which rank and which word a stream waited for.
#[test]
fn a_word_that_nobody_writes_is_a_deadlock_that_names_it() {
    let mut machine = in_profile(Profile::Hopper);
    let (group, plan) =
        with_words(&mut machine, 3, |rank| if rank == 2 { vec![write_word(Some(0), 4, 1)] } else { vec![wait_for_word(4)] });
    let error = run(&mut machine, vec![Step::Leave { rank: 2, how: Departure::Idle }, enqueue(group, 1, &plan)]).unwrap_err();
    let MachineError::Hang { cause, unfinished, standing, .. } = &error else { panic!("{error}") };
    assert_eq!(cause, "deadlock: streams wait for words that nobody is left to write");
    assert_eq!(unfinished[..], [0, 1]);
    let expected = [
        "rank 0 stream 1 waits until rank 0 words+4 is 1: it is 0, and ranks [2] write 1",
        "rank 1 stream 1 waits until rank 1 words+4 is 1: it is 0, and ranks [] write 1",
    ];
    assert_eq!(standing, &expected);
}

/// If this fails, the picture of a run does not show what it waited for.
#[test]
fn a_wait_for_a_word_is_a_span_of_the_trace() {
    let mut machine = Emulator::new(EmulatorOptions { trace: true, ..EmulatorOptions::default() });
    let (group, plan) = with_words(&mut machine, 2, message(Some(write_word(Some(1), 4, 1)), Some(wait_for_word(4))));
    run(&mut machine, vec![Step::Delay { rank: 0, microseconds: 50 }, enqueue(group, 0, &plan)]).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&machine.take_trace().unwrap().json().unwrap()).unwrap();
    let waits = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["name"] == "waits for rank 1 words+4");
    let durations: Vec<f64> = waits.map(|event| event["dur"].as_f64().unwrap()).collect();
    assert!(matches!(durations[..], [dur] if dur >= 50.0), "{durations:?}");
}

/// If this fails, a rank that is late, a call ahead or in two groups at once meets the words of another call, or of another group.
#[rstest]
#[case::sequence(
    "all_gather/copy_engine:bf16,copy:w=4:calls=copy_engine.9+[copy_engine.40.in_place+push.7]x3+copy_engine.5.off3.g1+copy_engine.33"
)]
#[case::late("all_gather/copy_engine:f64,copy:w=3:n=301:off=1:in_place:skew=r2+20us")]
#[case::late_reduction("all_reduce/copy_engine:f16,avg:w=5:n=301:off=1:in_place:skew=r2+20us")]
#[case::of_both(
    "all_reduce/copy_engine:bf16,sum:w=3:calls=copy_engine.70+[two_shot.9+copy_engine.33.in_place]x2+copy_engine.5.off3.g1+one_shot.7"
)]
fn copy_engines_keep_calls_apart(#[case] id: &str) {
    let mut machine = in_profile(Profile::Hopper);
    for n in 0..5 {
        machine.set_interleaving(Interleaving::nth(7, n));
        let verdict = judge(&id.parse().unwrap(), &mut machine);
        assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
        assert!(verdict.waived.iter().all(|waived| !waived.what.contains("a copy")), "{verdict:#?}");
    }
}

/// If this fails, copy engines rely on more than that words release and acquire.
#[rstest]
fn copy_engines_keep_to_the_letter(#[values("all_gather/copy_engine:bf16,copy", "all_reduce/copy_engine:bf16,sum")] of: &str) {
    let mut machine = in_profile(Profile::Ptx);
    for n in 0..6 {
        machine.set_interleaving(Interleaving::nth(2, n));
        let verdict = judge(&format!("{of}:w=3:n=1040").parse().unwrap(), &mut machine);
        assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
        assert!(verdict.waived.is_empty(), "{verdict:#?}");
    }
}

/// If this fails, nobody learns which rank the streams of the others wait for.
#[rstest]
fn a_rank_that_stays_away_from_copy_engines_is_named(#[values("all_gather", "all_reduce")] collective: &str) {
    let op = if collective == "all_gather" { "copy" } else { "sum" };
    let id = format!("{collective}/copy_engine:bf16,{op}:w=4:n=500:fault=absent@r3");
    let verdict = judge(&id.parse().unwrap(), &mut in_profile(Profile::Hopper));
    assert_eq!(verdict.came_to, Some(Status::Hang), "{verdict:#?}");
    let details = &verdict.findings[0].details;
    assert!(details.lines().count() == 3 && details.lines().all(|line| line.ends_with("it is 0, and ranks [3] write 1")), "{details}");
}

/// If this fails, an all-gather of copy engines needs an SM.
#[test]
fn copy_engines_gather_without_a_kernel() {
    let verdict = |id: &str| id.parse::<Case>().unwrap().modules(&REGISTRY, 4).into_iter().collect::<Vec<_>>();
    assert_eq!(verdict("all_gather/copy_engine:bf16,copy:w=4:n=500"), ["conformance/fill"]);
    assert_eq!(verdict("all_reduce/copy_engine:bf16,sum:w=4:n=500"), ["all_reduce/copy_engine", "conformance/fill"]);
}

/// If this fails, blocks that hold do not come, do not go when they are asked to, or go before that. Then what tests/cuda_machine.rs says of copy
/// engines means nothing.
#[rstest]
fn blocks_hold_until_they_are_told_or_give_up(
    #[values(Profile::Hopper, Profile::Ptx)] profile: Profile,
    #[values(Collective::AllGather, Collective::AllToAll)] collective: Collective,
) {
    let algorithm = REGISTRY.find(collective, "copy_engine").unwrap();
    for (limit, tells, outcome) in [(Duration::from_secs(10), true, Holders::TOLD), (Duration::from_micros(200), false, Holders::GAVE_UP)] {
        for n in 0..4 {
            let mut machine = in_profile(profile);
            machine.set_interleaving(Interleaving::nth(5, n));
            let holders = Holders { blocks: 5, shared: 64 << 10, limit };
            let outcomes = occupancy::outcomes(&holders, &mut machine, &*algorithm, (3, 50), tells);
            assert_eq!(outcomes, vec![vec![outcome; 5]; 3]);
        }
    }
}
