//! The emulator: whole cases on the CPU, what it says of kernels that hang or go astray, and that a seed is a run.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
    time::Duration,
};

use passmuster_harness::{
    conformance::{
        CollectiveCase, Fault, List, Status, Verdict,
        runner::{self, Settings},
    },
    emulator::{self, Arithmetic, Emulator, EmulatorOptions, Interleaving, MultimemReduction, Profile, Strategy},
};
use passmuster_plan::{
    algorithms::{Registry, Target},
    collective::{Collective, DType, ReduceOp, reduce_in_order},
    device::DeviceModel,
    library::Library,
    machine::{self, CANARY, Elapsed, Machine, MachineError, Run, Site},
    plan::{Arg, BufferSpec, Call, Departure, Launch, Op, Plan, RankCall, Region, Role, Script, Step, TensorMap},
};
use rstest::rstest;

const DEADLINE: Duration = Duration::from_secs(120);

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| passmuster_harness::registry(passmuster_kernels::catalogue()));

fn emulator(seed: u64) -> Emulator {
    Emulator::new(EmulatorOptions { seed, ..EmulatorOptions::of(&REGISTRY) })
}

fn emulator_with(library: Library) -> Emulator {
    Emulator::new(EmulatorOptions { library, ..EmulatorOptions::default() })
}

fn judge(case: &CollectiveCase, machine: &mut Emulator) -> Verdict {
    runner::judge(case, machine, &Settings { registry: &REGISTRY, deadline: DEADLINE, shared_pads: false, progress: &|_| {} })
}

const COUNT: u64 = 1037;

/// A group with what an all-reduce of f32 needs, its inputs written but for those of ranks that `without` names, and its plan.
fn set_up(machine: &mut Emulator, algorithm: &str, world: usize, without: Option<usize>) -> (usize, Arc<Plan>) {
    let algorithm = REGISTRY.find(Collective::AllReduce, algorithm).unwrap();
    let bytes = COUNT * 4;
    let mut buffers = vec![BufferSpec::new("input", bytes, Role::Data), BufferSpec::new("output", bytes, Role::Data)];
    let (input, output) = (buffers[0].whole(), buffers[1].whole());
    buffers.extend(algorithm.workspace(DType::F32, world as u32, bytes));
    let rank = RankCall {
        collective: Collective::AllReduce,
        dtype: DType::F32,
        op: ReduceOp::Sum,
        count: COUNT,
        root: 0,
        factor: None,
        parts: None,
        input: input.clone(),
        output,
    };
    let call = Call::validate(&vec![rank; world], &buffers).unwrap();
    let target = Target { waiting_blocks: machine.waiting_blocks(world, 1), ..Target::default() };
    let group = machine.open_group(world, &buffers).unwrap();
    for rank in (0..world).filter(|&rank| Some(rank) != without) {
        write_input(machine, group, rank, 0);
    }
    (group, Arc::new(algorithm.plan(&call, &target)))
}

/// Writes a rank's input, another one for each call.
fn write_input(machine: &mut Emulator, group: usize, rank: usize, call: u64) {
    let values: Vec<u8> = (call..call + COUNT).flat_map(|i| value(rank, i).to_le_bytes()).collect();
    machine.write(group, rank, &Region::new("input", 0, COUNT * 4), &values).unwrap();
}

/// What an all-reduce of three ranks gives.
fn expected(call: u64) -> Vec<u8> {
    (call..call + COUNT).flat_map(|i| reduce_in_order(ReduceOp::Sum, &[value(0, i), value(1, i), value(2, i)]).to_le_bytes()).collect()
}

fn value(rank: usize, i: u64) -> f32 {
    1.0 / ((i * 31 + rank as u64 * 17) % 97 + 1) as f32
}

fn output(machine: &mut Emulator, group: usize, rank: usize) -> Vec<u8> {
    machine.read(group, rank, &Region::new("output", 0, COUNT * 4)).unwrap()
}

fn enqueue(group: usize, stream: usize, plan: &Arc<Plan>) -> Step {
    Step::Enqueue { group, stream, plan: plan.clone() }
}

fn run(machine: &mut Emulator, steps: Vec<Step>) -> Result<Run, MachineError> {
    machine.run(&Script { steps }, DEADLINE)
}

/// A library with one kernel of its own under the name of the fault kernels' module.
fn kernel(body: &str) -> Library {
    let text = format!(
        ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry own(.param .u64 own_param_0)\n{{\n\
         .reg .pred %p<4>;\n.reg .b32 %r<8>;\n.reg .b64 %rd<4>;\nld.param.u64 %rd1, [own_param_0];\n{body}\nret;\n}}\n"
    );
    let mut library = Library::default();
    library.replace("conformance/faults", text);
    library
}

/// A launch of that kernel, but for its arguments.
fn own() -> Launch {
    Launch { waits_for_peers: true, ..Launch::new("conformance/faults", "own", (1, 64), Vec::new()) }
}

/// That kernel on a buffer of eight bytes in a group of two, on the ranks named.
fn run_kernel(machine: &mut Emulator, role: Role, ranks: &[u32]) -> Result<Run, MachineError> {
    let buffer = BufferSpec::new("flag", 8, role);
    let group = machine.open_group(2, std::slice::from_ref(&buffer))?;
    let launch = Op::Launch(Launch { args: vec![Arg::Address(buffer.whole())], ..own() });
    let plan = Arc::new(Plan::per_rank("own", 2, |rank| if ranks.contains(&rank) { vec![launch.clone()] } else { vec![] }));
    run(machine, vec![enqueue(group, 0, &plan)])
}

/// If this fails, kernels that pass on GPUs do not pass here, or the other way round.
#[rstest]
fn the_smoke_list_passes(
    #[values("one_shot", "two_shot", "one_shot_push", "two_shot_push", "push", "copy_engine")] algorithm: &str,
    #[values(1, 2, 3, 4, 8)] world: u32,
) {
    let mut machine = emulator(0);
    let cases = List::Smoke.cases(&REGISTRY, 0);
    let small =
        cases.iter().filter(|case| case.algorithm == algorithm && case.world == world && case.calls.is_empty() && case.count < 2500);
    let sample: Vec<&CollectiveCase> = small.take(4).collect();
    assert!(!sample.is_empty());
    for case in sample {
        let verdict = judge(case, &mut machine);
        assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
        assert!(verdict.held.contains(&"reference".into()), "{verdict:#?}");
    }
}

/// If this fails, what wraps algorithms, or calls that only some have, do not pass: memory that peers cannot address, products with factors, parts.
#[rstest]
fn what_wraps_algorithms_passes_its_smoke_list(
    #[values(
        |case: &CollectiveCase| case.algorithm == "unregistered",
        |case: &CollectiveCase| case.op == ReduceOp::PremulSum,
        |case: &CollectiveCase| case.counts.is_some()
    )]
    is: fn(&CollectiveCase) -> bool,
) {
    let mut cases = List::Smoke.cases(&REGISTRY, 0);
    cases.retain(|case| is(case) && case.calls.is_empty());
    assert!(cases.len() > 2, "{}", cases.len());
    for case in cases {
        let verdict = judge(&case, &mut emulator(0));
        assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
        assert!(verdict.held.contains(&"reference".into()), "{verdict:#?}");
    }
}

/// Small cases of the merge list, no sequences.
fn merged(collective: Collective, algorithm: &str, world: u32) -> Vec<CollectiveCase> {
    let mut cases = List::Merge.cases(&REGISTRY, 0);
    let is_small = |case: &CollectiveCase| case.calls.is_empty() && case.count * u64::from(world) < 20_000;
    cases.retain(|case| (case.collective, &*case.algorithm, case.world) == (collective, algorithm, world) && is_small(case));
    cases
}

