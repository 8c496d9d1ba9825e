//! The CUDA machine on real GPUs: what a script leaves in memory, that a rank that stays away is found out, and NCCL beside our kernels.
//!
//! Without a GPU these are ignored, and their names say so. Each opens a machine of its own; those that hang leave what they held behind
//! and come last.

#[path = "../../harness/tests/occupancy/mod.rs"]
mod occupancy;
#[path = "../../harness/tests/rounds/mod.rs"]
mod rounds;

use std::{sync::Arc, time::Duration};

use libtest_mimic::{Arguments, Failed, Trial};
use passmuster_cuda::{CudaMachine, CudaOptions};
use passmuster_kernels::Holders;
use passmuster_plan::{
    algorithms::Target,
    collective::{Collective, DType, ReduceOp, Shape, reduce_in_order},
    machine::{Elapsed, Machine, MachineError, Site},
    plan::{BufferSpec, Call, Departure, Edge, NcclCall, Op, Plan, RankCall, Region, Role, Script, Step, edges},
};

fn main() {
    // SAFETY: this thread is the only one yet.
    unsafe { passmuster_cuda::prepare_process() };
    let gpus = CudaMachine::open(CudaOptions::default()).map_or(0, |machine| machine.info().gpus);
    let trial = |name: &str, needed: usize, test: fn()| {
        let name = if gpus < needed { format!("{name} (needs {needed} GPUs, found {gpus})") } else { name.to_owned() };
        Trial::test(name, move || {
            test();
            Ok::<(), Failed>(())
        })
        .with_ignored_flag(gpus < needed)
    };
    let trials = vec![
        trial("ranks_that_share_a_gpu_reduce_eagerly", 1, ranks_that_share_a_gpu_reduce_eagerly),
        trial("ranks_on_all_gpus_reduce_in_place_and_from_a_graph", 1, ranks_on_all_gpus_reduce_in_place_and_from_a_graph),
        trial("fills_copies_and_words_go_where_they_belong", 1, fills_copies_and_words_go_where_they_belong),
        trial("what_was_captured_is_replayed_while_its_group_is_open", 1, what_was_captured_is_replayed_while_its_group_is_open),
        trial("ranks_meet_by_words_eagerly_and_from_a_graph", 1, ranks_meet_by_words_eagerly_and_from_a_graph),
        trial("copy_engines_bring_the_same_with_and_without_batches", 4, copy_engines_bring_the_same_with_and_without_batches),
        trial("copies_that_depend_on_each_other_keep_their_order", 1, copies_that_depend_on_each_other_keep_their_order),
        trial("hosts_wait_only_for_what_they_need", 1, hosts_wait_only_for_what_they_need),
        trial("what_is_fetched_may_be_dropped_on_its_way", 1, what_is_fetched_may_be_dropped_on_its_way),
        trial("too_many_waiting_blocks_are_refused", 1, too_many_waiting_blocks_are_refused),
        trial("multicast_addresses_are_refused", 1, multicast_addresses_are_refused),
        trial("tensor_maps_are_refused_as_the_driver_does", 1, tensor_maps_are_refused_as_the_driver_does),
        trial("nccl_wants_a_gpu_for_each_rank", 1, nccl_wants_a_gpu_for_each_rank),
        trial("nccl_reduces_with_and_without_windows_and_from_a_graph", 2, nccl_reduces_with_and_without_windows_and_from_a_graph),
        trial("a_path_that_nccl_did_not_take_is_told_by_every_machine", 2, a_path_that_nccl_did_not_take_is_told_by_every_machine),
        trial("memory_of_a_pool_is_used_again_without_another_rendezvous", 4, memory_of_a_pool_is_used_again_without_another_rendezvous),
        trial("an_all_gather_by_copy_engines_uses_no_sm", 2, an_all_gather_by_copy_engines_uses_no_sm),
        trial("an_all_to_all_by_copy_engines_uses_no_sm", 2, an_all_to_all_by_copy_engines_uses_no_sm),
        trial("an_all_gather_by_a_kernel_waits_for_an_sm", 2, an_all_gather_by_a_kernel_waits_for_an_sm),
        trial("a_rank_that_stays_away_is_named_by_those_that_wait", 1, a_rank_that_stays_away_is_named_by_those_that_wait),
        trial("a_word_that_nobody_writes_is_named_and_let_go", 1, a_word_that_nobody_writes_is_named_and_let_go),
        // Last: it leaves a kernel that waits for ten seconds, and the first work of another machine's new streams would wait for that.
        trial("a_deadline_holds_while_kernels_wait", 1, a_deadline_holds_while_kernels_wait),
    ];
    // One at a time: machines share the GPUs.
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..Arguments::from_args() }, trials).exit();
}

