//! Ranks in processes of their own, on the emulator: this binary is its own ranks, which meet at a hub in the process of the test.
//!
//! If one of these failed, ranks in processes would compute other bits than in one, or wait for a rank that is gone.

use std::{
    env,
    io::{self, PipeReader},
    process::Command,
    sync::{Arc, LazyLock},
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Failed, Trial};
use passmuster_bootstrap::{Bootstrap, own};
use passmuster_harness::{
    conformance::{
        CollectiveCase, List, Status, Verdict,
        runner::{self, Settings},
    },
    emulator::{Emulator, EmulatorOptions, Interleaving, Profile, RankEmulator, Strategy},
};
use passmuster_plan::{
    algorithms::{Registry, Target},
    collective::{Collective, DType, ReduceOp},
    library::Library,
    machine::{Machine, MachineError, MachineInfo, Run, Site},
    plan::{Arg, BufferSpec, Call, Departure, Launch, Op, Plan, RankCall, Region, Role, Script, Step},
};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| passmuster_harness::registry(passmuster_kernels::catalogue()));

/// Set in a rank's process: what it does.
const PART: &str = "PASSMUSTER_TEST_RANK";

/// For cases that pass: long enough for a machine that is busy.
const DEADLINE: Duration = Duration::from_secs(120);

fn main() {
    if let Ok(part) = env::var(PART) {
        return act(&part);
    }
    let trial = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok::<(), Failed>(())
        })
    };
    let trials = vec![
        trial("two_processes_compute_the_bits_of_one", || same_bits(2, &of_world(2))),
        trial("four_processes_compute_the_bits_of_one", || same_bits(4, &of_world(4))),
        trial("every_schedule_computes_the_bits_of_one_process", every_schedule_computes_the_bits_of_one_process),
        trial("a_rank_that_never_comes_is_named_by_who_waits_for_it", a_rank_that_never_comes_is_named_by_who_waits_for_it),
        trial("words_that_nobody_writes_are_a_deadlock", words_that_nobody_writes_are_a_deadlock),
        trial("a_library_call_waits_for_all_ranks", a_library_call_waits_for_all_ranks),
        trial("a_slow_rank_is_waited_for", a_slow_rank_is_waited_for),
        trial("an_hour_of_waiting_starts_with_the_wait", an_hour_of_waiting_starts_with_the_wait),
        trial("a_rank_at_work_at_the_deadline_is_no_hang", a_rank_at_work_at_the_deadline_is_no_hang),
        trial("an_error_of_one_rank_is_that_of_all", an_error_of_one_rank_is_that_of_all),
        trial("bytes_that_nobody_wrote_are_known_to_peers", bytes_that_nobody_wrote_are_known_to_peers),
        trial("a_rank_that_is_killed_is_named_by_the_others", a_rank_that_is_killed_is_named_by_the_others),
        trial("groups_have_the_same_addresses_in_all_processes", groups_have_the_same_addresses_in_all_processes),
        trial("ranks_that_ask_for_different_groups_are_told", ranks_that_ask_for_different_groups_are_told),
        trial("what_one_rank_has_no_memory_for_all_do_without", what_one_rank_has_no_memory_for_all_do_without),
        trial("the_smoke_list_of_two_ranks_in_processes", || same_bits(2, &smoke(2))).with_ignored_flag(true),
        trial("the_smoke_list_of_four_ranks_in_processes", || same_bits(4, &smoke(4))).with_ignored_flag(true),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// What a rank's process does.
fn act(part: &str) {
    let joined = own::join().unwrap();
    let (rank, world) = (joined.rank(), joined.world());
    let machine = |options| RankEmulator::new(options, Box::new(joined)).unwrap();
    match part.split_once('/').unwrap_or((part, "")) {
        ("judge", what) => {
            let (schedule, ids) = what.split_once('/').expect("SCHEDULE/IDS");
            let options = EmulatorOptions::of(&REGISTRY).with(schedule.parse().unwrap());
            let mut machine = InStep { machine: machine(options), reading: false };
            let verdicts: Vec<Verdict> = ids.split(' ').map(|id| judge(id, &mut machine)).collect();
            say(&verdicts);
        }
        ("scene", name) => {
            let (scene, mut machine) = (Scene::of(name, world), machine(Scene::of(name, world).options));
            if let Some(killed) = scene.killed.filter(|&killed| killed == rank) {
                thread::spawn(move || {
                    thread::sleep(Duration::from_millis(300));
                    eprintln!("rank {killed} kills itself");
                    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
                });
            }
            let group = scene.open(&mut machine, Some(rank));
            let start = Instant::now();
            let ended = machine.run(&scene.script(group), scene.deadline);
            let seconds = start.elapsed().as_secs_f64();
            let again = machine.barrier("after all").err();
            say(&Said { ended: ended.map(|_| scene.read(&mut machine, group, rank)), seconds, again });
        }
        ("addresses", _) => say(&addresses(machine(EmulatorOptions { library: own_kernels(), ..EmulatorOptions::default() }))),
        ("disagree", _) => {
            let mut machine = machine(EmulatorOptions::default());
            let buffers = [BufferSpec::new("words", if rank == 2 { 8 } else { 4 }, Role::Data)];
            say(&machine.open_group(2, &buffers).map_err(|error| error.to_string()));
            say(&machine.open_group(2, &[BufferSpec::new("words", 4, Role::Data)]).map_err(|error| error.to_string()));
        }
        ("capped", _) => {
            let mut machine = machine(EmulatorOptions::default());
            if rank == 1 {
                cap_memory(64 << 10);
            }
            for bytes in [1 << 20, 1 << 10] {
                say(&machine.open_group(3, &[BufferSpec::new("words", bytes, Role::Data)]).map_err(|error| error.to_string()));
            }
        }
        (other, _) => panic!("rank {rank} has no part {other}"),
    }
}

/// Lets this process make no file and no shared memory of more than `bytes` bytes.
fn cap_memory(bytes: u64) {
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default()).unwrap();
    setrlimit(Resource::Fsize, Rlimit { current: Some(bytes), maximum: Some(bytes) }).unwrap();
}