/// In every way in which the switch may add: if this fails, a kernel or its contract relies on what PTX does not promise.
#[rstest]
fn multimem_passes(#[values("multimem", "multimem_one_shot")] algorithm: &str, #[values(2, 3, 4, 6, 8, 16)] world: u32) {
    for multimem in MultimemReduction::ALL {
        let mut machine = Emulator::new(EmulatorOptions {
            arithmetic: Arithmetic { multimem, ..Arithmetic::default() },
            seed: 3,
            ..EmulatorOptions::of(&REGISTRY)
        });
        let cases = merged(Collective::AllReduce, algorithm, world);
        for (dtype, op) in
            [(DType::F32, ReduceOp::Sum), (DType::F16, ReduceOp::Sum), (DType::BF16, ReduceOp::Sum), (DType::BF16, ReduceOp::Min)]
        {
            let sample: Vec<&CollectiveCase> = cases.iter().filter(|case| (case.dtype, case.op) == (dtype, op)).take(2).collect();
            assert!(!sample.is_empty(), "{dtype} {op}");
            for case in sample {
                let verdict = judge(case, &mut machine);
                assert_eq!(verdict.status, Status::Pass, "{multimem:?} {verdict:#?}");
                assert!(verdict.held.contains(&"reference".into()), "{verdict:#?}");
            }
        }
    }
}

/// Slots of 16-bit elements end where no multimem access does: the last elements of each go by the ranks' own addresses.
#[rstest]
fn multimem_of_other_collectives_passes(
    #[values(Collective::AllGather, Collective::ReduceScatter, Collective::Broadcast)] collective: Collective,
    #[values(2, 3, 8, 16)] world: u32,
) {
    let cases = merged(collective, "multimem", world);
    assert!(cases.len() > 2, "{}", cases.len());
    for case in cases.iter().take(4) {
        let verdict = judge(case, &mut emulator(5));
        assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
        assert!(verdict.held.contains(&"reference".into()), "{verdict:#?}");
    }
}

/// The largest world goes round the loop of loads twice.
#[rstest]
fn sixteen_ranks_pass(#[values("one_shot", "two_shot", "one_shot_push", "two_shot_push", "push", "copy_engine")] algorithm: &str) {
    let cases = merged(Collective::AllReduce, algorithm, 16);
    assert!(!cases.is_empty());
    for case in cases.iter().take(3) {
        let verdict = judge(case, &mut emulator(0));
        assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
    }
}

#[rstest]
#[case("all_reduce/multimem:bf16,avg:w=4:n=8", "rounded twice")]
#[case("all_reduce/multimem:f32,max:w=4:n=8", "not max of f32")]
#[case("all_reduce/multimem_one_shot:i32,sum:w=4:n=8", "not sum of i32")]
#[case("all_reduce/multimem_one_shot:f32,sum:w=1:n=8", "2 ranks or more")]
#[case("all_gather/multimem:f64,copy:w=1:n=8", "2 ranks or more")]
#[case("reduce_scatter/multimem:f64,sum:w=4:n=8", "not sum of f64")]
fn what_multimem_does_not_do_says_why(#[case] id: &str, #[case] why: &str) {
    let verdict = judge(&id.parse().unwrap(), &mut emulator(0));
    assert_eq!(verdict.status, Status::NotSupported);
    assert!(verdict.reason.contains(why), "{}", verdict.reason);
}

/// If this fails, a kernel passes for devices on which it cannot be launched.
#[rstest]
#[case("all_reduce/two_shot:bf16,sum:w=2:n=40", Status::Pass, "")]
#[case(
    "all_reduce/multimem:bf16,sum:w=2:n=40",
    Status::NotSupported,
    "not supported: PTX of `all_reduce/multimem` on the emulator: it is for sm_90, and a100 is sm_80: h100 or h200 or b200 would run it"
)]
fn ptx_runs_on_the_devices_that_it_is_for(#[case] id: &str, #[case] status: Status, #[case] why: &str) {
    let mut on_a100 = Emulator::new(EmulatorOptions { device: DeviceModel::A100, ..EmulatorOptions::of(&REGISTRY) });
    let verdict = judge(&id.parse().unwrap(), &mut on_a100);
    assert_eq!((verdict.status, &*verdict.reason), (status, why));
}

/// A kernel is given maps of its own memory and of peers', by value: rank 0 loads what rank 1 has and stores it in its own buffer, clipped.
#[test]
fn boxes_go_between_ranks_by_their_maps() {
    let text = ".version 9.0\n.target sm_90\n.address_size 64\n\
        .visible .entry own(.param .align 64 .b8 theirs[128], .param .align 64 .b8 mine[128])\n{\n\
        .reg .pred %p; .reg .b64 %rd<3>; .shared .align 128 .b8 room[128]; .shared .align 8 .b64 bar;\n\
        mov.b64 %rd1, theirs; cvta.param.u64 %rd1, %rd1; mov.b64 %rd2, mine; cvta.param.u64 %rd2, %rd2;\n\
        mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster; prefetch.tensormap [%rd1];\n\
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 64;\n\
        cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [room], [%rd1, {0, 1}], [bar];\n\
        WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p, [bar], 0; @!%p bra WAIT;\n\
        cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd2, {0, 1}], [room];\n\
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ret;\n}\n";
    let mut library = Library::default();
    library.replace("conformance/faults", text.to_owned());
    let mut machine = emulator_with(library);
    let buffer = BufferSpec::new("flag", 64, Role::State);
    let group = machine.open_group(2, std::slice::from_ref(&buffer)).unwrap();
    let map = TensorMap::packed(buffer.whole(), DType::F32, vec![4, 4], vec![4, 4], 32);
    let args = [Arg::TensorMap(TensorMap { of_rank: Some(1), ..map.clone() }), Arg::Struct(vec![Arg::TensorMap(map)])];
    let launch = Op::Launch(Launch { args: args.to_vec(), block: 1.into(), ..own() });
    let plan = Arc::new(Plan::per_rank("own", 2, |rank| if rank == 0 { vec![launch.clone()] } else { vec![] }));
    let bytes: Vec<u8> = (1..=64).collect();
    machine.write(group, 1, &buffer.whole(), &bytes).unwrap();
    run(&mut machine, vec![enqueue(group, 0, &plan)]).unwrap();
    // Rows 1 to 3 of rank 1's; the zeros from outside of it are outside here, too.
    let mut expected = [0_u8; 64];
    expected[16..].copy_from_slice(&bytes[16..]);
    assert_eq!(machine.read(group, 0, &buffer.whole()).unwrap(), expected);
    assert_eq!(machine.read(group, 1, &buffer.whole()).unwrap(), bytes);
}

/// What kernels are given is a multicast address of all ranks' regions, and of nothing else.
#[test]
fn multicast_arguments_reach_the_region_on_every_rank() {
    let body = "mov.u32 %r1, 7;\nmultimem.st.global.u32 [%rd1], %r1;";
    let buffer = BufferSpec::new("flag", 8, Role::State);
    for (arg, what) in [
        (Arg::Multicast(Region::new("flag", 4, 4)), None),
        (Arg::Address(Region::new("flag", 4, 4)), Some("rank 0 flag+4 is no multicast address")),
    ] {
        let mut machine = emulator_with(kernel(body));
        let group = machine.open_group(3, std::slice::from_ref(&buffer)).unwrap();
        let launch = Op::Launch(Launch { args: vec![arg], block: 1.into(), ..own() });
        let plan = Arc::new(Plan::per_rank("own", 3, |rank| if rank == 0 { vec![launch.clone()] } else { vec![] }));
        let result = run(&mut machine, vec![enqueue(group, 0, &plan)]);
        match what {
            None => {
                result.unwrap();
                for rank in 0..3 {
                    assert_eq!(machine.read(group, rank, &buffer.whole()).unwrap(), [0, 0, 0, 0, 7, 0, 0, 0], "rank {rank}");
                }
            }
            Some(what) => assert!(result.unwrap_err().to_string().contains(what)),
        }
    }
}

#[test]
fn sequences_with_several_groups_pass() {
    let id = "all_reduce/one_shot:bf16,sum:w=4:calls=one_shot.7+[two_shot.9+one_shot.33.in_place]x2+two_shot.5.off3.g1";
    let verdict = judge(&id.parse().unwrap(), &mut emulator(3));
    assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
}