/// If this fails, plans are refused that would run, or maps pass that the driver does not make.
fn tensor_maps_are_refused_as_the_driver_does() {
    let wrong: Vec<String> = edges()
        .into_iter()
        .filter(|edge| passmuster_cuda::makes_tensor_map(&edge.map, edge.address).unwrap() != edge.is_made)
        .map(|Edge { what, map, is_made, .. }| format!("{what}: {map}: expected to be {}", if is_made { "made" } else { "refused" }))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

const COUNT: u64 = 10_007;
const DEADLINE: Duration = Duration::from_secs(20);

fn options() -> CudaOptions {
    CudaOptions { library: passmuster_harness::registry(passmuster_kernels::catalogue()).library(), ..CudaOptions::default() }
}

fn open(gpus: Option<Vec<usize>>) -> CudaMachine {
    CudaMachine::open(CudaOptions { gpus, ..options() }).expect("these tests need a GPU")
}

/// A group with an input, an output and what the algorithm needs, its inputs written, and the plan of one call.
fn set_up(machine: &mut CudaMachine, algorithm: &str, world: usize, in_place: bool) -> (usize, Arc<Plan>) {
    let algorithm = passmuster_harness::registry(passmuster_kernels::catalogue()).find(Collective::AllReduce, algorithm).unwrap();
    let bytes = COUNT * 4;
    let mut buffers = vec![BufferSpec::new("input", bytes, Role::Data), BufferSpec::new("output", bytes, Role::Data)];
    let (input, output) = (buffers[0].whole(), buffers[usize::from(!in_place)].whole());
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
    for rank in 0..world {
        let values: Vec<u8> = (0..COUNT).flat_map(|i| value(rank, i).to_le_bytes()).collect();
        machine.write(group, rank, &input, &values).unwrap();
    }
    (group, Arc::new(algorithm.plan(&call, &target)))
}

/// Small integers: their sums are exact in any order.
fn value(rank: usize, i: u64) -> f32 {
    ((i * 31 + rank as u64 * 17) % 97) as f32
}

fn check(machine: &mut CudaMachine, group: usize, world: usize, buffer: &str) {
    for rank in 0..world {
        let bytes = machine.read(group, rank, &Region::new(buffer, 0, COUNT * 4)).unwrap();
        for (i, word) in bytes.chunks_exact(4).enumerate() {
            let got = f32::from_le_bytes(word.try_into().unwrap());
            let inputs: Vec<f32> = (0..world).map(|rank| value(rank, i as u64)).collect();
            assert_eq!(got, reduce_in_order(ReduceOp::Sum, &inputs), "rank {rank} element {i}");
        }
    }
    assert_eq!(machine.broken_canary(group).unwrap(), None);
}

fn enqueue(group: usize, plan: &Arc<Plan>) -> Step {
    Step::Enqueue { group, stream: 0, plan: plan.clone() }
}

fn ranks_that_share_a_gpu_reduce_eagerly() {
    let mut machine = open(Some(vec![0]));
    for world in [1, 2, 3, 4, 8] {
        for algorithm in ["one_shot", "two_shot", "one_shot_push", "two_shot_push", "push"] {
            let (group, plan) = set_up(&mut machine, algorithm, world, false);
            let steps = vec![Step::Mark, enqueue(group, &plan), enqueue(group, &plan), Step::Mark];
            let run = machine.run(&Script { steps }, DEADLINE).unwrap_or_else(|error| panic!("{algorithm} w={world}: {error}"));
            assert_eq!((run.marks.len(), run.marks[0].len()), (1, world));
            assert!(run.marks[0].iter().all(|time| (0.0..1e6).contains(time)), "{:?}", run.marks);
            check(&mut machine, group, world, "output");
            machine.close_groups();
        }
    }
    let error = machine.open_group(9, &[]).unwrap_err();
    assert!(matches!(&error, MachineError::NotSupported { reason } if reason.contains("9 ranks on one GPU")), "{error}");
}

fn ranks_on_all_gpus_reduce_in_place_and_from_a_graph() {
    let mut machine = open(None);
    let world = machine.info().gpus.max(2);
    for algorithm in ["one_shot", "two_shot", "one_shot_push", "two_shot_push", "push"] {
        let (group, plan) = set_up(&mut machine, algorithm, world, false);
        let capture = Step::Capture { graph: 0, group, plans: vec![plan.clone(), plan.clone()] };
        let replay = || Step::Replay { graph: 0, stream: 0 };
        machine.run(&Script { steps: vec![capture, replay(), replay(), replay()] }, DEADLINE).unwrap();
        check(&mut machine, group, world, "output");
        machine.close_groups();

        let (group, plan) = set_up(&mut machine, algorithm, world, true);
        machine.run(&Script { steps: vec![enqueue(group, &plan)] }, DEADLINE).unwrap();
        check(&mut machine, group, world, "input");
        machine.close_groups();
    }
}

fn fills_copies_and_words_go_where_they_belong() {
    let mut machine = open(Some(vec![0]));
    let buffers = [BufferSpec::new("a", 1000, Role::Data), BufferSpec::new("b", 1000, Role::State)];
    let group = machine.open_group(2, &buffers).unwrap();
    assert_eq!(machine.read(group, 1, &buffers[0].whole()).unwrap(), [passmuster_plan::machine::CANARY; 1000]);
    assert_eq!(machine.read(group, 1, &buffers[1].whole()).unwrap(), [0; 1000]);
    let plan = Plan::per_rank("p", 2, |rank| {
        vec![
            Op::Fill { region: Region::new("a", 3, 10), byte: rank as u8 + 1 },
            Op::Copy { from: Region::new("a", 3, 10), to: Region::new("b", 990, 10), to_rank: None },
            Op::WriteValue { to: Region::new("b", 0, 4), value: 0x0403_0201, to_rank: None },
        ]
    });
    machine.run(&Script { steps: vec![enqueue(group, &Arc::new(plan))] }, DEADLINE).unwrap();
    let b = machine.read(group, 1, &buffers[1].whole()).unwrap();
    assert_eq!((&b[..6], &b[988..]), (&[1, 2, 3, 4, 0, 0][..], &[0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2][..]));
    assert_eq!(machine.broken_canary(group).unwrap(), None);
}

/// If this fails, rounds capture again what an earlier one has captured, or replay what belongs to other plans or to memory in other use by now.
fn what_was_captured_is_replayed_while_its_group_is_open() {
    let mut machine = open(Some(vec![0]));
    let (pad, a) = (BufferSpec::new("pad", 4096, Role::Data), BufferSpec::new("a", 1000, Role::Data));
    let fill = |byte| Arc::new(Plan::per_rank("fill", 2, |_| vec![Op::Fill { region: a.whole(), byte }]));
    let (one, two) = (fill(1), fill(2));
    let replayed = |machine: &mut CudaMachine, group, plan: &Arc<Plan>| {
        machine.write(group, 1, &a.whole(), &[0; 1000]).unwrap();
        let capture = Step::Capture { graph: 0, group, plans: vec![plan.clone()] };
        machine.run(&Script { steps: vec![capture, Step::Replay { graph: 0, stream: 0 }] }, DEADLINE).unwrap();
        (machine.read(group, 1, &a.whole()).unwrap()[0], machine.captured())
    };
    let group = machine.open_group(2, std::slice::from_ref(&a)).unwrap();
    assert_eq!([&one, &one, &two, &one].map(|plan| replayed(&mut machine, group, plan)), [(1, 1), (1, 1), (2, 2), (1, 2)]);
    machine.close_groups();
    let group = machine.open_group(2, &[pad.clone(), a.clone()]).unwrap();
    assert_eq!(replayed(&mut machine, group, &one), (1, 3));
    assert_eq!(machine.read(group, 1, &pad.whole()).unwrap(), [passmuster_plan::machine::CANARY; 4096]);
}

/// If this fails, a batch brings something else than its copies one after the other, or what follows it does not wait for it; or copies are never batched,
/// or are where a graph is captured.
fn copy_engines_bring_the_same_with_and_without_batches() {
    // A GPU for each rank: with two ranks on each of two, it hung. Slots of less than 64 KiB take no second stream.
    let (world, dtype, count) = (4u32, DType::I32, 15_011);
    for batch_copies in [true, false] {
        let mut machine = CudaMachine::open(CudaOptions { batch_copies, ..options() }).expect("these tests need a GPU");
        for collective in [Collective::AllGather, Collective::AllToAll, Collective::AllReduce] {
            let algorithm = passmuster_harness::registry(passmuster_kernels::catalogue()).find(collective, "copy_engine").unwrap();
            let (op, shape) = (collective.operators()[0], Shape::new(collective, world, count));
            let (input, output) =
                (BufferSpec::new("input", shape.input() * 4, Role::Data), BufferSpec::new("output", shape.output() * 4, Role::Data));
            let mut buffers = vec![input.clone(), output.clone()];
            buffers.extend(algorithm.workspace(dtype, world, input.bytes));
            let (input, output) = (input.whole(), output.whole());
            let first =
                RankCall { collective, dtype, op, count, root: 0, factor: None, parts: None, input: input.clone(), output: output.clone() };
            let call = Call::uniform(&first, world, &buffers).unwrap();
            let group = machine.open_group(world as usize, &buffers).unwrap();
            let target = Target { waiting_blocks: machine.waiting_blocks(world as usize, 1), ..Target::default() };
            let plan = Arc::new(algorithm.plan(&call, &target));
            let capture = Step::Capture { graph: 0, group, plans: vec![plan.clone()] };
            let replayed = vec![capture, Step::Replay { graph: 0, stream: 0 }];
            for (round, (steps, is_eager)) in [(vec![enqueue(group, &plan); 3], true), (replayed, false)].into_iter().enumerate() {
                let element = |rank: u32, i: u64| (i as i32).wrapping_mul(31) ^ (rank as i32 + 7 * round as i32) << 20;
                let inputs: Vec<Vec<u8>> =
                    (0..world).map(|rank| (0..shape.input()).flat_map(|i| element(rank, i).to_le_bytes()).collect()).collect();
                for (rank, bytes) in inputs.iter().enumerate() {
                    machine.write(group, rank, &input, bytes).unwrap();
                }
                let before = machine.batches();
                machine.run(&Script { steps }, DEADLINE).unwrap();
                let made = before.zip(machine.batches()).map(|(before, after)| after - before);
                // Each rank copies to its three peers at once in each of three calls; in an all-reduce it does so twice.
                let runs = if collective == Collective::AllReduce { 2 } else { 1 };
                let expected = if is_eager { 3 * u64::from(world) * runs } else { 0 };
                assert_eq!(made, made.map(|_| expected), "{shape}, eager: {is_eager}");
                for (rank, expected) in shape.results(dtype, op, &inputs).into_iter().enumerate() {
                    assert!(
                        machine.read(group, rank, &output).unwrap() == expected,
                        "{shape}, batches: {batch_copies}, rank {rank}, round {round}"
                    );
                }
                assert_eq!(machine.broken_canary(group).unwrap(), None);
            }
        }
        let driver: i32 = machine.info().driver.parse().unwrap();
        assert_eq!(machine.batches().is_some(), batch_copies && driver >= 13000, "driver {driver}");
    }
}

/// If this fails, a copy reads what one before it has yet to write, or both write and the first is the last.
fn copies_that_depend_on_each_other_keep_their_order() {
    let mut machine = open(None);
    let part = |at: u64| Region::new("large", at * (8 << 20), 8 << 20);
    let group = machine.open_group(1, &[BufferSpec::new("large", 5 * (8 << 20), Role::Data)]).unwrap();
    let fill = |at, byte| Op::Fill { region: part(at), byte };
    let copy = |from, to| Op::Copy { from: part(from), to: part(to), to_rank: None };
    let ops = vec![fill(0, 1), fill(1, 2), fill(2, 3), copy(0, 3), copy(3, 4), copy(1, 3), copy(2, 1), copy(2, 0), fill(2, 9)];
    machine.run(&Script { steps: vec![enqueue(group, &Arc::new(Plan::per_rank("copies", 1, |_| ops.clone())))] }, DEADLINE).unwrap();
    for (at, byte) in [3, 3, 9, 2, 1].into_iter().enumerate() {
        assert!(machine.read(group, 0, &part(at as u64)).unwrap() == [byte].repeat(8 << 20), "part {at} is not all {byte}");
    }
}

/// Two ranks with a large buffer each, and what keeps a stream busy for long after the host has enqueued it.
fn busy(machine: &mut CudaMachine) -> (usize, Vec<Op>) {
    let group = machine.open_group(2, &[BufferSpec::new("large", 512 << 20, Role::Data)]).unwrap();
    let fill = |byte| Op::Fill { region: Region::new("large", 0, 512 << 20), byte };
    (group, (1..=32).map(fill).collect())
}

fn hosts_wait_only_for_what_they_need() {
    let mut machine = open(None);
    let (group, mut ops) = busy(&mut machine);
    let fetch = |at| Op::Fetch { from: Region::new("large", at, 8) };
    ops.insert(1, fetch(16));
    ops.extend([fetch(0), Op::Fork { stream: 1, ops: vec![fetch(8)] }, Op::Join { stream: 1 }]);
    let enqueue = Step::Enqueue { group, stream: 0, plan: Arc::new(Plan::per_rank("fetches", 2, |_| ops.clone())) };
    let again = Step::Enqueue { group, stream: 1, plan: Arc::new(Plan::per_rank("fetch", 2, |_| vec![fetch(24)])) };
    let fetched = machine.run(&Script { steps: vec![enqueue, Step::Await { fetch: 2 }, again] }, DEADLINE).unwrap().fetched;
    for of_rank in &fetched {
        let brought: Vec<&[u8]> = of_rank.iter().map(|fetched| &fetched.bytes[..]).collect();
        assert_eq!(brought, [&[1; 8][..], &[32; 8], &[32; 8], &[32; 8]]);
        let awaited: Vec<bool> = of_rank.iter().map(|fetched| fetched.awaited.is_some()).collect();
        assert_eq!(awaited, [false, false, true, false]);
        let awaited = of_rank[2].awaited.unwrap();
        assert!(!awaited.was_there && awaited.blocked > 0.0, "32 fills of 512 MiB were done at once: {awaited:?}");
    }
}

fn what_is_fetched_may_be_dropped_on_its_way() {
    let mut machine = open(None);
    let (group, ops) = busy(&mut machine);
    let whole = Region::new("large", 0, 64 << 20);
    machine
        .run(
            &Script { steps: vec![Step::Enqueue { group, stream: 0, plan: Arc::new(Plan::per_rank("fills", 2, |_| ops.clone())) }] },
            DEADLINE,
        )
        .unwrap();
    for _ in 0..4 {
        drop(machine.fetch(group, 1, &whole).unwrap());
    }
    let mut first = machine.fetch(group, 0, &Region { bytes: 5, ..whole.clone() }).unwrap();
    let mut last = machine.fetch(group, 1, &whole).unwrap();
    assert_eq!(last.get().unwrap(), &vec![32; 64 << 20]);
    assert_eq!(first.get().unwrap(), &[32; 5]);
    assert_eq!(last.peek().unwrap().map(Vec::len), Some(64 << 20));
    // It outlives the machine, and what was fetched before a run is not what the run writes.
    let mut before = machine.fetch(group, 1, &whole).unwrap();
    let overwrites = Plan::per_rank("fill", 2, |_| vec![Op::Fill { region: whole.clone(), byte: 77 }]);
    machine.run(&Script { steps: vec![Step::Enqueue { group, stream: 0, plan: Arc::new(overwrites) }] }, DEADLINE).unwrap();
    let mut late = machine.fetch(group, 0, &whole).unwrap();
    drop(machine);
    assert_eq!(before.get().unwrap(), &vec![32; 64 << 20]);
    assert_eq!(late.get().unwrap(), &vec![77; 64 << 20]);
}

fn memory_of_a_pool_is_used_again_without_another_rendezvous() {
    let mut machine = open(None);
    let mut pool = rounds::open(&mut machine);
    (0..20).for_each(|number| rounds::round(&mut machine, &mut pool, number));
    assert_eq!(machine.rendezvous(), 1);
    assert_eq!(machine.broken_canary(pool.group()).unwrap(), None);
}

/// A collective of all GPUs while every SM of each is held, at most for so long: how the blocks that held came to go.
fn outcomes_while_all_is_held(collective: Collective, algorithm: &str, limit: Duration) -> Vec<Vec<u32>> {
    let mut machine = open(None);
    let info = machine.info();
    let note = |wanted: &str| info.notes.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str()).unwrap();
    let capability: f64 = note("compute_capability").parse().unwrap();
    let holders = Holders::of_all(note("multiprocessors").parse().unwrap(), limit);
    assert!(capability >= 9.0, "a block of {} bytes of shared memory needs compute capability 9.0, this is {capability}", holders.shared);
    let algorithm = passmuster_harness::registry(passmuster_kernels::catalogue()).find(collective, algorithm).unwrap();
    occupancy::outcomes(&holders, &mut machine, &*algorithm, (info.gpus as u32, 1 << 19), true)
}