fn say(what: &impl Serialize) {
    println!("{}", serde_json::to_string(what).unwrap());
}

/// What a rank says of a scene: the bytes of its buffer or the error, how long the run took, and what became of the machine.
#[derive(Debug, Serialize, Deserialize)]
struct Said {
    ended: Result<Vec<u8>, MachineError>,
    seconds: f64,
    again: Option<MachineError>,
}

/// The ranks of a test, and what each of them says.
struct Ranks {
    job: own::Launched,
    said: Vec<PipeReader>,
}

impl Ranks {
    fn start(world: usize, part: &str) -> Ranks {
        let mut said = Vec::new();
        let job = own::Launched::start(world, false, |_| {
            let (reader, writer) = io::pipe().unwrap();
            said.push(reader);
            let mut command = Command::new(env::current_exe().unwrap());
            command.env(PART, part).stdout(writer);
            command
        });
        Ranks { job: job.unwrap(), said }
    }

    /// What each of them says, all of which end well.
    fn all_say(self) -> Vec<String> {
        let ended = self.end().into_iter().enumerate();
        ended
            .map(|(rank, (said, how))| {
                assert_eq!(how, "its process exited with status 0", "rank {rank}");
                said
            })
            .collect()
    }

    /// Waits for all of them: what each said, and how it ended.
    fn end(self) -> Vec<(String, String)> {
        let said: Vec<String> = self.said.into_iter().map(|reader| io::read_to_string(reader).unwrap()).collect();
        said.into_iter().zip(self.job.finish(Duration::from_secs(20))).collect()
    }
}

/// A rank's machine for a judge that thinks it has all ranks: every process judges the same case in step, and writes the inputs of its own rank only.
struct InStep {
    machine: RankEmulator,
    /// Something was read since ranks met last: others may still do so.
    reading: bool,
}