#[test]
fn peers_do_what_the_reference_does() {
    let mut machine = emulator(0);
    let (group, plan) = set_up(&mut machine, "nccl_ring", 3, None);
    let capture = Step::Capture { graph: 0, group, plans: vec![plan.clone(), plan.clone()] };
    run(&mut machine, vec![enqueue(group, 0, &plan), capture, Step::Replay { graph: 0, stream: 0 }]).unwrap();
    for rank in 0..3 {
        assert!(output(&mut machine, group, rank) == expected(0), "rank {rank}");
    }
}

/// If this fails, a finding cannot be reproduced from its seed.
#[test]
fn a_seed_is_a_run() {
    let observed = |machine: &mut Emulator| {
        let (group, plan) = set_up(machine, "two_shot", 3, None);
        let delay = Step::Delay { rank: 1, microseconds: 3 };
        let Run { marks, waived, .. } =
            run(machine, vec![Step::Mark, enqueue(group, 0, &plan), delay, enqueue(group, 0, &plan), Step::Mark]).unwrap();
        let outputs: Vec<Vec<u8>> = (0..3).map(|rank| output(machine, group, rank)).collect();
        machine.close_groups();
        (marks, outputs, waived)
    };
    let mut machine = emulator(5);
    let first = observed(&mut machine);
    assert_eq!(first.0.len(), 1);
    assert!(first.0[0].iter().all(|&microseconds| microseconds > 0.0), "{:?}", first.0);
    assert!(first == observed(&mut machine), "what ran before has no influence");
    assert!(first == observed(&mut emulator(5)));
    let other = observed(&mut emulator(6));
    assert!(first.1 == other.1 && first.0 != other.0, "another schedule, the same numbers");
}

#[test]
fn a_rank_that_stays_away_is_named_by_those_that_wait() {
    let mut machine = emulator(0);
    let (group, plan) = set_up(&mut machine, "two_shot", 3, None);
    let error = run(&mut machine, vec![enqueue(group, 0, &plan), Step::Leave { rank: 1, how: Departure::Idle }, enqueue(group, 0, &plan)])
        .unwrap_err();
    let MachineError::Hang { stuck, after: Elapsed::EmulatedNs(after), .. } = &error else { panic!("{error}") };
    assert!((2_000_000_000..3_000_000_000).contains(after), "{error}");
    assert!(stuck.iter().any(|entry| entry.peer == 1), "{error}");
    assert!(stuck.iter().all(|entry| entry.rank != 1 && entry.site == Site::Start), "{error}");
    machine.close_groups();
    let (group, plan) = set_up(&mut machine, "two_shot", 3, None);
    run(&mut machine, vec![enqueue(group, 0, &plan)]).expect("a hang leaves nothing behind");
}

#[test]
fn a_host_that_sleeps_is_waited_for() {
    let mut machine = emulator(0);
    let (group, plan) = set_up(&mut machine, "one_shot", 2, None);
    let sleeps = |milliseconds: u64| Step::Delay { rank: 0, microseconds: milliseconds * 1000 };
    let marks = run(&mut machine, vec![Step::Mark, sleeps(1500), enqueue(group, 0, &plan), Step::Mark]).unwrap().marks;
    assert!(marks[0].iter().all(|&microseconds| (1.5e6..1.6e6).contains(&microseconds)), "{marks:?}");
    let error = run(&mut machine, vec![sleeps(10_000), enqueue(group, 0, &plan)]).unwrap_err();
    assert!(error.to_string().contains("waited for rank 0"), "{error}");
}

#[rstest]
#[case::absent(Fault::Absent(1), Status::Hang, "waited for rank 1 ")]
#[case::illegal_address(Fault::IllegalAddress(1), Status::Crash, "ranks [1]: kernel `illegal_address` failed: illegal address")]
fn injected_faults_are_named(#[case] fault: Fault, #[case] status: Status, #[case] words: &str) {
    let mut case = CollectiveCase::new(Collective::AllReduce, "one_shot", DType::BF16, ReduceOp::Sum, 2, 500);
    case.fault = Some(fault);
    let verdict = judge(&case, &mut emulator(0));
    assert_eq!((verdict.status, verdict.came_to), (Status::Pass, Some(status)), "{verdict:#?}");
    assert!(verdict.reason.contains(words), "{}", verdict.reason);
}

const WAITS_FOR_EVER: &str = "again:\nld.acquire.sys.global.u32 %r1, [%rd1];\nsetp.eq.s32 %p1, %r1, 0;\n@%p1 bra again;\n";

#[test]
fn a_wait_that_nobody_ends_is_a_proved_deadlock() {
    let mut machine = emulator_with(kernel(WAITS_FOR_EVER));
    let error = run_kernel(&mut machine, Role::Signals, &[1]).unwrap_err();
    let MachineError::Hang { cause, unfinished, standing, .. } = &error else { panic!("{error}") };
    assert!(cause.starts_with("deadlock"), "{error}");
    assert_eq!(unfinished[..], [1]);
    assert!(!standing.is_empty());
    for warp in standing {
        assert!(warp.contains("rank 1") && warp.contains("block 0") && warp.contains("warp") && warp.contains("PTX"), "{warp}");
    }
}

#[test]
fn ranks_in_a_library_call_without_the_others_are_a_deadlock() {
    let mut machine = emulator(0);
    let (group, plan) = set_up(&mut machine, "nccl_ring", 3, None);
    let error = run(&mut machine, vec![Step::Leave { rank: 2, how: Departure::Idle }, enqueue(group, 0, &plan)]).unwrap_err();
    let MachineError::Hang { cause, unfinished, standing, .. } = &error else { panic!("{error}") };
    assert!(cause.starts_with("deadlock"), "{error}");
    assert_eq!(unfinished[..], [0, 1]);
    assert!(standing.iter().all(|place| place.contains("waits for ranks [2]")), "{standing:?}");
}

/// The first has the same state again, which proves it; the second has a new one for ever, but no way out; both whatever they write.
#[rstest]
#[case::same_state("again:\nbra again;")]
#[case::new_states("mov.u32 %r1, 0;\nagain: add.u32 %r1, %r1, 1;\nbra again;")]
#[case::that_writes("mov.u32 %r1, 0;\nagain: add.u32 %r1, %r1, 1;\nst.relaxed.sys.global.u32 [%rd1], %r1;\nbra again;")]
fn a_loop_without_end_is_a_hang_and_not_called_a_deadlock(#[case] body: &str) {
    let options = EmulatorOptions { library: kernel(body), steps: 10_000_000, ..EmulatorOptions::default() };
    let error = run_kernel(&mut Emulator::new(options), Role::Signals, &[0]).unwrap_err();
    let MachineError::Hang { cause, .. } = &error else { panic!("{error}") };
    assert_eq!(cause, "a loop without end: from where lanes of a kernel are, no branch leads out of it", "{error}");
}

/// If this fails, a wait that looks at a clock is given up long before an hour of emulated time, or long after it.
#[rstest]
#[case::half_an_hour(30, false)]
#[case::two_hours(120, true)]
fn waits_by_the_clock_have_an_hour(#[case] minutes: u64, #[case] hangs: bool) {
    let nanoseconds = minutes * 60_000_000_000;
    let waits = format!(
        "mov.u64 %rd2, %globaltimer;\nagain: mov.u64 %rd3, %globaltimer;\nsub.u64 %rd3, %rd3, %rd2;\nsetp.lt.u64 %p1, %rd3, {nanoseconds};\n\
         @%p1 bra again;\n"
    );
    let ran = run_kernel(&mut emulator_with(kernel(&waits)), Role::Signals, &[0]);
    match ran {
        Err(MachineError::Hang { .. }) if hangs => {}
        Ok(_) if !hangs => {}
        other => panic!("{minutes} minutes: {other:?}"),
    }
}

/// Counts to `%r2`, and may be done some day.
const WORKS: &str = "mov.u32 %r2, 4000000000;\nagain: sub.u32 %r2, %r2, 1;\nsetp.ne.u32 %p1, %r2, 0;\n@%p1 bra again;\n";