/// Long enough for any collective, short enough for a test that fails.
const HELD: Duration = Duration::from_secs(4);

/// If this fails, an all-gather in place by copy engines takes SMs from what runs beside it.
fn an_all_gather_by_copy_engines_uses_no_sm() {
    let outcomes = outcomes_while_all_is_held(Collective::AllGather, "copy_engine", HELD);
    assert!(outcomes.iter().flatten().all(|&outcome| outcome == Holders::TOLD), "{outcomes:?}");
}

/// The same of an all-to-all, in which every rank copies a slot within its own memory as well.
fn an_all_to_all_by_copy_engines_uses_no_sm() {
    let outcomes = outcomes_while_all_is_held(Collective::AllToAll, "copy_engine", HELD);
    assert!(outcomes.iter().flatten().all(|&outcome| outcome == Holders::TOLD), "{outcomes:?}");
}

/// If this fails, there is room beside the blocks that hold, and the two above prove nothing. The first block that gives up makes room, so that
/// the others may be told.
fn an_all_gather_by_a_kernel_waits_for_an_sm() {
    let outcomes = outcomes_while_all_is_held(Collective::AllGather, "push", Duration::from_millis(500));
    assert!(outcomes.iter().all(|of_rank| of_rank.contains(&Holders::GAVE_UP)), "{outcomes:?}");
}