impl Machine for InStep {
    fn info(&self) -> MachineInfo {
        self.machine.info()
    }

    fn max_world(&self) -> usize {
        self.machine.max_world()
    }

    fn waiting_blocks(&self, world: usize, groups: usize) -> u32 {
        self.machine.waiting_blocks(world, groups)
    }

    fn most_waiting_blocks(&self, world: usize, groups: usize) -> u32 {
        self.machine.most_waiting_blocks(world, groups)
    }

    fn rendezvous(&self) -> u64 {
        self.machine.rendezvous()
    }

    fn open_group(&mut self, world: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        self.machine.open_group(world, buffers)
    }

    fn close_groups(&mut self) {
        self.machine.close_groups();
    }

    fn read(&mut self, group: usize, rank: usize, region: &Region) -> Result<Vec<u8>, MachineError> {
        if !std::mem::replace(&mut self.reading, true) {
            self.machine.barrier("before reads")?;
        }
        self.machine.read(group, rank, region)
    }

    fn write(&mut self, group: usize, rank: usize, region: &Region, bytes: &[u8]) -> Result<(), MachineError> {
        if std::mem::replace(&mut self.reading, false) {
            self.machine.barrier("after reads")?;
        }
        if rank == self.machine.rank() { self.machine.write(group, rank, region, bytes) } else { Ok(()) }
    }

    fn broken_canary(&mut self, group: usize) -> Result<Option<(usize, String, i64)>, MachineError> {
        self.machine.broken_canary(group)
    }

    fn run(&mut self, script: &Script, deadline: Duration) -> Result<Run, MachineError> {
        self.reading = false;
        self.machine.run(script, deadline)
    }
}

fn judge(id: &str, machine: &mut dyn Machine) -> Verdict {
    let case: CollectiveCase = id.parse().unwrap();
    let verdict =
        runner::judge(&case, machine, &Settings { registry: &REGISTRY, deadline: DEADLINE, shared_pads: false, progress: &|_| {} });
    machine.close_groups();
    verdict
}

/// Of each kind of kernel, and of calls without one: copies with words, the library. Several calls in graphs and out of them, in place and not, one rank late.
const CASES: [&str; 20] = [
    "all_reduce/one_shot:bf16,sum:w=W:n=1040",
    "all_reduce/one_shot:f32,sum:w=W:n=4097:in_place:graph=3x5:inputs=natural",
    "all_reduce/two_shot:bf16,sum:w=W:n=1040:off=3:graph=3x5:skew=r1+20us@end:seed=9f3c",
    "all_reduce/two_shot:e4m3,prod:w=W:n=2049:inputs=natural",
    "all_reduce/push:f16,sum:w=W:n=33:skew=r0+5us",
    "all_reduce/push:f64,max:w=W:n=700:graph=2x3",
    "all_reduce/two_shot_push:i64,min:w=W:n=1040:in_place",
    "all_reduce/multimem:f32,sum:w=W:n=1040:inputs=natural",
    "all_reduce/multimem_one_shot:bf16,sum:w=W:n=520",
    "all_reduce/copy_engine:f32,avg:w=W:n=1040:graph=2x2",
    "all_reduce/nccl_ring:bf16,sum:w=W:n=1040:inputs=natural",
    "all_reduce/one_shot:i32,max:w=W:skew=r0+5us:calls=one_shot.7+[two_shot.9.off1+one_shot.0.in_place]x4+two_shot.33.g1",
    "all_gather/copy_engine:e5m2,copy:w=W:n=1040:in_place",
    "all_gather/nccl_ring:f32,copy:w=W:n=65",
    "broadcast/push:bf16,copy:w=W:n=1040:root=1",
    "broadcast/multimem:f32,copy:w=W:n=1040:root=1",
    "reduce_scatter/ll:f32,sum:w=W:n=130:inputs=natural:peer=nccl_ring",
    "reduce/two_shot:f16,sum:w=W:n=1040:root=1:in_place",
    "all_to_all/push:f64,copy:w=W:n=33:off=1:peer=nccl_send_recv",
    "all_to_all/copy_engine:bf16,copy:w=W:n=1040:counts=9f3c",
];