/// If this fails, a slow machine or a long run makes a finding of a kernel that works.
#[test]
fn running_out_of_steps_or_time_is_inconclusive_and_says_how_far_it_came() {
    let options = EmulatorOptions { library: kernel(WORKS), steps: 10_000_000, ..EmulatorOptions::default() };
    let mut machine = Emulator::new(options.clone());
    let error = run_kernel(&mut machine, Role::Signals, &[0]).unwrap_err();
    let MachineError::Inconclusive { reason, .. } = &error else { panic!("{error}") };
    for part in [
        "10000000 thread instructions were not enough (--steps N allows more); after 9.7",
        " us of emulated time and 100",
        "ranks [0] are not done; rank 0 stream 0 `own` block 0 warp 0 lanes 0xffffffff runs at PTX ",
    ] {
        assert!(reason.contains(part), "{reason}\nhas no {part}");
    }
    assert_eq!(Status::of(&error), Status::Inconclusive);

    machine.close_groups();
    let mut machine = Emulator::new(EmulatorOptions { steps: u64::MAX, ..options });
    let buffer = BufferSpec::new("flag", 8, Role::Signals);
    let group = machine.open_group(1, std::slice::from_ref(&buffer)).unwrap();
    let launch = Op::Launch(Launch { args: vec![Arg::Address(buffer.whole())], ..own() });
    let plan = Arc::new(Plan::per_rank("own", 1, |_| vec![launch.clone()]));
    let error = machine.run(&Script { steps: vec![enqueue(group, 0, &plan)] }, Duration::ZERO).unwrap_err();
    let MachineError::Inconclusive { reason, .. } = &error else { panic!("{error}") };
    assert!(reason.starts_with("0 s of wall time were not enough (--deadline SECONDS allows more); after "), "{reason}");
}

/// If this fails, a race that was seen is lost when the run ends at a limit.
#[test]
fn races_before_a_limit_are_a_finding() {
    let body = format!("st.global.u32 [%rd1+4], 1;\n{WORKS}");
    let options = EmulatorOptions { library: kernel(&body), steps: 10_000_000, ..EmulatorOptions::default() };
    let error = run_kernel(&mut Emulator::new(options), Role::Signals, &[0]).unwrap_err();
    let MachineError::Races { ended: Some(ended), .. } = &error else { panic!("{error}") };
    assert!(matches!(**ended, MachineError::Inconclusive { .. }), "{error}");
    assert_eq!(Status::of(&error), Status::Fail);
}

/// Thread 0 looks at the word and tells its block, as Triton's scalar loads and atomics do.
const POLLS_THROUGH_A_BARRIER: &str = ".shared .align 4 .b32 seen;\nmov.u32 %r3, %tid.x;\nsetp.eq.u32 %p1, %r3, 0;\n\
    again:\n@%p1 ld.acquire.sys.global.u32 %r1, [%rd1];\n@%p1 st.shared.u32 [seen], %r1;\nbar.sync 0;\nld.shared.u32 %r2, [seen];\n\
    bar.sync 0;\nsetp.eq.u32 %p2, %r2, 0;\n@%p2 bra again;\n";

/// Every thread looks, and all go on together.
const ALL_POLL_THROUGH_A_BARRIER: &str = "again:\nld.acquire.sys.global.u32 %r1, [%rd1];\nsetp.eq.u32 %p1, %r1, 0;\n\
    bar.red.or.pred %p2, 0, %p1;\n@%p2 bra again;\n";

/// Looks at two words in turn, by one instruction.
const POLLS_TWO_WORDS: &str = "again:\nmov.u64 %rd2, %rd1;\nmov.u32 %r2, 0;\nmov.u32 %r3, 0;\nnext:\n\
    ld.acquire.sys.global.u32 %r1, [%rd2];\nor.b32 %r2, %r2, %r1;\nadd.u64 %rd2, %rd2, 4;\nadd.u32 %r3, %r3, 1;\n\
    setp.lt.u32 %p1, %r3, 2;\n@%p1 bra next;\nsetp.eq.u32 %p2, %r2, 0;\n@%p2 bra again;\n";

/// Keeps what it saw in local memory.
const POLLS_BY_LOCAL_MEMORY: &str = ".local .align 4 .b32 seen;\nagain:\nld.acquire.sys.global.u32 %r1, [%rd1];\nst.local.u32 [seen], %r1;\n\
    ld.local.u32 %r2, [seen];\nsetp.eq.u32 %p1, %r2, 0;\n@%p1 bra again;\n";

/// Counts its looks in memory that others can see: nothing tells this from work.
const WRITES_WHILE_IT_WAITS: &str = "mov.u32 %r3, 0;\nagain:\nadd.u32 %r3, %r3, 1;\nst.relaxed.sys.global.u32 [%rd1+4], %r3;\n\
    ld.acquire.sys.global.u32 %r1, [%rd1];\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra again;\n";

/// If this fails, a deadlock is an endless run where kernels poll otherwise than by a load and a branch.
#[rstest]
fn deadlocks_are_proved_however_kernels_poll(
    #[values(POLLS_THROUGH_A_BARRIER, ALL_POLL_THROUGH_A_BARRIER, POLLS_TWO_WORDS, POLLS_BY_LOCAL_MEMORY)] body: &str,
    #[values(0, 1, 2, 3)] schedule: usize,
) {
    let mut machine = Emulator::new(EmulatorOptions { library: kernel(body), steps: 10_000_000, ..EmulatorOptions::default() });
    machine.set_interleaving(Interleaving::nth(1, schedule));
    let error = run_kernel(&mut machine, Role::Signals, &[0, 1]).unwrap_err();
    let MachineError::Hang { cause, unfinished, .. } = &error else { panic!("{error}") };
    assert!(cause.starts_with("deadlock: every warp that is left"), "{error}");
    assert_eq!(unfinished[..], [0, 1]);
}

/// If this fails, a correct kernel runs out of steps where the rank that it waits for is held back, or sleeps.
#[rstest]
fn a_rank_that_is_waited_for_gets_turns_under_every_schedule(
    #[values(POLLS_THROUGH_A_BARRIER, ALL_POLL_THROUGH_A_BARRIER, POLLS_TWO_WORDS, POLLS_BY_LOCAL_MEMORY, WRITES_WHILE_IT_WAITS)]
    body: &str,
    #[values(0, 50_000_000)] sleeps: u64,
) {
    let counts = body == WRITES_WHILE_IT_WAITS;
    if counts && sleeps > 0 {
        // Emulated time goes on by steps only where somebody works.
        return;
    }
    let steps = if counts { 1 << 30 } else { 10_000_000 };
    let mut machine = Emulator::new(EmulatorOptions { library: kernel(body), steps, ..EmulatorOptions::default() });
    let flag = BufferSpec::new("flag", 8, Role::Signals);
    for n in 0..12 {
        machine.close_groups();
        machine.set_interleaving(Interleaving::nth(9, n));
        let group = machine.open_group(3, std::slice::from_ref(&flag)).unwrap();
        let launch = Op::Launch(Launch { block: if counts { 1 } else { 64 }.into(), args: vec![Arg::Address(flag.whole())], ..own() });
        let write = |to| Op::WriteValue { to: Region::new("flag", 0, 4), value: 1, to_rank: Some(to) };
        let plan = Plan::per_rank("p", 3, |rank| if rank == 2 { vec![write(0), write(1)] } else { vec![launch.clone()] });
        let steps = vec![Step::Delay { rank: 2, microseconds: sleeps }, enqueue(group, 0, &Arc::new(plan))];
        run(&mut machine, steps).unwrap_or_else(|error| panic!("{}: {error}", Interleaving::nth(9, n)));
    }
}

