//! Ranks as processes, without a GPU: this binary starts itself once a rank. Each process has an emulator of all ranks and answers for its own, so that what the
//! processes say together must be what one says alone.

use std::{
    env,
    process::{self, Command, Stdio},
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Failed, Trial};
use passmuster_bootstrap::{
    Bootstrap, Event, Rank,
    own::{self, Launched},
};
use passmuster_harness::{
    conformance::{
        CollectiveCase, Status,
        ranks::{
            Processes, decline,
            messages::{Answer, PackedScript, Request, decode, encode},
            of_loss, serve,
        },
        runner::{self, Settings},
        scenario::{self, Options},
    },
    emulator::{Emulator, EmulatorOptions},
};
use passmuster_plan::{
    algorithms::Registry,
    machine::{Machine, MachineError, MachineInfo, Run},
    plan::{BufferSpec, Plan, Region, Role, Script},
};
use rustix::process::{Signal, getpid, kill_process};

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| passmuster_harness::registry(passmuster_kernels::catalogue()));

/// Set in a rank: what becomes of rank 1 when it is to run something.
const ROLE: &str = "PASSMUSTER_TEST_ROLE";

/// How much later than its deadline a run may end.
const LATER: Duration = Duration::from_secs(2);

fn main() {
    if let Ok(role) = env::var(ROLE) {
        let mut rank = own::join().unwrap();
        rank.set_limit(Duration::from_secs(20));
        let own = rank.rank();
        if role == "slow" {
            open_slowly(&mut rank);
        }
        let mut machine = Replica { emulator: Emulator::new(EmulatorOptions::of(&REGISTRY)), own, role };
        let served = serve(&rank, &mut machine, &REGISTRY.library());
        process::exit(i32::from(served.is_err()));
    }
    let trial = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok::<(), Failed>(())
        })
    };
    let trials = vec![
        trial("processes_say_what_one_says", processes_say_what_one_says),
        trial("more_than_a_message_has_comes_as_it_went", more_than_a_message_has_comes_as_it_went),
        trial("a_lost_rank_ends_a_run_with_its_name", a_lost_rank_ends_a_run_with_its_name),
        trial("ranks_that_open_devices_for_seconds_report_who_was_lost", ranks_that_open_devices_for_seconds_report_who_was_lost),
        trial("a_rank_that_is_about_to_run_something_else_is_named", a_rank_that_is_about_to_run_something_else_is_named),
        trial("what_a_rank_refuses_is_the_machine_s_error", what_a_rank_refuses_is_the_machine_s_error),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// If this fails, what is larger than the pieces that bytes travel in comes in another order, or in part.
fn more_than_a_message_has_comes_as_it_went() {
    let bytes: Vec<u8> = (0..1_300_000u32).flat_map(u32::to_le_bytes).collect();
    let mut processes = Processes::open(launch(2, "all")).unwrap();
    let group = processes.open_group(2, &[BufferSpec::new("words", bytes.len() as u64, Role::Data)]).unwrap();
    let region = Region::new("words", 0, bytes.len() as u64);
    processes.write(group, 1, &region, &bytes).unwrap();
    assert!(processes.read(group, 1, &region).unwrap() == bytes);
    let inner = Region::new("words", 12, bytes.len() as u64 - 20);
    assert!(processes.read(group, 1, &inner).unwrap() == bytes[12..bytes.len() - 8]);
}

/// Rank 1 is lost while the others open what takes them seconds, as contexts of GPUs do; after that they are to agree on something.
fn open_slowly(rank: &mut Rank) {
    if rank.rank() == 1 {
        process::exit(0);
    }
    thread::sleep(Duration::from_millis(2500));
    let lost = rank.all_gather("devices", &[]).unwrap_err();
    let _ = decline(rank, &of_loss(1, &lost));
    process::exit(1);
}

/// The machine of one rank, which has all of them.
struct Replica {
    emulator: Emulator,
    own: usize,
    role: String,
}

impl Replica {
    fn only_own<T>(&self, rank: usize, act: impl FnOnce() -> T) -> T {
        assert_eq!(rank, self.own, "rank {} is asked for what another one has", self.own);
        act()
    }
}

impl Machine for Replica {
    fn info(&self) -> MachineInfo {
        self.emulator.info()
    }

    fn max_world(&self) -> usize {
        self.emulator.max_world()
    }

    fn waiting_blocks(&self, world: usize, groups: usize) -> u32 {
        self.emulator.waiting_blocks(world, groups)
    }

    fn most_waiting_blocks(&self, world: usize, groups: usize) -> u32 {
        self.emulator.most_waiting_blocks(world, groups)
    }

    fn rendezvous(&self) -> u64 {
        self.emulator.rendezvous()
    }

    fn check_budget(&self, elements: u64) -> Result<(), MachineError> {
        self.emulator.check_budget(elements)
    }

    fn open_group(&mut self, world: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        self.emulator.open_group(world, buffers)
    }

    fn close_groups(&mut self) {
        self.emulator.close_groups();
    }

    fn read(&mut self, group: usize, rank: usize, region: &Region) -> Result<Vec<u8>, MachineError> {
        self.only_own(rank, || ());
        self.emulator.read(group, rank, region)
    }

    fn write(&mut self, group: usize, rank: usize, region: &Region, bytes: &[u8]) -> Result<(), MachineError> {
        self.only_own(rank, || ());
        self.emulator.write(group, rank, region, bytes)
    }

    fn broken_canary(&mut self, group: usize) -> Result<Option<(usize, String, i64)>, MachineError> {
        self.emulator.broken_canary(group)
    }

    fn run(&mut self, script: &Script, deadline: Duration) -> Result<Run, MachineError> {
        match (&*self.role, self.own) {
            ("kill", 1) => kill_process(getpid(), Signal::KILL).unwrap(),
            ("stop", 1) => kill_process(getpid(), Signal::STOP).unwrap(),
            ("exit", 1) => process::exit(0),
            ("panic", 1) => panic!("as it was asked to"),
            ("never", _) => panic!("it runs what ranks do not agree on"),
            _ => {}
        }
        self.emulator.run(script, deadline)
    }
}

fn launch(world: usize, role: &str) -> Launched {
    let command = |_| {
        let mut command = Command::new(env::current_exe().unwrap());
        command.env(ROLE, role).stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    Launched::start(world, false, command).unwrap()
}

/// If this fails, verdicts on ranks in processes are of something else than the case.
fn processes_say_what_one_says() {
    let settings = Settings { registry: &REGISTRY, deadline: Duration::from_secs(60), shared_pads: false, progress: &|_| {} };
    let mut alone = Emulator::new(EmulatorOptions::of(&REGISTRY));
    for world in [2, 4] {
        let mut processes = Processes::open(launch(world, "all")).unwrap();
        for case in [
            format!("all_reduce/two_shot:bf16,sum:w={world}:n=1040"),
            format!("all_gather/copy_engine:f32,copy:w={world}:n=24:in_place"),
            "all_to_all/ll:f16,copy:w=2:n=40:graph=3x2".to_owned(),
            "broadcast/pull:f32,copy:w=1:n=9".to_owned(),
        ] {
            let case: CollectiveCase = case.parse().unwrap();
            let [expected, got] = [&mut alone as &mut dyn Machine, &mut processes].map(|machine| runner::judge(&case, machine, &settings));
            assert_eq!((got.status, &*got.reason), (Status::Pass, ""), "{case}");
            assert_eq!((got.outputs, got.held), (expected.outputs, expected.held), "{case}");
            assert_eq!(got.waived.len(), expected.waived.len(), "{case}");
        }
        let too_many: CollectiveCase = "all_reduce/two_shot:bf16,sum:w=8:n=24".parse().unwrap();
        let verdict = runner::judge(&too_many, &mut processes, &settings);
        assert_eq!(
            (verdict.status, verdict.reason),
            (Status::NotSupported, format!("not supported: world size 8: there are {world} processes"))
        );
    }
}

fn script(case: &str) -> (Vec<Vec<BufferSpec>>, Script) {
    let case: CollectiveCase = case.parse().unwrap();
    let scenario = scenario::build(&case, &Options { registry: &REGISTRY, waiting_blocks: 4, shared_pads: false }).unwrap();
    (scenario.groups, scenario.script)
}

/// If this fails, a run waits for a rank that is gone, or does not say which one it was.
fn a_lost_rank_ends_a_run_with_its_name() {
    for (role, reason) in [
        ("kill", "rank 1 of 3: its process was killed by signal 9 (SIGKILL)"),
        ("stop", "rank 1 of 3: it is stopped by signal 19 (SIGSTOP)"),
        ("exit", "rank 1 of 3: its process exited with status 0"),
        ("panic", "rank 1 gave up: it panicked"),
    ] {
        let mut processes = Processes::open(launch(3, role)).unwrap();
        let (groups, script) = script("all_reduce/one_shot:f32,sum:w=3:n=24");
        processes.open_group(3, &groups[0]).unwrap();
        // The error must give the reason, not that the deadline has passed.
        let (began, deadline) = (Instant::now(), Duration::from_secs(30));
        let error = processes.run(&script, deadline).unwrap_err();
        assert!(began.elapsed() < deadline + LATER + Duration::from_millis(500), "{role}: {:?}", began.elapsed());
        let MachineError::Fault { ranks, code, .. } = &error else { panic!("{role}: {error}") };
        assert!(*ranks == [1] && code.starts_with(reason), "{role}: {error}");
        assert!(processes.is_broken());
        assert_eq!(processes.open_group(3, &groups[0]).unwrap_err(), error, "it is used again");
    }
}

/// If this fails, a rank that is lost while others open their GPUs is a failure of which these are said to know nothing.
fn ranks_that_open_devices_for_seconds_report_who_was_lost() {
    let error = Processes::open(launch(3, "slow")).map(drop).unwrap_err();
    let MachineError::Fault { ranks, code, .. } = &error else { panic!("{error}") };
    assert!(*ranks == [1] && code.starts_with("rank 1 of 3: its process exited with status 0"), "{error}");
    assert!(code.contains("ranks [0, 2] report the same"), "{error}");
}

/// If this fails, ranks that were called for different things begin, and hang or scribble.
fn a_rank_that_is_about_to_run_something_else_is_named() {
    let launched = launch(3, "never");
    let hub = launched.hub();
    let answers = || -> Vec<Answer> {
        let mut all: Vec<(usize, Answer)> = (0..3)
            .map(|_| match hub.next(Instant::now() + Duration::from_secs(20)) {
                Some(Event::Mail { rank, bytes }) => (rank, decode(&bytes).unwrap().1),
                other => panic!("{other:?}"),
            })
            .collect();
        all.sort_by_key(|(rank, _)| *rank);
        all.into_iter().map(|(_, answer)| answer).collect()
    };
    assert!(answers().iter().all(|answer| matches!(answer, Answer::Ready { .. })));
    let differ = [
        ("all_reduce/one_shot:f16,sum:w=3:n=24", "rank 2 has dtype of call "),
        ("all_reduce/one_shot:bf16,max:w=3:n=24", "rank 2 has op of call "),
        ("all_reduce/one_shot:bf16,sum:w=3:n=25", "rank 2 has count of call "),
        ("all_gather/push:bf16,copy:w=3:n=24", "rank 2 has "),
    ];
    for (number, (other, named)) in differ.into_iter().enumerate() {
        for rank in 0..3 {
            let case = if rank == 2 { other } else { "all_reduce/one_shot:bf16,sum:w=3:n=24" };
            let request = Request::Run { script: PackedScript::of(&script(case).1), deadline_ms: 1000 };
            hub.send(rank, encode(number as u64, &request, &[]));
        }
        for answer in answers() {
            let Answer::Error(MachineError::Differs { rank: 2, field, reason }) = answer else { panic!("{other}: {answer:?}") };
            assert!(reason.starts_with(&format!("rank 2 has {field} = ")), "{field}: {reason}");
            assert!(
                reason.starts_with(named) && reason.contains(&format!("all ranks must have the same, in run {}", number + 1)),
                "{reason}"
            );
        }
    }
    (0..3).for_each(|rank| hub.send(rank, encode(9, &Request::Leave, &[])));
    assert_eq!(launched.finish(Duration::from_secs(5)), ["its process exited with status 0"; 3]);
}

fn what_a_rank_refuses_is_the_machine_s_error() {
    let mut processes = Processes::open(launch(2, "all")).unwrap();
    let mut alone = Emulator::new(EmulatorOptions::default());
    let buffer = BufferSpec::new("words", 64, Role::Data);
    for machine in [&mut processes as &mut dyn Machine, &mut alone] {
        machine.open_group(2, std::slice::from_ref(&buffer)).unwrap();
        machine.write(0, 1, &buffer.whole(), &[7; 64]).unwrap();
    }
    let [got, expected] = [&mut processes as &mut dyn Machine, &mut alone].map(|machine| {
        let beyond = Region::new("words", 60, 8);
        let other = Region::new("other", 0, 4);
        let plan = Plan::per_rank("fill", 2, |_| vec![passmuster_plan::plan::Op::Fill { region: other.clone(), byte: 1 }]);
        let steps = vec![passmuster_plan::plan::Step::Enqueue { group: 0, stream: 0, plan: plan.into() }];
        (
            machine.read(0, 1, &Region::new("words", 8, 4)),
            machine.read(0, 1, &beyond),
            machine.read(3, 0, &beyond),
            machine.write(0, 0, &buffer.whole(), &[1; 3]),
            machine.run(&Script { steps }, Duration::from_secs(5)),
            machine.broken_canary(0),
            machine.waiting_blocks(2, 1),
            machine.check_budget(u64::MAX),
        )
    });
    assert_eq!(got, expected);
    assert!(!processes.is_broken());
    assert!(matches!(processes.read(0, 5, &buffer.whole()), Err(MachineError::Invalid { .. })));
}