fn of_world(world: usize) -> Vec<String> {
    CASES.iter().map(|id| id.replace("w=W", &format!("w={world}"))).collect()
}

/// Cases of the smoke list for `world` ranks.
fn smoke(world: u32) -> Vec<String> {
    List::Smoke.cases(&REGISTRY, 0).into_iter().filter(|case| case.world == world).map(|case| case.to_string()).collect()
}

/// Cases of processes and of one process: all pass, and their outputs are equal to the bit.
fn same_bits(world: usize, ids: &[String]) {
    same_bits_under(world, ids, Interleaving::nth(0, 0));
}

fn same_bits_under(world: usize, ids: &[String], schedule: Interleaving) {
    let mut alone = Emulator::new(EmulatorOptions { profile: Profile::Off, ..EmulatorOptions::of(&REGISTRY) }.with(schedule));
    let expected: Vec<Verdict> = ids.iter().map(|id| judge(id, &mut alone)).collect();
    for (rank, said) in Ranks::start(world, &format!("judge/{schedule}/{}", ids.join(" "))).all_say().into_iter().enumerate() {
        let verdicts: Vec<Verdict> = serde_json::from_str(&said).unwrap();
        assert_eq!(verdicts.len(), expected.len());
        for (verdict, expected) in verdicts.iter().zip(&expected) {
            assert_eq!(verdict.status, Status::Pass, "rank {rank}: {verdict:#?}");
            assert_eq!((&verdict.outputs, &verdict.held), (&expected.outputs, &expected.held), "rank {rank}: {}", verdict.case);
        }
    }
}

/// If this fails, a strategy that holds back what others wait for holds back what other processes wait for, for ever.
fn every_schedule_computes_the_bits_of_one_process() {
    let ids = ["all_reduce/two_shot:bf16,sum:w=2:n=1040:graph=2x2".to_owned(), "all_reduce/push:f32,sum:w=2:n=130".to_owned()];
    for strategy in Strategy::ALL {
        same_bits_under(2, &ids, Interleaving { strategy, seed: 5 });
    }
}

/// A scene: what ranks do that come to no good, or late.
struct Scene {
    options: EmulatorOptions,
    buffers: Vec<BufferSpec>,
    world: usize,
    plan: Plan,
    /// Takes no part.
    leaves: Option<usize>,
    /// Is killed a moment after the start.
    killed: Option<usize>,
    /// Microseconds for which every host sleeps first.
    sleeps: u64,
    deadline: Duration,
}