/// If this fails, a kernel's own bound on a wait, in which it meets its block, is steps instead of time.
#[test]
fn waits_through_a_barrier_that_look_at_the_clock_end_by_it() {
    let body = ".shared .align 8 .b64 since;\nmov.u32 %r3, %tid.x;\nsetp.eq.u32 %p1, %r3, 0;\nmov.u64 %rd2, %globaltimer;\n\
        add.u64 %rd2, %rd2, 3000000000;\nagain:\n@%p1 mov.u64 %rd3, %globaltimer;\n@%p1 st.shared.u64 [since], %rd3;\nbar.sync 0;\n\
        ld.shared.u64 %rd3, [since];\nbar.sync 0;\nsetp.lt.u64 %p2, %rd3, %rd2;\n@%p2 bra again;\n";
    let mut machine = Emulator::new(EmulatorOptions { library: kernel(body), steps: 10_000_000, ..EmulatorOptions::default() });
    run_kernel(&mut machine, Role::Signals, &[0]).expect("three seconds pass");
}

/// Two blocks of a kernel on one rank.
fn run_two_blocks(body: &str) -> Result<Run, MachineError> {
    let options = EmulatorOptions {
        library: kernel(&format!("mov.u32 %r3, %ctaid.x;\nsetp.eq.u32 %p3, %r3, 0;\n{body}")),
        steps: 20_000_000,
        ..EmulatorOptions::default()
    };
    let mut machine = Emulator::new(options);
    let flag = BufferSpec::new("flag", 8, Role::Signals);
    let group = machine.open_group(1, std::slice::from_ref(&flag))?;
    let launch = Op::Launch(Launch { grid: 2.into(), args: vec![Arg::Address(flag.whole())], ..own() });
    let plan = Arc::new(Plan::per_rank("own", 1, |_| vec![launch.clone()]));
    run(&mut machine, vec![enqueue(group, 0, &plan)])
}

/// If this fails, a block that has ended without a word keeps the deadlock of the others from being seen.
#[test]
fn blocks_that_gave_up_are_forgotten() {
    let body = "mov.u32 %r2, 0;\nagain:\nld.acquire.sys.global.u32 %r1, [%rd1];\nadd.u32 %r2, %r2, 1;\nsetp.eq.u32 %p1, %r1, 1;\n\
        @%p1 bra done;\n@%p3 mov.u32 %r2, 0;\nsetp.lt.u32 %p2, %r2, 20000;\n@%p2 bra again;\ndone:";
    let error = run_two_blocks(body).unwrap_err();
    let MachineError::Hang { cause, .. } = &error else { panic!("{error}") };
    assert!(cause.starts_with("deadlock"), "{error}");
}

/// If this fails, a wait that is bounded by the clock gives up while the block that it waits for works, and meets its threads as it does.
#[test]
fn clocks_do_not_jump_while_a_block_works() {
    let body = "@!%p3 bra waits;\nmov.u32 %r2, 0;\nworks:\nbar.sync 0;\nadd.u32 %r2, %r2, 1;\nsetp.lt.u32 %p1, %r2, 20000;\n@%p1 bra works;\n\
        st.release.sys.global.u32 [%rd1], 1;\nbra done;\n\
        waits:\nmov.u64 %rd2, %globaltimer;\nadd.u64 %rd2, %rd2, 10000000;\n\
        again:\nld.acquire.sys.global.u32 %r1, [%rd1];\nsetp.eq.u32 %p1, %r1, 1;\n@%p1 bra done;\nmov.u64 %rd3, %globaltimer;\n\
        setp.lt.u64 %p2, %rd3, %rd2;\n@%p2 bra again;\ntrap;\ndone:";
    run_two_blocks(body).unwrap_or_else(|error| panic!("{error}"));
}

/// A wait that looks a limited number of times: no state comes again, and it ends.
#[test]
fn a_wait_that_counts_its_looks_is_no_deadlock() {
    let body = "mov.u32 %r2, 0;\nagain:\nld.volatile.global.u32 %r1, [%rd1];\nadd.u32 %r2, %r2, 1;\n\
                setp.eq.u32 %p1, %r1, 1;\n@%p1 bra done;\nsetp.lt.u32 %p2, %r2, 3000;\n@%p2 bra again;\ndone:";
    run_kernel(&mut emulator_with(kernel(body)), Role::Signals, &[0]).expect("it gives up by itself");
}

#[rstest]
#[case::never_written(Role::Data, "ld.global.u32 %r1, [%rd1+4];", "rank 0 flag+4 were read, of which the one at 4 was never written")]
#[case::behind(Role::State, "ld.global.u32 %r1, [%rd1+8];", "rank 0 flag+8 are out of bounds: the buffer has 8 bytes")]
#[case::before(Role::State, "st.global.u32 [%rd1+-4], 1;", "rank 0 flag-4 are out of bounds")]
fn memory_that_a_kernel_must_not_use_is_a_finding(#[case] role: Role, #[case] body: &str, #[case] what: &str) {
    let error = run_kernel(&mut emulator_with(kernel(body)), role, &[0]).unwrap_err();
    let MachineError::Finding { findings } = &error else { panic!("{error}") };
    assert!(findings[0].contains(what) && findings[0].contains("PTX"), "{findings:?}");
}

#[test]
fn inputs_that_were_never_written_are_findings_where_they_are_used() {
    for algorithm in ["one_shot", "two_shot", "one_shot_push", "two_shot_push", "push", "nccl_ring"] {
        let mut machine = emulator(1);
        let (group, plan) = set_up(&mut machine, algorithm, 3, Some(2));
        assert_eq!(machine.read(group, 2, &Region::new("input", 8, 4)).unwrap(), [CANARY; 4]);
        let error = run(&mut machine, vec![enqueue(group, 0, &plan)]).unwrap_err();
        let MachineError::Finding { findings } = &error else { panic!("{algorithm}: {error}") };
        assert!(findings[0].contains("rank 2 input"), "{algorithm}: {findings:?}");
    }
}

#[test]
fn streams_of_a_rank_are_in_order_and_independent() {
    let mut machine = emulator_with(kernel(WAITS_FOR_EVER));
    let flag = BufferSpec::new("flag", 8, Role::Signals);
    let group = machine.open_group(1, std::slice::from_ref(&flag)).unwrap();
    let launch = Launch { block: 32.into(), waits_for_peers: false, args: vec![Arg::Address(flag.whole())], ..own() };
    let write = |offset, value| Op::WriteValue { to: Region::new("flag", offset, 4), value, to_rank: None };
    let of = |ops: Vec<Op>| Arc::new(Plan::per_rank("p", 1, |_| ops.clone()));
    let waits = of(vec![Op::Launch(launch), write(4, 2)]);
    run(&mut machine, vec![enqueue(group, 0, &waits), enqueue(group, 1, &of(vec![write(0, 1)]))]).expect("the other stream ends the wait");
    assert_eq!(machine.read(group, 0, &flag.whole()).unwrap(), [1, 0, 0, 0, 2, 0, 0, 0]);
    machine.write(group, 0, &flag.whole(), &[0; 8]).unwrap();
    let error = run(&mut machine, vec![enqueue(group, 0, &waits), enqueue(group, 0, &of(vec![write(0, 1)]))]).unwrap_err();
    assert!(error.to_string().contains("deadlock"), "{error}");
}

const LETS_START: &str = "griddepcontrol.launch_dependents;";
const WRITES: &str = "griddepcontrol.launch_dependents;\nst.global.u32 [%rd1], 7;";
const WRITE: &str = "st.global.u32 [%rd1], 7;";
const ELSEWHERE: &str = "st.global.u32 [%rd1+8], 1;";
const READS: &str = "ld.global.u32 %r1, [%rd1];\nst.global.u32 [%rd1+4], %r1;";
const WAITS_AND_READS: &str = "griddepcontrol.wait;\nld.global.u32 %r1, [%rd1];\nst.global.u32 [%rd1+4], %r1;";