fn a_rank_that_stays_away_is_named_by_those_that_wait() {
    let options = CudaOptions { gpus: Some(vec![0]), wait_limit: Duration::from_millis(300), ..options() };
    let mut machine = CudaMachine::open(options).unwrap();
    let (group, plan) = set_up(&mut machine, "two_shot", 3, false);
    let steps = vec![enqueue(group, &plan), Step::Leave { rank: 1, how: Departure::Idle }, enqueue(group, &plan)];
    let error = machine.run(&Script { steps }, DEADLINE).unwrap_err();
    let MachineError::Hang { stuck, unfinished, after: Elapsed::WallMs(after_ms), .. } = &error else { panic!("{error}") };
    assert!(unfinished.is_empty() && *after_ms >= 300, "{error}");
    // The two that are left may give each other up as well, later.
    assert!(stuck.iter().any(|entry| entry.peer == 1) && stuck.iter().all(|entry| entry.rank != 1 && entry.site == Site::Start), "{error}");
    assert!(matches!(machine.open_group(1, &[]), Err(MachineError::Invalid { .. })), "a machine that hung is not used again");
}

fn a_deadline_holds_while_kernels_wait() {
    let options = CudaOptions { gpus: Some(vec![0]), wait_limit: Duration::from_secs(10), ..options() };
    let mut machine = CudaMachine::open(options).unwrap();
    let (group, plan) = set_up(&mut machine, "one_shot", 2, false);
    let steps = vec![Step::Leave { rank: 1, how: Departure::Idle }, enqueue(group, &plan)];
    let begin = std::time::Instant::now();
    let error = machine.run(&Script { steps }, Duration::from_secs(1)).unwrap_err();
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    let MachineError::Hang { unfinished, .. } = &error else { panic!("{error}") };
    assert_eq!(unfinished[..], [0]);
}