impl Scene {
    fn of(name: &str, world: usize) -> Scene {
        let words = BufferSpec::new("words", 64, Role::Signals);
        let word = Region::new("words", 0, 4);
        let wait = || Op::WaitValue { at: word.clone(), value: 5 };
        let write = |to_rank| Op::WriteValue { to: word.clone(), value: 5, to_rank: Some(to_rank) };
        let busy = |times| Op::Launch(Launch { entry: "busy".into(), args: vec![Arg::U64(times)], ..own() });
        let options = EmulatorOptions { library: own_kernels(), profile: Profile::Off, ..EmulatorOptions::default() };
        let of_ranks = |rank_1: Vec<Op>, others: Vec<Op>| {
            Plan::per_rank(name, world as u32, |rank| if rank == 1 { rank_1.clone() } else { others.clone() })
        };
        let scene = |plan| Scene {
            options: options.clone(),
            buffers: vec![words.clone(), BufferSpec::new("data", 64, Role::Data)],
            world,
            plan,
            leaves: None,
            killed: None,
            sleeps: 0,
            deadline: Duration::from_secs(60),
        };
        let to_all = || (0..world as u32).map(write).collect::<Vec<Op>>();
        match name {
            "absent" => Scene { leaves: Some(1), ..Scene::all_reduce("one_shot", world, options) },
            "absent_in_call" => Scene { leaves: Some(1), ..Scene::all_reduce("nccl_ring", world, options) },
            "slow" => {
                let mut scene = Scene::all_reduce("one_shot", world, options);
                // As if 300 times the limit of a wait, by the clock of the rank that is slow.
                scene.options.wait_limit = Duration::from_micros(1);
                scene.plan.ranks[1].insert(0, busy(1 << 22));
                scene
            }
            "no_writer" => scene(of_ranks(vec![busy(1000)], vec![wait()])),
            "late_wait" => {
                let waits = Op::Launch(Launch { entry: "waits".into(), args: vec![Arg::U64(2_000_000_000_000)], ..own() });
                Scene { sleeps: 2_000_000_000, deadline: Duration::MAX, ..scene(of_ranks(vec![waits.clone()], vec![waits])) }
            }
            "at_work" => Scene { deadline: Duration::from_secs(1), ..scene(of_ranks(vec![busy(1 << 40)], vec![wait()])) },
            "killed" => Scene { killed: Some(1), ..scene(of_ranks(vec![busy(1 << 40)], vec![wait()])) },
            "astray" => {
                let astray = Op::Launch(Launch { entry: "read".into(), args: vec![Arg::Address(Region::new("words", 60, 4))], ..own() });
                scene(of_ranks([vec![busy(1 << 12), astray], to_all()].concat(), vec![wait()]))
            }
            "unwritten" => {
                let region = Region::new("data", 8, 4);
                let read =
                    Op::Launch(Launch { entry: "read".into(), args: vec![Arg::AddressOf { region: region.clone(), rank: 0 }], ..own() });
                let fill = Op::Fill { region: Region::new("data", 0, 12), byte: 1 };
                // Rank 0 writes the first of the two words that rank 1 reads there.
                scene(of_ranks(vec![wait(), read], [vec![fill], to_all()].concat()))
            }
            "unknown" => scene(of_ranks(vec![Op::Launch(Launch { entry: "nothing".into(), ..own() })], vec![wait()])),
            other => panic!("no scene {other}"),
        }
    }

    /// An all-reduce of f32 whose inputs are the rank and one.
    fn all_reduce(algorithm: &str, world: usize, options: EmulatorOptions) -> Scene {
        let algorithm = REGISTRY.find(Collective::AllReduce, algorithm).unwrap();
        let bytes = 64;
        let mut buffers = vec![BufferSpec::new("input", bytes, Role::Data), BufferSpec::new("words", bytes, Role::Data)];
        let (input, output) = (buffers[0].whole(), buffers[1].whole());
        let (collective, dtype, op) = (Collective::AllReduce, DType::F32, ReduceOp::Sum);
        let call = RankCall { collective, dtype, op, count: bytes / 4, root: 0, factor: None, parts: None, input, output };
        buffers.extend(algorithm.workspace(dtype, world as u32, bytes));
        let call = Call::validate(&vec![call; world], &buffers).unwrap();
        let plan = algorithm.plan(&call, &Target { waiting_blocks: 1, ..Target::default() });
        let options = EmulatorOptions { library: REGISTRY.library(), ..options };
        // Kernels of our own are among the library's.
        let mut library = options.library;
        library.replace("conformance/faults", KERNELS);
        let options = EmulatorOptions { library, profile: Profile::Off, ..EmulatorOptions::default() };
        Scene { options, buffers, world, plan, leaves: None, killed: None, sleeps: 0, deadline: Duration::from_secs(60) }
    }

    /// Opens the group, and writes the inputs of a rank, or of all.
    fn open(&self, machine: &mut dyn Machine, rank: Option<usize>) -> usize {
        let group = machine.open_group(self.world, &self.buffers).unwrap();
        for rank in (0..self.world).filter(|of| rank.is_none_or(|rank| rank == *of)) {
            if self.buffers[0].name == "input" {
                let input: Vec<u8> = (0..16).flat_map(|_| (rank as f32 + 1.0).to_le_bytes()).collect();
                machine.write(group, rank, &self.buffers[0].whole(), &input).unwrap();
            }
        }
        group
    }