/// Operations of one stream: kernels of one thread on a buffer of 16 bytes, of which those that start with `+` are programmatic launches, and a fill
/// of its first eight; those that start with `>` are on a side stream, which `<` joins; `|` ends a call, and `caller` what a caller does between calls.
fn dependent(seed: u64, operations: &[&str]) -> Result<Vec<u8>, MachineError> {
    let mut library = Library::default();
    let mut plans = vec![(Vec::new(), false)];
    let flag = BufferSpec::new("flag", 16, Role::Data);
    let mut text = ".version 9.0\n.target sm_90\n.address_size 64\n".to_owned();
    for (index, operation) in operations.iter().enumerate() {
        if ["|", "caller"].contains(operation) {
            plans.last_mut().unwrap().1 = *operation == "caller";
            plans.push((Vec::new(), false));
            continue;
        }
        let here = operation.trim_start_matches('>');
        let body = here.trim_start_matches('+');
        let op = if body == "fill" {
            Op::Fill { region: Region::new("flag", 0, 8), byte: 0 }
        } else if body == "<" {
            Op::Join { stream: 1 }
        } else {
            text += &format!(
                ".visible .entry k{index}(.param .u64 flag)\n{{\n.reg .pred %p<4>;\n.reg .b32 %r<8>;\n.reg .b64 %rd<4>;\n\
                 ld.param.u64 %rd1, [flag];\n{body}\nret;\n}}\n"
            );
            let (programmatic, args) = (here != body, vec![Arg::Address(flag.whole())]);
            Op::Launch(Launch { entry: format!("k{index}"), block: 1.into(), waits_for_peers: false, programmatic, args, ..own() })
        };
        plans.last_mut().unwrap().0.push(if here == *operation { op } else { Op::beside(1, &[op]) });
    }
    library.replace("conformance/faults", text);
    let mut machine = Emulator::new(EmulatorOptions { library, seed, ..EmulatorOptions::default() });
    let group = machine.open_group(1, std::slice::from_ref(&flag)).unwrap();
    machine.write(group, 0, &flag.whole(), &[0; 16]).unwrap();
    let plans = plans.into_iter().map(|(ops, of_caller)| Arc::new(Plan { of_caller, ..Plan::per_rank("p", 1, |_| ops.clone()) }));
    let steps = plans.map(|plan| enqueue(group, 0, &plan)).collect();
    run(&mut machine, steps)?;
    machine.read(group, 0, &flag.whole())
}

/// If this fails, kernels pass that rely on an earlier launch without having waited for it, or kernels fail that have waited.
#[rstest]
#[case::waits(&[WRITES, &format!("+{WAITS_AND_READS}")], true)]
#[case::does_not_wait(&[WRITES, &format!("+{READS}")], false)]
#[case::of_another_call(&[WRITES, "|", &format!("+{READS}")], false)]
#[case::before_is_no_programmatic_launch(&[WRITES, READS], true)]
#[case::nobody_lets_it_start(&["st.global.u32 [%rd1], 7;", &format!("+{READS}")], true)]
#[case::waits_in_vain_for_one_that_did_not(&[WRITES, "+griddepcontrol.launch_dependents;", &format!("+{WAITS_AND_READS}")], false)]
#[case::waits_for_one_that_did(&[WRITES, "+griddepcontrol.launch_dependents;\ngriddepcontrol.wait;", &format!("+{WAITS_AND_READS}")], true)]
#[case::what_is_no_launch_waits_for_all(&[WRITES, "+griddepcontrol.launch_dependents;", "+st.global.u32 [%rd1+8], 1;", READS], true)]
#[case::a_fill_stands_for_a_kernel(&["fill", "|", &format!("+{READS}")], false)]
#[case::a_fill_stands_for_a_kernel_that_was_waited_for(&["fill", "|", &format!("+{WAITS_AND_READS}")], true)]
#[case::callers_kernel_not_waited_for(&[WRITE, "caller", &format!("+{READS}")], false)]
#[case::callers_kernel_waited_for(&[WRITE, "caller", &format!("+{WAITS_AND_READS}")], true)]
#[case::callers_first_of_two(&[WRITE, ELSEWHERE, "caller", &format!("+{READS}")], false)]
#[case::callers_plans_are_one(&[WRITE, "caller", ELSEWHERE, "caller", &format!("+{READS}")], false)]
#[case::before_the_caller(&[WRITE, "|", ELSEWHERE, "caller", &format!("+{READS}")], true)]
#[case::chain_that_waits(&["fill", "|", &format!("+griddepcontrol.wait;\n{WRITE}"), &format!("+{WAITS_AND_READS}")], true)]
#[case::chain_that_waits_twice(
    &["fill", "|", &format!("+griddepcontrol.wait;\n{WRITE}"), &format!("+{WAITS_AND_READS}"), &format!("+griddepcontrol.wait;\n{ELSEWHERE}"), READS],
    true
)]
#[case::chain_without_a_wait(&[WRITES, "+griddepcontrol.launch_dependents;", &format!("+{READS}")], false)]
#[case::a_fill_of_the_call_itself_does_not(&["fill", &format!("+{READS}")], true)]
#[case::its_own_stream_is_not(&[LETS_START, &format!(">+{WRITES}"), &format!(">+{READS}"), "<"], false)]
#[case::who_forks_it_is_waited_for(
    &[&format!(">{LETS_START}"), &format!(">+{LETS_START}"), "st.global.u32 [%rd1], 7;", &format!(">+{READS}"), "<"],
    true
)]
fn what_dependent_launches_may_read(#[case] operations: &[&str], #[case] right: bool) {
    for seed in 0..12 {
        let result = dependent(seed, operations);
        match (&result, right) {
            (Ok(bytes), true) => assert!(bytes[..4] == bytes[4..8] || bytes[4..8] == [0; 4], "{bytes:?}"),
            (Err(MachineError::Races { findings, .. }), false) => {
                assert!(findings[0].contains("griddepcontrol.wait is missing between"), "{findings:?}")
            }
            _ => panic!("{result:?}"),
        }
    }
}

/// If this fails, what only shows where two launches overlap is never seen.
#[test]
fn a_dependent_launch_runs_beside_the_one_before_it() {
    let waits = "griddepcontrol.launch_dependents;\nWAIT:\nld.relaxed.gpu.global.u32 %r1, [%rd1+8];\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra WAIT;\n\
                 st.global.u32 [%rd1], 7;";
    let ends = "+st.relaxed.gpu.global.u32 [%rd1+8], 1;\ngriddepcontrol.wait;\nld.global.u32 %r1, [%rd1];\nst.global.u32 [%rd1+4], %r1;";
    for seed in 0..12 {
        assert_eq!(
            dependent(seed, &[waits, ends, "st.global.u32 [%rd1+12], 9;"]).unwrap(),
            [7, 0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0]
        );
    }
    let error = dependent(0, &[waits, ends.trim_start_matches('+')]).unwrap_err();
    assert!(error.to_string().contains("deadlock"), "{error}");
}

/// If this fails, the emulator opens a buffer whose end is no address of it, and blames itself for what follows.
#[rstest]
#[case::to_the_end_of_its_addresses(1 << 35, 0, "34359738368 bytes: the emulator has 34359738367 at most in one")]
#[case::with_what_may_be_read_behind_it((1 << 35) - 100, 512, "34359738268 bytes and 512 behind it: the emulator has 34359738367")]
fn largest_buffer(#[case] bytes: u64, #[case] readable: u64, #[case] reason: &str) {
    let scratch = BufferSpec { readable, ..BufferSpec::new("scratch", bytes, Role::State) };
    let error = Emulator::new(EmulatorOptions::default()).open_group(1, &[scratch]).unwrap_err();
    assert!(matches!(&error, MachineError::NotSupported { reason: why } if why.contains(reason)), "{error}");
}

#[test]
fn what_is_too_large_says_so() {
    let mut machine = Emulator::new(EmulatorOptions { memory_budget: 1000, ..EmulatorOptions::default() });
    let error = machine.open_group(3, &[BufferSpec::new("a", 400, Role::Data)]).unwrap_err();
    let reason = "1200 bytes of buffers on all ranks of all groups: the emulator's memory budget is 1000";
    assert_eq!(error, MachineError::NotSupported { reason: reason.into() });
    let verdict = judge(&"all_reduce/one_shot:bf16,sum:w=8:n=1000000".parse().unwrap(), &mut emulator(0));
    assert_eq!(verdict.status, Status::NotSupported);
    assert!(verdict.reason.contains("too large for the emulator: 8000000 elements"), "{}", verdict.reason);
}