/// Each rank's byte in the next rank's buffer, when that one is ready for it: by writes and waits that leave the words at 0.
fn by_words(world: u32) -> Arc<Plan> {
    let word = |at| Region::new("words", at, 4);
    Arc::new(Plan::per_rank("by words", world, |rank| {
        let (next, previous) = ((rank + 1) % world, (rank + world - 1) % world);
        let write = |to_rank, at, value| Op::WriteValue { to: word(at), value, to_rank };
        let wait = |at| Op::WaitValue { at: word(at), value: 1 };
        vec![
            Op::Fill { region: Region::new("mine", 0, 4096), byte: rank as u8 + 1 },
            write(Some(previous), 0, 1),
            wait(0),
            write(None, 0, 0),
            Op::Copy { from: Region::new("mine", 0, 4096), to: Region::new("theirs", 0, 4096), to_rank: Some(next) },
            write(Some(next), 4, 1),
            wait(4),
            write(None, 4, 0),
        ]
    }))
}

fn open_for_words(machine: &mut CudaMachine, world: u32) -> usize {
    let data = ["mine", "theirs"].map(|name| BufferSpec::new(name, 4096, Role::Data));
    machine.open_group(world as usize, &[&data[..], &[BufferSpec::new("words", 8, Role::Signals)]].concat()).unwrap()
}

