//! Several processes for one command: they find what one process finds, however they were started and whatever becomes of one of them.

mod folder;

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use passmuster::conformance::{Status, Verdict, report::Record};
use rustix::process::{Pid, Signal, kill_process};

use folder::Folder;

/// A dozen cases.
const QUERY: [&str; 4] = ["validate", "all_reduce/two_shot:f32,*:w=2,3", "--limit", "12"];

const OF_LAUNCHERS: [&str; 9] = [
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "PASSMUSTER_SECRET",
    "GITHUB_ACTIONS",
    "GITHUB_STEP_SUMMARY",
];

fn passmuster(folder: &Folder, arguments: &[&str]) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).to_owned();
    let mut command = Command::new(env!("CARGO_BIN_EXE_passmuster"));
    for name in OF_LAUNCHERS {
        command.env_remove(name);
    }
    command.args(arguments).current_dir(root).env("HOME", folder.file("")).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The verdicts of a record, without the time that they took.
fn verdicts(folder: &Folder, name: &str) -> Vec<Verdict> {
    let record: Record = serde_json::from_str(&folder.read(name)).unwrap();
    assert_eq!(record.partial, None);
    record.cases.into_iter().map(|verdict| Verdict { milliseconds: 0.0, ..verdict }).collect()
}

/// Runs the query, with more arguments, and returns what became of it.
fn run(folder: &Folder, json: &str, more: &[&str]) -> Output {
    passmuster(folder, &[&QUERY, &["--json", &folder.file(json)][..], more].concat()).output().unwrap()
}

/// One process with torchrun's variables.
fn placed(folder: &Folder, (rank, world, port): (usize, usize, u16), arguments: &[&str]) -> Child {
    let mut command = passmuster(folder, arguments);
    command.env("RANK", rank.to_string()).env("WORLD_SIZE", world.to_string()).env("LOCAL_RANK", rank.to_string());
    command.env("MASTER_ADDR", "127.0.0.1").env("PASSMUSTER_PORT", port.to_string());
    command.env("TORCHELASTIC_ERROR_FILE", folder.file(&format!("error-{rank}.json"))).spawn().unwrap()
}

/// A port that nobody has just now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// If this fails, a verdict depends on who judged the case.
#[test]
fn processes_find_what_one_finds() {
    let folder = Folder::new("spread");
    assert_eq!(run(&folder, "alone.json", &[]).status.code(), Some(0));
    let alone = verdicts(&folder, "alone.json");
    assert_eq!(alone.len(), 12);

    let own = run(&folder, "own.json", &["--launcher", "own", "--judges", "3"]);
    assert_eq!((own.status.code(), text(&own.stderr).contains("is lost")), (Some(0), false), "{}", text(&own.stderr));
    assert_eq!(verdicts(&folder, "own.json"), alone);

    let (port, json) = (free_port(), folder.file("env.json"));
    let arguments = [&QUERY, &["--json", &json][..]].concat();
    // Rank 0 comes last.
    let placed: Vec<Child> = (0..3).rev().map(|rank| placed(&folder, (rank, 3, port), &arguments)).collect();
    for process in placed {
        let output = process.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    assert_eq!(verdicts(&folder, "env.json"), alone);
    assert!(folder.names().iter().all(|name| !name.starts_with("error-")), "{:?}", folder.names());
}

fn children(of: u32) -> Vec<u32> {
    let path = PathBuf::from(format!("/proc/{of}/task/{of}/children"));
    fs::read_to_string(path).unwrap_or_default().split_whitespace().map(|id| id.parse().unwrap()).collect()
}

fn signal(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process as i32).unwrap(), signal).unwrap();
}

/// Waits until a command has started `count` processes.
fn started(command: &Child, count: usize) -> Vec<u32> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while children(command.id()).len() < count && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(2));
    }
    children(command.id())
}

/// If this fails, cases are missing for a process that was lost, or a run ends with it.
#[test]
fn what_a_lost_process_had_is_judged_again() {
    let folder = Folder::new("lost");
    assert_eq!(run(&folder, "alone.json", &[]).status.code(), Some(0));
    for (judges, kill) in [("2", 1), ("2", 2)] {
        let json = folder.file("lost.json");
        let command =
            passmuster(&folder, &[&QUERY, &["--json", &json, "--launcher", "own", "--judges", judges][..]].concat()).spawn().unwrap();
        let processes = started(&command, 2);
        processes.iter().take(kill).for_each(|&process| signal(process, Signal::KILL));
        let output = command.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{said}");
        let lost = said.matches("is lost: its process was killed by signal 9 (SIGKILL); ").count();
        assert_eq!((lost, said.contains("no process is left: this one judges")), (kill, kill == 2), "{said}");
        assert_eq!(verdicts(&folder, "lost.json"), verdicts(&folder, "alone.json"));
    }
}