/// If this fails, a specification may not name an assumption that the race check makes, or names one that it does not make.
#[test]
fn specifications_know_assumptions() {
    assert_eq!(emulator::ASSUMPTIONS, machine::ASSUMPTIONS);
}

fn in_profile(profile: Profile, seed: u64) -> Emulator {
    Emulator::new(EmulatorOptions { profile, seed, ..EmulatorOptions::of(&REGISTRY) })
}

/// If this fails, the check condemns kernels that rely on what it says they may rely on, or does not say that they do.
#[rstest]
fn sound_kernels_race_by_the_letter_and_not_on_hopper(#[values("one_shot", "two_shot")] algorithm: &str, #[values(0, 1, 2)] seed: u64) {
    let of = |profile| {
        let mut machine = in_profile(profile, seed);
        let (group, plan) = set_up(&mut machine, algorithm, 3, None);
        let fill = Arc::new(Plan::per_rank("fill", 3, |_| vec![Op::Fill { region: Region::new("input", 0, COUNT * 4), byte: 0 }]));
        run(&mut machine, vec![enqueue(group, 0, &fill), enqueue(group, 0, &plan), enqueue(group, 0, &fill), enqueue(group, 0, &plan)])
    };
    let waived = of(Profile::Hopper).unwrap().waived;
    assert!(waived.iter().any(|waived| waived.assumption == "boundary"), "{waived:#?}");
    assert_eq!(waived.iter().any(|waived| waived.assumption == "retired"), algorithm == "one_shot", "{waived:#?}");
    let Err(MachineError::Races { findings, ended: None, .. }) = of(Profile::Ptx) else { panic!("not by the letter") };
    assert!(
        findings[0].contains("; a release and an acquire is missing between; ")
            && findings[0].ends_with(&format!("replay: random-{seed:x}"))
    );
    assert_eq!(of(Profile::Off).unwrap().waived, []);
}

/// If this fails, profile `ptx` asks for more than the ISA does, or the fix that docs/emulator/races.md names for our kernels is none.
#[rstest]
fn barriers_that_release_and_acquire_keep_to_the_letter(#[values("one_shot", "two_shot")] algorithm: &str) {
    let module = format!("all_reduce/{algorithm}");
    let mut library = REGISTRY.library();
    let ptx = library.ptx(&module).unwrap();
    let strong = ptx.replace("st.relaxed.sys", "st.release.sys").replace("ld.relaxed.sys", "ld.acquire.sys");
    assert_ne!(strong, ptx);
    library.replace(&module, strong);
    let mut machine = Emulator::new(EmulatorOptions { profile: Profile::Ptx, library, ..EmulatorOptions::default() });
    for n in 0..6 {
        machine.set_interleaving(Interleaving::nth(2, n));
        let verdict = judge(&format!("all_reduce/{algorithm}:bf16,sum:w=3:n=1040").parse().unwrap(), &mut machine);
        assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
        assert!(verdict.waived.is_empty(), "{verdict:#?}");
    }
}

/// If this fails, what streams do to each other goes unseen.
#[test]
fn streams_that_share_memory_race() {
    let mut machine = emulator(0);
    let buffer = BufferSpec::new("shared", 64, Role::State);
    let group = machine.open_group(1, std::slice::from_ref(&buffer)).unwrap();
    let of = |op: Op| Arc::new(Plan::per_rank("p", 1, |_| vec![op.clone()]));
    let (fill, copy) = (
        of(Op::Fill { region: Region::new("shared", 0, 32), byte: 1 }),
        of(Op::Copy { from: Region::new("shared", 16, 16), to: Region::new("shared", 32, 16), to_rank: None }),
    );
    run(&mut machine, vec![enqueue(group, 0, &fill), enqueue(group, 0, &copy)]).expect("a stream is in order");
    let error = run(&mut machine, vec![enqueue(group, 0, &fill), enqueue(group, 1, &copy)]).unwrap_err();
    let MachineError::Races { findings, .. } = &error else { panic!("{error}") };
    assert!(findings[0].contains("rank 0 shared+16..32") && findings[0].contains("synchronisation between streams"), "{error}");
}

/// If this fails, a kernel that polls keeps a deadlock of streams from being seen, or a stream that waits the one of kernels.
#[test]
fn streams_and_kernels_that_wait_for_each_other_are_a_deadlock() {
    let mut machine = emulator_with(kernel(WAITS_FOR_EVER));
    let words = BufferSpec::new("words", 8, Role::Signals);
    let group = machine.open_group(2, std::slice::from_ref(&words)).unwrap();
    let launch = Op::Launch(Launch { block: 32.into(), args: vec![Arg::Address(words.whole())], ..own() });
    let wait = Op::WaitValue { at: Region::new("words", 4, 4), value: 1 };
    let plan = Plan::per_rank("p", 2, |rank| vec![if rank == 0 { launch.clone() } else { wait.clone() }]);
    let error = run(&mut machine, vec![enqueue(group, 0, &Arc::new(plan))]).unwrap_err();
    let MachineError::Hang { cause, standing, .. } = &error else { panic!("{error}") };
    assert!(cause.starts_with("deadlock"), "{error}");
    assert!(standing.iter().any(|place| place.contains("rank 1 stream 0 waits until rank 1 words+4 is 1")), "{standing:?}");
}

/// If this fails, a hang hides the race that led to it.
#[test]
fn races_before_a_hang_are_told_beside_it() {
    let body = format!("st.global.u32 [%rd1+4], 1;\n{WAITS_FOR_EVER}");
    let error = run_kernel(&mut emulator_with(kernel(&body)), Role::Signals, &[0]).unwrap_err();
    let MachineError::Races { findings, ended: Some(ended), .. } = &error else { panic!("{error}") };
    assert!(findings[0].contains("a barrier is missing between"), "{error}");
    assert!(matches!(**ended, MachineError::Hang { .. }) && error.to_string().starts_with("hang after"), "{error}");
}

/// If this fails, a race is only a message: nobody sees a number that it makes wrong.
#[rstest]
fn what_nothing_orders_is_seen_late(#[values("sync_gpu_scope", "sync_relaxed_end", "sync_flag_before_data")] name: &str) {
    let mutant = REGISTRY.mutants().iter().find(|mutant| mutant.name == name).unwrap();
    let options = EmulatorOptions { library: mutant.library(&REGISTRY), strategy: Strategy::Late, ..EmulatorOptions::default() };
    let verdict = judge(&"all_reduce/two_shot:bf16,sum:w=3:n=1040".parse().unwrap(), &mut Emulator::new(options));
    assert_eq!(verdict.status, Status::Fail, "{verdict:#?}");
    assert!(verdict.findings.iter().any(|finding| finding.property == "reference"), "{verdict:#?}");
}

/// If this fails, bugs that need a rank that lags or a warp that runs ahead are met by luck only, or correct kernels do not finish under such schedules.
#[rstest]
fn cases_pass_under_every_strategy(
    #[values("one_shot", "two_shot", "one_shot_push", "two_shot_push", "push", "copy_engine")] algorithm: &str,
    #[values(2, 3)] world: u32,
) {
    let mut machine = emulator(0);
    let case: CollectiveCase = format!("all_reduce/{algorithm}:bf16,sum:w={world}:n=1040").parse().unwrap();
    for n in 0..9 {
        machine.set_interleaving(Interleaving::nth(5, n));
        let verdict = judge(&case, &mut machine);
        assert_eq!(verdict.status, Status::Pass, "{}: {verdict:#?}", Interleaving::nth(5, n));
    }
}