fn ranks_meet_by_words_eagerly_and_from_a_graph() {
    let mut machine = open(None);
    let world = machine.info().gpus.max(2) as u32;
    let group = open_for_words(&mut machine, world);
    let plan = by_words(world);
    let capture = Step::Capture { graph: 0, group, plans: vec![plan.clone(), plan.clone()] };
    let replay = || Step::Replay { graph: 0, stream: 0 };
    machine.run(&Script { steps: vec![capture, enqueue(group, &plan), replay(), enqueue(group, &plan), replay()] }, DEADLINE).unwrap();
    for rank in 0..world {
        let previous = (rank + world - 1) % world;
        let theirs = machine.read(group, rank as usize, &Region::new("theirs", 0, 4096)).unwrap();
        assert!(theirs.iter().all(|&byte| byte == previous as u8 + 1), "rank {rank}");
        assert_eq!(machine.read(group, rank as usize, &Region::new("words", 0, 8)).unwrap(), [0; 8], "rank {rank}");
    }
}

fn too_many_waiting_blocks_are_refused() {
    let mut machine = open(Some(vec![0]));
    let (group, plan) = set_up(&mut machine, "one_shot", 2, false);
    let mut crowded = (*plan).clone();
    for op in crowded.ranks.iter_mut().flatten() {
        if let Op::Launch(launch) = op {
            launch.grid = 100_000.into();
        }
    }
    let error = machine.run(&Script { steps: vec![enqueue(group, &Arc::new(crowded))] }, DEADLINE).unwrap_err();
    assert!(matches!(&error, MachineError::NotSupported { reason } if reason.contains("blocks that wait for each other")), "{error}");
    machine.run(&Script { steps: vec![enqueue(group, &plan)] }, DEADLINE).expect("a refusal leaves the machine as it was");
}

