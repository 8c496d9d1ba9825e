//! Ranks in processes of their own, on the emulator: this binary is its own ranks, which meet at a hub in the process of the test.
//!
//! If one of these failed, ranks in processes would compute other bits than in one, or wait for a rank that is gone.

mod hub;

use std::{
    collections::BTreeMap,
    env,
    io::Read,
    os::{fd::OwnedFd, unix::net::UnixStream, unix::process::ExitStatusExt},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Failed, Trial};
use passmuster::{
    conformance::{
        CollectiveCase, Status, Verdict,
        runner::{self, Settings},
    },
    emulator::{Emulator, EmulatorOptions, Profile, RankEmulator},
};
use passmuster_collectives::{
    library::Library,
    machine::{Deferred, Machine, MachineError, MachineInfo, Run},
    plan::{Arg, BufferSpec, Build, Launch, Op, Plan, Region, Role, Script, Step},
};

/// Set in a rank's process: `RANK/WORLD/PART`.
const PART: &str = "PASSMUSTER_TEST_RANK";

/// For cases that pass: long enough for a machine that is busy.
const DEADLINE: Duration = Duration::from_secs(120);

fn main() {
    if let Ok(part) = env::var(PART) {
        let mut fields = part.splitn(3, '/');
        let mut next = || fields.next().expect("RANK/WORLD/PART");
        let (rank, world) = (next().parse().unwrap(), next().parse().unwrap());
        return act(rank, world, next());
    }
    let trial = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok::<(), Failed>(())
        })
    };
    let trials = vec![trial("two_processes_compute_the_bits_of_one", || same_bits(2))];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// What a rank's process does.
fn act(rank: usize, world: usize, part: &str) {
    let spoke = hub::Spoke::of_standard_input(rank, world);
    let machine = |options| RankEmulator::new(options, Box::new(spoke)).unwrap();
    match part.split_once('/').unwrap_or((part, "")) {
        ("judge", ids) => {
            let mut machine = InStep { machine: machine(EmulatorOptions::default()), reading: false };
            let verdicts: Vec<Verdict> = ids.split(' ').map(|id| judge(id, &mut machine)).collect();
            println!("{}", serde_json::to_string(&verdicts).unwrap());
        }
        (other, _) => panic!("rank {rank} has no part {other}"),
    }
}

/// The ranks of a test: what each of them says, and how it ends.
struct Ranks {
    processes: Vec<Child>,
    hub: Option<thread::JoinHandle<()>>,
}

impl Ranks {
    fn start(world: usize, part: &str) -> Ranks {
        let mut sockets = Vec::new();
        let start = |rank: usize| {
            let (own, of_rank) = UnixStream::pair().unwrap();
            sockets.push(own);
            let mut command = Command::new(env::current_exe().unwrap());
            command.env(PART, format!("{rank}/{world}/{part}")).stdin(OwnedFd::from(of_rank)).stdout(Stdio::piped());
            command.spawn().unwrap()
        };
        let processes = (0..world).map(start).collect();
        Ranks { processes, hub: Some(thread::spawn(move || hub::serve(sockets))) }
    }

    /// Waits for all of them.
    fn end(mut self) -> Vec<(String, ExitStatus)> {
        let read = |process: &mut Child| {
            let mut said = String::new();
            process.stdout.take().unwrap().read_to_string(&mut said).unwrap();
            (said, process.wait().unwrap())
        };
        let ended = self.processes.iter_mut().map(read).collect();
        self.hub.take().unwrap().join().unwrap();
        ended
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
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
    let verdict = runner::judge(&case, machine, &Settings { deadline: DEADLINE, shared_pads: false, progress: &|_| {} });
    machine.close_groups();
    verdict
}

/// Of each kind of kernel, and of calls without one: copies with words, the library. Several calls in graphs and out of them, in place and not, one rank late.
fn cases(world: usize) -> Vec<String> {
    ["all_reduce/one_shot:bf16,sum:w=W:n=1040"].iter().map(|id| id.replace('W', &world.to_string())).collect()
}

/// Cases of processes and of one process: all pass, and their outputs are equal to the bit.
fn same_bits(world: usize) {
    let ids = cases(world);
    let mut alone = Emulator::new(EmulatorOptions { profile: Profile::Off, ..EmulatorOptions::default() });
    let ranks = Ranks::start(world, &format!("judge/{}", ids.join(" ")));
    let expected: Vec<Verdict> = ids.iter().map(|id| judge(id, &mut alone)).collect();
    for (rank, (said, status)) in ranks.end().into_iter().enumerate() {
        assert!(status.success(), "rank {rank}: {status}");
        let verdicts: Vec<Verdict> = serde_json::from_str(&said).unwrap();
        for (verdict, expected) in verdicts.iter().zip(&expected) {
            assert_eq!(verdict.status, Status::Pass, "rank {rank}: {verdict:?}");
            assert_eq!((&verdict.outputs, &verdict.held), (&expected.outputs, &expected.held), "rank {rank}: {}", verdict.case);
        }
        assert_eq!(verdicts.len(), expected.len());
    }
}