/// If this fails, a kernel that is right is said to hang, or runs out of steps, under a schedule that `--schedules` may have.
#[rstest]
fn kernels_end_under_every_schedule(
    #[values("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce")] collective: &str,
) {
    let mut smallest: BTreeMap<String, CollectiveCase> = BTreeMap::new();
    let of_collective = |case: &CollectiveCase| {
        case.collective.to_string() == collective && case.world == 3 && case.calls.is_empty() && (8..100).contains(&case.count)
    };
    for case in List::Merge.cases(&REGISTRY, 0).into_iter().filter(of_collective) {
        let known = smallest.entry(case.algorithm.to_string()).or_insert_with(|| case.clone());
        if case.count < known.count {
            *known = case;
        }
    }
    let mut machine = Emulator::new(EmulatorOptions { steps: 1 << 28, ..EmulatorOptions::of(&REGISTRY) });
    assert!(smallest.len() >= 4, "{:?}", smallest.keys());
    for case in smallest.values() {
        for schedule in (0..20).map(|n| Interleaving::nth(7, n)) {
            machine.set_interleaving(schedule);
            let verdict = judge(case, &mut machine);
            assert!(matches!(verdict.status, Status::Pass | Status::NotSupported), "{schedule}: {verdict:#?}");
        }
    }
}

/// If this fails, a job dies or goes wrong after 2^32 calls.
#[rstest]
#[case("one_shot_push", COUNT.div_ceil(2))]
#[case("two_shot_push", COUNT.div_ceil(2).div_ceil(3))]
fn counts_of_lines_wrap_around(#[case] algorithm: &str, #[case] lines: u64) {
    let mut machine = emulator(2);
    let (group, plan) = set_up(&mut machine, algorithm, 3, None);
    let counts = Region::new(format!("{algorithm}.epochs"), 0, lines * 4);
    let before = (u32::MAX - 3).to_le_bytes().repeat(counts.bytes as usize / 4);
    (0..3).for_each(|rank| machine.write(group, rank, &counts, &before).unwrap());
    for call in 0..7 {
        (0..3).for_each(|rank| write_input(&mut machine, group, rank, call));
        run(&mut machine, vec![enqueue(group, 0, &plan)]).unwrap_or_else(|error| panic!("call {call}: {error}"));
        for rank in 0..3 {
            assert!(output(&mut machine, group, rank) == expected(call), "call {call} rank {rank}");
        }
    }
    let after = machine.read(group, 1, &counts).unwrap();
    assert!(after.chunks(4).all(|count| count == 3u32.to_le_bytes()), "{after:?}");
}

/// If the kernel fails, two slots are not enough for a rank that is ahead, by a call or, in two shots, by a phase; if the mutant with one passes, no
/// rank ever is.
#[rstest]
fn a_rank_may_be_ahead(
    #[values(("one_shot_push", "sync_push_one_parity"), ("two_shot_push", "sync_two_shot_push_one_slot"))] (algorithm, one_slot): (
        &str,
        &str,
    ),
) {
    let fails = |library: Library| {
        let mut machine = emulator_with(library);
        let calls = "PUSH.40+PUSH.9000+[PUSH.40.in_place+PUSH.17.off1]x3+PUSH.9000".replace("PUSH", algorithm);
        let case: CollectiveCase = format!("all_reduce/{algorithm}:bf16,sum:w=3:calls={calls}").parse().unwrap();
        let schedules = (0..9).map(|n| Interleaving::nth(0, n));
        let failed: Vec<String> = schedules
            .filter(|interleaving| {
                machine.set_interleaving(*interleaving);
                judge(&case, &mut machine).status != Status::Pass
            })
            .map(|interleaving| interleaving.to_string())
            .collect();
        failed
    };
    assert_eq!(fails(REGISTRY.library()), [""; 0]);
    let one_slot = REGISTRY.mutants().iter().find(|mutant| mutant.name == one_slot).unwrap();
    assert_ne!(fails(one_slot.library(&REGISTRY)), [""; 0]);
}

/// If this fails, a rank that is late between its line and its looks, or before either, meets lines of another call.
#[rstest]
fn a_late_rank_is_waited_for_at_every_site(
    #[values("one_shot_push", "two_shot_push")] algorithm: &str,
    #[values("enter", "start", "end", "leave")] site: &str,
) {
    let id = format!("all_reduce/{algorithm}:f16,avg:w=4:n=301:off=1:in_place:skew=r2+20us@{site}");
    let verdict = judge(&id.parse().unwrap(), &mut emulator(0));
    assert_eq!(verdict.status, Status::Pass, "{verdict:#?}");
}

/// If this fails, a rank that stays away is not named, or by one thread's count and another's flag.
#[rstest]
#[case::in_the_slot_of_the_other_parity("one_shot_push", 0)]
#[case::in_the_slot_of_the_last_call("two_shot_push", 1)]
fn lines_that_do_not_come_are_told_of(#[case] algorithm: &str, #[case] saw: u32) {
    let mut machine = emulator(0);
    let (group, plan) = set_up(&mut machine, algorithm, 3, None);
    let error = run(&mut machine, vec![enqueue(group, 0, &plan), Step::Leave { rank: 1, how: Departure::Idle }, enqueue(group, 0, &plan)])
        .unwrap_err();
    let MachineError::Hang { stuck, .. } = &error else { panic!("{error}") };
    let Op::Launch(launch) = &plan.ranks[0][0] else { panic!("{plan}") };
    assert_eq!(stuck.len(), 2 * launch.grid.total() as usize, "one of each block that waits: {error}");
    let alike = stuck.iter().all(|entry| entry.rank != 1 && (entry.peer, entry.want, entry.saw, entry.site) == (1, 2, saw, Site::End));
    assert!(alike, "{error}");
}

#[rstest]
#[case("one_shot_push:bf16,sum:w=2:n=262145", "up to 524288 bytes, not of 524290")]
#[case("two_shot_push:bf16,sum:w=2:n=1048577", "up to 2097152 bytes, not of 2097154")]
fn a_message_too_large_for_lines_is_refused(#[case] id: &str, #[case] reason: &str) {
    let verdict = judge(&format!("all_reduce/{id}").parse().unwrap(), &mut emulator(0));
    assert_eq!(verdict.status, Status::NotSupported);
    assert!(verdict.reason.contains(reason), "{}", verdict.reason);
}

/// If this fails, people look at a picture of something else than what ran.
#[test]
fn a_trace_has_every_rank_stream_block_and_wait() {
    let options = EmulatorOptions { trace: true, ..EmulatorOptions::of(&REGISTRY) };
    let mut machine = Emulator::new(options);
    let (group, plan) = set_up(&mut machine, "two_shot", 3, None);
    run(&mut machine, vec![enqueue(group, 0, &plan)]).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&machine.take_trace().unwrap().json().unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let named = |rank: usize, name: &str| {
        events.iter().any(|event| event["pid"] == rank && event["ph"] == "X" && event["name"].as_str().unwrap().contains(name))
    };
    for rank in 0..3 {
        assert!(named(rank, "all_reduce_two_shot_f32_sum") && named(rank, "block 0") && named(rank, "barrier 0"), "{events:#?}");
    }
    assert!((0..3).any(|rank| named(rank, "two_shot.signals")), "nobody waits for anybody");
    assert!(events.iter().filter(|event| event["ph"] == "X").all(|event| event["dur"].as_f64().unwrap() >= 0.0));
    assert!(machine.take_trace().is_none());
}

/// If this fails, a call of the library has no end in the picture, and what comes after it no start.
#[test]
fn library_calls_are_spans_of_the_trace() {
    let mut machine = Emulator::new(EmulatorOptions { trace: true, ..EmulatorOptions::of(&REGISTRY) });
    let (group, plan) = set_up(&mut machine, "nccl_ring", 2, None);
    run(&mut machine, vec![enqueue(group, 0, &plan), enqueue(group, 0, &plan)]).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&machine.take_trace().unwrap().json().unwrap()).unwrap();
    let is_call = |event: &&serde_json::Value, rank: usize| event["pid"] == rank && event["name"] == "library call";
    let calls = [0, 1].map(|rank| trace["traceEvents"].as_array().unwrap().iter().filter(|event| is_call(event, rank)).count());
    assert_eq!(calls, [2, 2]);
}