fn multicast_addresses_are_refused() {
    let mut machine = open(None);
    let (group, plan) = set_up(&mut machine, "multimem", 2, false);
    let before = machine.read(group, 0, &Region::new("output", 0, COUNT * 4)).unwrap();
    let error = machine.run(&Script { steps: vec![enqueue(group, &plan)] }, DEADLINE).unwrap_err();
    let MachineError::NotSupported { reason } = &error else { panic!("{error}") };
    assert!(reason.contains("this version creates no multicast objects"), "{reason}");
    assert!(machine.read(group, 0, &Region::new("output", 0, COUNT * 4)).unwrap() == before, "nothing was enqueued");
}

fn nccl_wants_a_gpu_for_each_rank() {
    let mut machine = open(Some(vec![0]));
    let (group, plan) = set_up(&mut machine, "nccl_ring", 2, false);
    let error = machine.run(&Script { steps: vec![enqueue(group, &plan)] }, DEADLINE).unwrap_err();
    assert_eq!(error, MachineError::NotSupported { reason: "world 2 needs 2 GPUs for NCCL, 1 given".into() });
}

fn nccl_reduces_with_and_without_windows_and_from_a_graph() {
    let mut machine = open(None);
    let world = machine.info().gpus;
    for algorithm in ["nccl_ring", "nccl_symmetric_ll"] {
        let (group, plan) = set_up(&mut machine, algorithm, world, false);
        let capture = Step::Capture { graph: 0, group, plans: vec![plan.clone()] };
        let replay = || Step::Replay { graph: 0, stream: 0 };
        let script = Script { steps: vec![enqueue(group, &plan), capture, replay(), replay()] };
        for _ in 0..2 {
            machine.run(&script, DEADLINE).unwrap_or_else(|error| panic!("{algorithm}: {error}"));
            check(&mut machine, group, world, "output");
        }
        machine.close_groups();
    }
    assert!(machine.info().nccl.starts_with("2."), "{:?}", machine.info());
}