    fn script(&self, group: usize) -> Script {
        let leaves = self.leaves.map(|rank| Step::Leave { rank, how: Departure::Idle });
        let sleeps = (0..self.world).filter(|_| self.sleeps > 0).map(|rank| Step::Delay { rank, microseconds: self.sleeps });
        let steps = leaves.into_iter().chain(sleeps).chain([Step::Enqueue { group, stream: 0, plan: Arc::new(self.plan.clone()) }]);
        Script { steps: steps.collect() }
    }

    fn read(&self, machine: &mut dyn Machine, group: usize, rank: usize) -> Vec<u8> {
        machine.read(group, rank, &Region::new("words", 0, 64)).unwrap()
    }

    /// What all ranks together say in one process.
    fn in_one_process(name: &str, world: usize) -> Result<Vec<Vec<u8>>, MachineError> {
        let scene = Scene::of(name, world);
        let mut machine = Emulator::new(scene.options.clone());
        let group = scene.open(&mut machine, None);
        machine.run(&scene.script(group), scene.deadline)?;
        Ok((0..world).map(|rank| scene.read(&mut machine, group, rank)).collect())
    }

    /// What each rank says in a process of its own.
    fn in_processes(name: &str, world: usize) -> Vec<Said> {
        let ranks = Ranks::start(world, &format!("scene/{name}"));
        ranks.all_say().iter().map(|said| serde_json::from_str(said).unwrap()).collect()
    }

    /// The error that all ranks have, each within `seconds` seconds.
    fn error_of_all(name: &str, world: usize, seconds: f64) -> MachineError {
        let mut all = Scene::in_processes(name, world);
        for (rank, said) in all.iter().enumerate() {
            assert!(said.ended.is_err() && said.seconds < seconds, "rank {rank}: {said:?}");
            assert_eq!(said.ended, all[0].ended, "rank {rank}");
            assert_eq!(said.again, None, "the ranks go on");
        }
        all.swap_remove(0).ended.unwrap_err()
    }
}

const KERNELS: &str = ".version 9.0\n.target sm_90\n.address_size 64\n\
     .visible .entry busy(.param .u64 times)\n{ .reg .pred %p; .reg .b64 %d<3>; ld.param.u64 %d1, [times]; mov.u64 %d2, 0;\n\
     L: add.u64 %d2, %d2, 1; setp.lt.u64 %p, %d2, %d1; @%p bra L;\nret; }\n\
     .visible .entry waits(.param .u64 nanoseconds)\n{ .reg .pred %p; .reg .b64 %d<3>; ld.param.u64 %d0, [nanoseconds];\n\
     mov.u64 %d1, %globaltimer; add.u64 %d1, %d1, %d0;\nL: mov.u64 %d2, %globaltimer; setp.lt.u64 %p, %d2, %d1; @%p bra L;\nret; }\n\
     .visible .entry read(.param .u64 from)\n{ .reg .b32 %r<2>; .reg .b64 %d; ld.param.u64 %d, [from];\n\
     ld.global.u32 %r0, [%d]; ld.global.u32 %r1, [%d+4];\nret; }\n\
     .visible .entry tell(.param .u64 to, .param .u64 what)\n{ .reg .b64 %d<2>; ld.param.u64 %d0, [to]; ld.param.u64 %d1, [what];\n\
     st.global.u64 [%d0], %d1;\nret; }\n";

/// A library with the kernels of this file.
fn own_kernels() -> Library {
    let mut library = Library::default();
    library.replace("conformance/faults", KERNELS);
    library
}

/// A launch of one of them, but for its entry and arguments.
fn own() -> Launch {
    Launch::new("conformance/faults", "", (1, 1), Vec::new())
}