/// Seconds of processor time that a process has had.
fn processor_time(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Behind its name, which may have blanks: the 12th and the 13th field from there, in hundredths.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// The same of processes that a launcher started, of which nobody here can say how one has ended.
#[test]
fn what_a_lost_rank_of_a_launcher_had_is_judged_again() {
    let folder = Folder::new("lost-placed");
    let query = ["validate", "all_reduce/two_shot:f32,*:w=2,3,4", "--limit", "250", "--threads", "1"];
    let recorded = |json: &str| [&query[..], &["--json", &folder.file(json)]].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
    let arguments = recorded("lost.json");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let port = free_port();
    let mut job: Vec<Child> = (0..3).map(|rank| placed(&folder, (rank, 3, port), &arguments)).collect();
    // By then it judges: to start takes less, and a third of the cases more, where a machine is fast, too.
    let deadline = Instant::now() + Duration::from_secs(120);
    while processor_time(job[1].id()) < 1.0 && job[1].try_wait().unwrap().is_none() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(2));
    }
    assert!(job[1].try_wait().unwrap().is_none(), "it was done before it could be lost");
    signal(job[1].id(), Signal::KILL);
    let [first, _, last] = [(); 3].map(|()| job.remove(0).wait_with_output().unwrap());
    let said = text(&first.stderr);
    assert!(said.contains("rank 1 of 3 is lost: "), "{said}");
    assert_eq!((first.status.code(), last.status.code()), (Some(0), Some(0)), "{said}");
    let alone = recorded("alone.json");
    assert!(passmuster(&folder, &alone.iter().map(String::as_str).collect::<Vec<_>>()).output().unwrap().status.success());
    assert_eq!(verdicts(&folder, "lost.json"), verdicts(&folder, "alone.json"));
}