/// If this fails, what was asked of NCCL is not what is judged, and nobody says so: in the second machine of a process, for one. NCCL's symmetric kernels add no
/// f64, so that its ring does, on windows too.
fn a_path_that_nccl_did_not_take_is_told_by_every_machine() {
    for round in 0..2 {
        let mut machine = open(Some(vec![0, 1]));
        let bytes = COUNT * 8;
        let buffers = [BufferSpec::new("input", bytes, Role::Data), BufferSpec::new("output", bytes, Role::Data)];
        let group = machine.open_group(2, &buffers).unwrap();
        let mut run = |dtype: DType| {
            let bytes = COUNT * dtype.size();
            let (input, output) = (Region::new("input", 0, bytes), Region::new("output", 0, bytes));
            let (collective, op) = (Collective::AllReduce, ReduceOp::Sum);
            let call = RankCall { collective, dtype, op, count: COUNT, root: 0, factor: None, parts: None, input, output };
            let plan = Plan::per_rank("nccl", 2, |_| vec![Op::Nccl(NcclCall::of_all(call.clone(), true))]);
            machine.run(&Script { steps: vec![enqueue(group, &Arc::new(plan))] }, DEADLINE)
        };
        assert_eq!(run(DType::F32).map(|run| run.unchecked_path), Ok(None), "machine {round}");
        let refusal = run(DType::F64).map(drop).unwrap_err();
        let told = "NCCL did not take the path that was asked for: AllReduce: ";
        assert!(matches!(&refusal, MachineError::NotSupported { reason } if reason.starts_with(told)), "machine {round}: {refusal}");
    }
}

/// If this fails, a stream that waits holds its GPU until the process is killed, or nobody learns which word it waited for.
fn a_word_that_nobody_writes_is_named_and_let_go() {
    let mut machine = open(None);
    let group = open_for_words(&mut machine, 2);
    let steps = vec![Step::Leave { rank: 1, how: Departure::Idle }, enqueue(group, &by_words(2)), enqueue(group, &by_words(2))];
    let start = std::time::Instant::now();
    let error = machine.run(&Script { steps }, Duration::from_secs(1)).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
    let MachineError::Hang { unfinished, standing, .. } = &error else { panic!("{error}") };
    assert_eq!(unfinished[..], [0]);
    assert_eq!(standing[0], "rank 0 may wait until words[0..4] is 1: it is 0, and ranks [1] write 1");
}