/// If this fails, a rank that is gone is not named with the epoch that it is waited for with, or only after as long as a slow one is waited for.
fn a_rank_that_never_comes_is_named_by_who_waits_for_it() {
    let MachineError::Hang { stuck, .. } = Scene::error_of_all("absent", 4, 20.0) else { panic!("no hang") };
    let MachineError::Hang { stuck: expected, .. } = Scene::in_one_process("absent", 4).unwrap_err() else { panic!("no hang") };
    let names =
        |rank: usize| stuck.iter().any(|stuck| (stuck.rank, stuck.peer, stuck.site, stuck.want, stuck.saw) == (rank, 1, Site::Start, 1, 0));
    assert!([0, 2, 3].into_iter().all(names), "{stuck:?}");
    assert_eq!(stuck, expected);
}

/// If this fails, a deadlock lasts until the deadline, or is reported otherwise than in one process.
fn words_that_nobody_writes_are_a_deadlock() {
    let error = Scene::error_of_all("no_writer", 2, 20.0);
    let MachineError::Hang { cause, standing, unfinished, .. } = &error else { panic!("{error}") };
    let MachineError::Hang { cause: expected, standing: stood, unfinished: left, .. } = Scene::in_one_process("no_writer", 2).unwrap_err()
    else {
        panic!("no hang")
    };
    assert_eq!((cause, standing, unfinished), (&expected, &stood, &left));
    assert!(error.to_string().contains("rank 0 stream 0 waits until rank 0 words+0 is 5: it is 0"), "{error}");
}

/// If this fails, the library goes on without a rank, or does not say for whom it waits.
fn a_library_call_waits_for_all_ranks() {
    let error = Scene::error_of_all("absent_in_call", 4, 20.0).to_string();
    assert!(error.contains("rank 0 stream 0 in library call 0 of group 0 waits for ranks [1]"), "{error}");
}

/// If this fails, a wait gives up since its peer's process is slow: a machine that is loaded is taken for a hang.
fn a_slow_rank_is_waited_for() {
    let expected: Vec<u8> = (0..16).flat_map(|_| 10.0_f32.to_le_bytes()).collect();
    for said in Scene::in_processes("slow", 4) {
        assert_eq!(said.ended.as_ref(), Ok(&expected), "{said:?}");
    }
}

/// If this fails, a wait by the clock is given up since its rank slept before, or a deadline that no clock comes to is past.
fn an_hour_of_waiting_starts_with_the_wait() {
    for said in Scene::in_processes("late_wait", 2) {
        assert!(said.ended.is_ok(), "{said:?}");
    }
}

fn a_rank_at_work_at_the_deadline_is_no_hang() {
    let error = Scene::error_of_all("at_work", 2, 3.0);
    assert!(matches!(error, MachineError::Inconclusive { .. }), "{error}");
    assert!(error.to_string().contains("--deadline SECONDS allows more"), "{error}");
}

/// If this fails, ranks wait until the deadline for one that has given up, or do not say why it has.
fn an_error_of_one_rank_is_that_of_all() {
    let astray = Scene::error_of_all("astray", 4, 20.0);
    assert_eq!(astray, Scene::in_one_process("astray", 4).unwrap_err());
    assert!(astray.to_string().contains("4 bytes at rank 1 words+64 are out of bounds"), "{astray}");
    assert_eq!(Scene::error_of_all("unknown", 2, 20.0), Scene::in_one_process("unknown", 2).unwrap_err());
}

/// If this fails, what another process has written counts as never written, or nothing does.
fn bytes_that_nobody_wrote_are_known_to_peers() {
    let error = Scene::error_of_all("unwritten", 2, 20.0);
    assert_eq!(error, Scene::in_one_process("unwritten", 2).unwrap_err());
    assert!(error.to_string().contains("4 bytes at rank 0 data+12 were read, of which the one at 12 was never written"), "{error}");
}