/// If this fails, processes stay behind where the command is ended, and take the host's processors.
#[test]
fn no_process_outlives_the_command() {
    let folder = Folder::new("ended");
    for end in [Signal::TERM, Signal::KILL] {
        let query = ["validate", "merge", "--launcher", "own", "--judges", "2"];
        let command = passmuster(&folder, &query).spawn().unwrap();
        let processes = started(&command, 2);
        assert_eq!(processes.len(), 2);
        signal(command.id(), end);
        drop(command.wait_with_output());
        // It is a zombie of somebody else's where it has ended.
        let is_at_work = |id: &&u32| fs::read_to_string(format!("/proc/{id}/cmdline")).is_ok_and(|line| line.contains("--judges"));
        let deadline = Instant::now() + Duration::from_secs(20);
        while processes.iter().any(|id| is_at_work(&id)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        let left: Vec<&u32> = processes.iter().filter(is_at_work).collect();
        assert!(left.is_empty(), "{left:?} are left after {end:?}");
    }
}

/// If this fails, a collective depends on whether its ranks are threads or processes.
#[test]
fn ranks_that_are_processes_compute_the_same_bits() {
    let folder = Folder::new("ranks");
    let query = ["validate", "all_reduce/two_shot:f32,*:w=1,2", "--limit", "4"];
    let recorded = |json: &str| [&query, &["--json", &folder.file(json)][..]].concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
    let with = |json: &str, more: &[&str]| {
        let arguments = [recorded(json), more.iter().map(|&argument| argument.to_owned()).collect()].concat();
        let output = passmuster(&folder, &arguments.iter().map(String::as_str).collect::<Vec<_>>()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{more:?}: {}{}", text(&output.stdout), text(&output.stderr));
    };
    let outputs = |json: &str| verdicts(&folder, json).into_iter().map(|verdict| (verdict.case, verdict.outputs)).collect::<Vec<_>>();
    with("alone.json", &[]);
    with("own.json", &["--launcher", "own", "--processes", "2"]);
    assert_eq!(outputs("own.json"), outputs("alone.json"));
    assert!(outputs("own.json").iter().all(|(_, outputs)| outputs.is_some()));

    let (port, json) = (free_port(), folder.file("env.json"));
    let arguments = [&query, &["--json", &json, "--launcher", "env", "--processes", "2"][..]].concat();
    for process in [0, 1].map(|rank| placed(&folder, (rank, 2, port), &arguments)) {
        let output = process.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    assert_eq!(outputs("env.json"), outputs("alone.json"));
}

/// The digests of the smoke list's outputs in a record, by case; nothing else than what is not supported is without.
fn digests(folder: &Folder, json: &str) -> BTreeMap<String, String> {
    let of = |verdict: Verdict| {
        assert!(matches!(verdict.status, Status::Pass | Status::NotSupported), "{json}: {verdict:#?}");
        Some((verdict.case, verdict.outputs?))
    };
    verdicts(folder, json).into_iter().filter_map(of).collect()
}

/// Starts a job of this many processes of the command; what became of them.
type Start = fn(&Folder, usize, &[&str]) -> Vec<Output>;

fn by_own(folder: &Folder, _: usize, arguments: &[&str]) -> Vec<Output> {
    vec![passmuster(folder, arguments).output().unwrap()]
}

fn by_env(folder: &Folder, count: usize, arguments: &[&str]) -> Vec<Output> {
    let port = free_port();
    let placed: Vec<Child> = (0..count).map(|rank| placed(folder, (rank, count, port), arguments)).collect();
    placed.into_iter().map(|process| process.wait_with_output().unwrap()).collect()
}

/// Lets Open MPI 4 and 5 run as root, as in a container, and with more processes than processors. MPICH does so anyway, and does not know Open MPI's options.
#[cfg(feature = "mpi")]
const OPEN_MPI: [(&str, &str); 4] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
];

#[cfg(feature = "mpi")]
fn by_mpi(folder: &Folder, count: usize, arguments: &[&str]) -> Vec<Output> {
    let alone = passmuster(folder, arguments);
    let mut command = Command::new("mpirun");
    command.envs(OPEN_MPI).args(["-n", &count.to_string()]).arg(alone.get_program()).args(alone.get_args());
    alone.get_current_dir().map(|path| command.current_dir(path));
    for (name, value) in alone.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    vec![command.output().unwrap()]
}

/// How processes are started, and what that is called.
const LAUNCHERS: &[(&str, Start)] = &[
    ("own", by_own),
    ("env", by_env),
    #[cfg(feature = "mpi")]
    ("mpi", by_mpi),
];

/// If this fails, what a collective computes depends on whether its ranks are threads or processes, or on who started them.
///
/// All of the smoke list on two and on four processes of each launcher has the digests that one process has of it. Nothing else can run beside it.
#[test]
fn smoke_by_every_launcher_has_the_digests_of_one() {
    let folder = Folder::new("smoke");
    let list = |name: &str, count: usize, more: &[&str], start: Start| {
        let json = format!("{name}-{count}.json");
        for output in start(&folder, count, &[&["validate", "smoke", "--json", &folder.file(&json)], more].concat()) {
            assert_eq!(output.status.code(), Some(0), "{name}: {}{}", text(&output.stdout), text(&output.stderr));
        }
        digests(&folder, &json)
    };
    let alone = list("alone", 1, &["--profile", "off"], by_own);
    for (count, at_least) in [(2, 150), (4, 300)] {
        for &(name, start) in LAUNCHERS {
            let found = list(name, count, &["--launcher", name, "--processes", &count.to_string()], start);
            assert!(found.len() >= at_least, "{name}: {} digests", found.len());
            let differ: Vec<&String> =
                found.iter().filter(|(case, digest)| alone.get(*case) != Some(*digest)).map(|(case, _)| case).collect();
            assert!(differ.is_empty(), "{name} on {count} processes: {differ:#?}");
        }
    }
}

/// If this fails, a rank that is lost is a hang, or nobody learns which it was.
#[test]
fn a_rank_that_is_lost_is_named() {
    let folder = Folder::new("lost-rank");
    let command = passmuster(&folder, &[&QUERY[..], &["--launcher", "own", "--processes", "3"]].concat()).spawn().unwrap();
    let processes = started(&command, 3);
    signal(processes[1], Signal::KILL);
    let output = command.wait_with_output().unwrap();
    let said = text(&output.stderr) + &text(&output.stdout);
    assert!(said.contains("rank 1 of 3: its process was killed by signal 9 (SIGKILL)"), "{said}");
    assert!(matches!(output.status.code(), Some(1 | 2)), "{said}");
}

/// If this fails, what breaks in one rank is not what all others report, leaves something behind, or does so only now and then: all of them twenty times.
#[test]
fn faults_of_ranks_are_told_by_all() {
    const FAULTS: &str = "killed@*,stopped*,exited*,panicked*,stalled*,lost*,capped*,garbage*,other*,port_in_use,poisoned";
    let folder = Folder::new("faults");
    let told = |name: &str, world: usize, at_least: usize| {
        let (world, json) = (world.to_string(), format!("{name}.json"));
        let query = format!("*:*,*:w={world}:fault={FAULTS}");
        let arguments = ["validate", &query, "--launcher", "own", "--processes", &world, "--deadline", "1", "--json", &folder.file(&json)];
        let output = passmuster(&folder, &arguments).env("RUST_BACKTRACE", "0").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{name}: {}{}", text(&output.stdout), text(&output.stderr));
        let verdicts = verdicts(&folder, &json);
        assert!(verdicts.len() >= at_least && verdicts.iter().all(|verdict| verdict.status == Status::Pass), "{name}: {verdicts:#?}");
    };
    // Five at once: they wait for much of their time.
    let rounds = |suite: u32| {
        let told = &told;
        move || (0..4).for_each(|round| told(&format!("two-{suite}-{round}"), 2, 28))
    };
    thread::scope(|scope| (0..5).for_each(|suite| drop(scope.spawn(rounds(suite)))));
    told("four", 4, 12);
}

/// If this fails, processes without GPUs say something else than one process does: that something failed, or, where a launcher has started them, each that it is
/// the only one.
#[test]
fn ranks_without_gpus_say_that_this_machine_has_none() {
    let (folder, port) = (Folder::new("no-gpus"), free_port());
    let query = ["test-gpu", "all_reduce/one_shot:f32,sum:w=2:n=4"];
    let none = ("CUDA_VISIBLE_DEVICES", "");
    let own = passmuster(&folder, &[&query[..], &["--launcher", "own", "--processes", "2"]].concat()).env(none.0, none.1).output().unwrap();
    let placed = |more: &[&str], port: u16| {
        let started = [0, 1].map(|rank: usize| {
            let mut command = passmuster(&folder, &[&query[..], more].concat());
            command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2").env("LOCAL_RANK", rank.to_string()).env("LOCAL_WORLD_SIZE", "2");
            command.env("MASTER_ADDR", "127.0.0.1").env("PASSMUSTER_PORT", port.to_string()).env(none.0, none.1).spawn().unwrap()
        });
        started.map(|process| process.wait_with_output().unwrap())
    };
    // The launcher has said how many processes there are.
    let ([first, second], [asked, _]) = (placed(&[], port), placed(&["--launcher", "env"], port));
    for output in [&own, &first, &asked] {
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(3), 1), "{said}");
        assert!(said.starts_with("test-gpu cannot run on this machine: rank "), "{said}");
    }
    assert_eq!((second.status.code(), text(&second.stderr)), (Some(3), String::new()));
}