/// If this fails, a job whose rank has died lasts for ever, or says nothing of who that was.
fn a_rank_that_is_killed_is_named_by_the_others() {
    let ended = Ranks::start(4, "scene/killed").end();
    assert_eq!(ended[1].1, "its process was killed by signal 9 (SIGKILL)");
    for rank in [0, 2, 3] {
        let (said, how) = &ended[rank];
        assert_eq!(how, "its process exited with status 0", "rank {rank}");
        let said: Said = serde_json::from_str(said).unwrap();
        let Err(MachineError::Fault { ranks, code, .. }) = &said.ended else { panic!("rank {rank}: {said:?}") };
        assert_eq!(ranks, &[1], "rank {rank}");
        assert!(code.contains("rank 1 of 4") && code.contains("waits until rank"), "rank {rank}: {code}");
        assert!(said.seconds < 10.0, "the deadline is a minute: rank {rank}: {said:?}");
        assert_eq!(said.again.as_ref(), said.ended.as_ref().err(), "nothing is done any more");
    }
}

/// Opens groups after launches that only one rank makes, and lets each rank say where it has the buffers of all.
fn addresses(mut machine: RankEmulator) -> Vec<u8> {
    let (rank, world) = (machine.rank(), machine.max_world());
    let buffer = BufferSpec::new("words", 64, Role::Data);
    let own_blocks = Plan::per_rank("own", 2, |rank| {
        let launch = Launch { entry: "busy".into(), args: vec![Arg::U64(1)], ..own() };
        if rank == 0 { vec![Op::Launch(launch.clone()), Op::Launch(launch)] } else { Vec::new() }
    });
    let run = |machine: &mut RankEmulator, group: usize, plan: Plan| {
        machine.run(&Script { steps: vec![Step::Enqueue { group, stream: 0, plan: Arc::new(plan) }] }, DEADLINE).unwrap();
    };
    let two = machine.open_group(2, std::slice::from_ref(&buffer)).unwrap();
    run(&mut machine, two, own_blocks);
    let all = machine.open_group(world, std::slice::from_ref(&buffer)).unwrap();
    let tell = |of: u32| {
        let what = Arg::AddressOf { region: buffer.whole(), rank: of };
        Op::Launch(Launch { entry: "tell".into(), args: vec![Arg::Address(Region::new("words", 8 * u64::from(of), 8)), what], ..own() })
    };
    run(&mut machine, all, Plan::per_rank("tell", world as u32, |_| (0..world as u32).map(tell).collect()));
    machine.read(all, rank, &Region::new("words", 0, 8 * world as u64)).unwrap()
}

/// If this fails, a kernel that hands its peer an address hands it that of something else.
fn groups_have_the_same_addresses_in_all_processes() {
    let told: Vec<Vec<u8>> = Ranks::start(3, "addresses").all_say().iter().map(|said| serde_json::from_str(said).unwrap()).collect();
    assert_eq!(told[0].len(), 24);
    assert!(told.iter().all(|of_rank| *of_rank == told[0]), "{told:?}");
}

/// If this fails, ranks that do not agree on a group go on with different memory. What they agree on afterwards goes on.
fn ranks_that_ask_for_different_groups_are_told() {
    for said in Ranks::start(3, "disagree").all_say() {
        let said: Vec<Result<usize, String>> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let refused = said[0].as_ref().unwrap_err();
        assert!(refused.contains("rank 2 asks for other buffers or another world size than rank 0"), "{refused}");
        assert_eq!(said[1], Ok(0));
    }
}

/// If this fails, a rank whose shared memory is full ends the job, or the others do not say whose it was.
fn what_one_rank_has_no_memory_for_all_do_without() {
    for said in Ranks::start(3, "capped").all_say() {
        let said: Vec<Result<usize, String>> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let refused = said[0].as_ref().unwrap_err();
        assert!(refused.contains("bytes of memory that rank 1 shares: File too large"), "{refused}");
        assert_eq!(said[1], Ok(0), "the machine is as it was");
    }
}