/// If this fails, one record has verdicts of two runs.
#[test]
fn processes_of_different_runs_do_not_mix() {
    let (folder, port) = (Folder::new("mixed"), free_port());
    let ranks = [(0, "0"), (1, "7")].map(|(rank, seed)| placed(&folder, (rank, 2, port), &[&QUERY, &["--seed", seed][..]].concat()));
    let [first, second] = ranks.map(|process| process.wait_with_output().unwrap());
    assert_eq!((first.status.code(), second.status.code()), (Some(2), Some(2)));
    for output in [first, second] {
        assert!(text(&output.stderr).contains("rank 1 was started for another run"), "{}", text(&output.stderr));
    }
    for rank in 0..2 {
        assert!(folder.read(&format!("error-{rank}.json")).contains("another run"), "rank {rank} does not tell torchrun");
    }
}

/// If this fails, a wrong line or environment is a hang, or one process that says nothing of the others.
#[test]
fn what_is_asked_wrongly_is_refused() {
    let folder = Folder::new("refused");
    let refused = |arguments: &[&str], why: &str| {
        let output = passmuster(&folder, &[&["validate", "--limit", "1"], arguments].concat()).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(why), "{arguments:?}: {said}");
    };
    refused(&["--launcher", "env"], "nobody placed this process");
    refused(&["--judges", "2"], "--launcher");
    refused(&["--launcher", "own", "--judges", "2", "--processes", "2"], "cannot be used with");
    refused(&["--launcher", "own", "--processes", "2", "--schedules", "3"], "have one schedule");
    refused(&["--launcher", "own", "--judges", "0"], "invalid value '0'");
    refused(&["--launcher", "own", "--machine", "cuda"], "cases are shared out on the emulator only");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let first = placed(&folder, (0, 2, taken.local_addr().unwrap().port()), &QUERY).wait_with_output().unwrap();
    assert!(first.status.code() == Some(2) && text(&first.stderr).contains("the port is in use"), "{}", text(&first.stderr));
}
