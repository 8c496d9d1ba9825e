//! The supervisor and its worker, without a GPU: this binary is its own worker, which does to itself what a kernel might.
//!
//! If one of these failed, a hang or a crash would take the run with it, be called a pass, or leave a process on somebody's GPU.

use std::{
    env, fs,
    io::{self, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{self, Command, Stdio},
    sync::LazyLock,
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Failed, Trial};
use passmuster_harness::{
    conformance::{
        CollectiveCase, Status, Verdict,
        process::{CANNOT_RUN, FAREWELL, say},
        runner::{self, Settings},
        supervisor::{StartError, Supervisor, WorkerCommand},
        worker::{self, Answer, Request},
    },
    emulator::{Emulator, EmulatorOptions},
};
use passmuster_plan::{
    algorithms::Registry,
    machine::{Blamed, How, MachineInfo},
};

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| passmuster_harness::registry(passmuster_kernels::catalogue()));

/// Bytes of a long answer: more than is kept of a line of log.
const LONG: usize = 3 << 20;

/// Set in a worker: how it starts.
const ROLE: &str = "PASSMUSTER_TEST_WORKER";

fn main() {
    if let Ok(role) = env::var(ROLE) {
        return act(&role);
    }
    let trial = |name: &str, test: fn()| {
        Trial::test(name, move || {
            test();
            Ok::<(), Failed>(())
        })
    };
    let trials = vec![
        trial("cases_share_a_worker_while_all_is_well", cases_share_a_worker_while_all_is_well),
        trial("a_hang_is_a_verdict_and_the_next_case_runs_afresh", a_hang_is_a_verdict_and_the_next_case_runs_afresh),
        trial("what_is_slow_passes_at_a_second_look_that_is_told", what_is_slow_passes_at_a_second_look_that_is_told),
        trial("no_answer_without_devices_at_work_is_inconclusive", no_answer_without_devices_at_work_is_inconclusive),
        trial("what_the_worker_calls_inconclusive_is_looked_at_again", what_the_worker_calls_inconclusive_is_looked_at_again),
        trial("second_looks_are_few", second_looks_are_few),
        trial("what_ranks_that_share_gpus_hang_in_is_looked_at_again", what_ranks_that_share_gpus_hang_in_is_looked_at_again),
        trial("a_second_look_that_dies_is_a_crash", a_second_look_that_dies_is_a_crash),
        trial("only_a_worker_that_says_so_is_killed", only_a_worker_that_says_so_is_killed),
        trial("deaths_are_crashes_that_say_how_and_keep_the_last_words", deaths_are_crashes_that_say_how_and_keep_the_last_words),
        trial("a_death_is_seen_though_a_child_holds_the_output_open", a_death_is_seen_though_a_child_holds_the_output_open),
        trial("a_panic_is_the_harness_s_fault", a_panic_is_the_harness_s_fault),
        trial("a_worker_that_says_hang_is_not_used_again", a_worker_that_says_hang_is_not_used_again),
        trial("an_answer_to_another_question_is_no_verdict", an_answer_to_another_question_is_no_verdict),
        trial("an_answer_may_be_longer_than_a_line_of_log", an_answer_may_be_longer_than_a_line_of_log),
        trial("a_death_between_cases_is_a_note", a_death_between_cases_is_a_note),
        trial("a_death_before_a_case_is_taken_up_is_not_the_case_s", a_death_before_a_case_is_taken_up_is_not_the_case_s),
        trial("a_case_that_no_worker_survives_is_a_crash", a_case_that_no_worker_survives_is_a_crash),
        trial("starts_that_fail_are_told_from_machines_that_cannot", starts_that_fail_are_told_from_machines_that_cannot),
        trial("nothing_is_left_running", nothing_is_left_running),
        trial("a_hung_worker_does_not_outlive_its_supervisor", a_hung_worker_does_not_outlive_its_supervisor),
        trial("the_environment_reaches_the_worker", the_environment_reaches_the_worker),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// The worker. What comes before the first comma of a case says what it does.
fn act(role: &str) {
    match role {
        "no_gpu" => {
            eprintln!("found 0 GPUs, 2 are needed");
            process::exit(CANNOT_RUN);
        }
        "broken" => {
            eprintln!("libnccl.so.2: cannot open shared object file");
            process::exit(127);
        }
        "dies_when_asked" => die_when_asked(0),
        "dies_when_asked_again" => die_when_asked(1),
        "slow" => thread::sleep(Duration::from_secs(600)),
        _ => {}
    }
    let machine = MachineInfo { kind: "emulator".into(), gpus: 2, ..MachineInfo::default() };
    worker::serve(machine, |request| {
        let (what, argument) = request.case.split_once(',').unwrap_or((&request.case, ""));
        worker::progress(format!("step 1 of {what}"));
        println!("a library's own output");
        eprintln!("a library's own complaint");
        match what {
            "sleep" => thread::sleep(Duration::from_secs(600)),
            "sleep_at_work" => {
                worker::busy(true);
                thread::sleep(Duration::from_secs(600));
            }
            "sleep_after_work" => {
                worker::busy(true);
                worker::busy(false);
                thread::sleep(Duration::from_secs(600));
            }
            // If the request gives it less than a minute.
            "sleep_if_hurried" if request.deadline() < Duration::from_secs(60) => thread::sleep(Duration::from_secs(600)),
            "sleep_then_die" if request.deadline() < Duration::from_secs(60) => thread::sleep(Duration::from_secs(600)),
            "sleep_then_die" => process::exit(5),
            "given_up_if_hurried" if request.deadline() < Duration::from_secs(60) => {
                return Verdict::without_checks(&request.case, Status::Inconclusive, "hosts were slow");
            }
            "given_up" => return Verdict::without_checks(&request.case, Status::Inconclusive, "hosts were slow"),
            "judge" => {
                if role == "expendable" {
                    worker::expendable();
                }
                let settings = Settings { registry: &REGISTRY, deadline: request.deadline(), shared_pads: false, progress: &|_| {} };
                let case: CollectiveCase = argument.parse().expect("an id");
                let mut verdict = runner::judge(&case, &mut Emulator::new(EmulatorOptions::of(&REGISTRY)), &settings);
                // Longer than a killed process would live.
                thread::sleep(Duration::from_millis(100));
                verdict.case.clone_from(&request.case);
                return verdict;
            }
            "exit" => process::exit(argument.parse().expect("a code")),
            "abort" => process::abort(),
            "orphan" => {
                // Inherits the worker's output and outlives it.
                let child = Command::new("sleep").arg("600").spawn().expect("sleep is everywhere");
                eprintln!("started {}", child.id());
                process::exit(9);
            }
            "panic" => panic!("index 8 out of range"),
            "hang" => return Verdict::without_checks(&request.case, Status::Hang, "rank 3 did not finish"),
            // A case's own id. A wait in it gives up, with `sum` if the request gives it less than a minute, and always with `max`.
            "all_reduce/one_shot:bf16" if argument.starts_with("max") || request.deadline() < Duration::from_secs(60) => {
                return Verdict::without_checks(&request.case, Status::Hang, "rank 3 did not start");
            }
            "long" => return Verdict::without_checks(&request.case, Status::Pass, "x".repeat(LONG)),
            "other" => return Verdict::without_checks("another case", Status::Pass, ""),
            "die_later" => {
                thread::spawn(|| {
                    thread::sleep(Duration::from_millis(20));
                    process::exit(7);
                });
            }
            "half_line" => print!("a line without an end"),
            _ => {}
        }
        let reason = format!("{} {} {}", process::id(), request.deadline_ms, env::var("PASSMUSTER_TEST_MODE").unwrap_or_default());
        Verdict::without_checks(&request.case, Status::Pass, reason)
    });
}

/// A worker that judges `cases`, and dies of the next request before it takes it up.
fn die_when_asked(cases: usize) -> ! {
    let say = |answer| say(&answer).expect("the supervisor listens");
    say(Answer::Ready(MachineInfo::default()));
    for line in io::stdin().lines().take(cases) {
        let request: Request = serde_json::from_str(&line.expect("a line")).expect("a request");
        say(Answer::Began(request.case.clone()));
        say(Answer::Verdict(Verdict::without_checks(request.case, Status::Pass, "")));
    }
    io::stdin().lines().next();
    process::exit(7);
}

fn supervisor(role: &str) -> Supervisor {
    let command = WorkerCommand::of_this_program(Vec::<String>::new()).unwrap().with_environment([(ROLE, role)]);
    let mut supervisor = Supervisor::new(command, REGISTRY.clone());
    supervisor.grace = Duration::from_millis(200);
    supervisor.patience = 2;
    supervisor
}

fn ask(supervisor: &mut Supervisor, case: &str) -> Verdict {
    let limit = if case.starts_with("sleep") { Duration::from_millis(300) } else { Duration::from_secs(20) };
    supervisor.judge(&Request::new(case, limit))
}

fn is_gone(id: u32) -> bool {
    // A zombie that only its new parent can reap runs no more.
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| matches!(rest.trim_start().chars().next(), None | Some('Z' | 'X')))
}

/// Asserts that the next case passes in another process than `before`, and that `before` is gone.
#[track_caller]
fn assert_next_runs_afresh(supervisor: &mut Supervisor, before: u32) {
    let verdict = ask(supervisor, "pass");
    assert_eq!(verdict.status, Status::Pass, "{verdict:?}");
    assert_ne!(supervisor.worker_id(), Some(before));
    assert!(is_gone(before), "worker {before} is still there");
}

fn cases_share_a_worker_while_all_is_well() {
    let mut supervisor = supervisor("ready");
    assert_eq!(supervisor.machine().unwrap().gpus, 2);
    let id = supervisor.worker_id().unwrap();
    for case in ["pass", "half_line", "pass,again"] {
        let verdict = ask(&mut supervisor, case);
        assert_eq!((verdict.case.as_str(), verdict.status), (case, Status::Pass));
        assert_eq!(verdict.reason, format!("{id} 20000 "));
        assert!(verdict.milliseconds > 0.0);
    }
    assert_eq!(supervisor.notes(), [] as [String; 0]);
}

fn a_hang_is_a_verdict_and_the_next_case_runs_afresh() {
    let mut supervisor = supervisor("ready");
    supervisor.machine().unwrap();
    let id = supervisor.worker_id().unwrap();
    let start = Instant::now();
    let verdict = ask(&mut supervisor, "sleep_at_work");
    // A deadline and grace, then twice the deadline and grace.
    assert!((1.2..10.0).contains(&start.elapsed().as_secs_f64()), "{:?}", start.elapsed());
    assert_eq!(verdict.status, Status::Hang);
    assert!(verdict.reason.starts_with("no answer after 0."), "{}", verdict.reason);
    assert!(verdict.reason.contains("devices were at work, worker"), "{}", verdict.reason);
    assert!(verdict.reason.contains("s ago: step 1 of sleep"), "{}", verdict.reason);
    assert!(verdict.findings[0].details.contains("-- asked for sleep_at_work\n"), "{verdict:?}");
    assert!(verdict.findings[0].details.contains("a library's own complaint\n"), "{verdict:?}");
    assert_next_runs_afresh(&mut supervisor, id);
}

/// If this fails, a loaded host is reported as a hang of the kernel, or nobody learns that it took long.
fn what_is_slow_passes_at_a_second_look_that_is_told() {
    let mut supervisor = supervisor("ready");
    supervisor.machine().unwrap();
    let id = supervisor.worker_id().unwrap();
    // More than it takes to sleep through, however loaded the host is.
    supervisor.patience = 1000;
    let verdict = ask(&mut supervisor, "sleep_if_hurried");
    assert_eq!((verdict.status, verdict.findings.len()), (Status::Pass, 0), "{verdict:?}");
    assert!(verdict.reason.contains("; judged a second time, alone and with 300.0 s: at first no answer after 0."), "{}", verdict.reason);
    assert_next_runs_afresh(&mut supervisor, id);
}

fn no_answer_without_devices_at_work_is_inconclusive() {
    for case in ["sleep", "sleep_after_work"] {
        let mut supervisor = supervisor("ready");
        supervisor.machine().unwrap();
        let id = supervisor.worker_id().unwrap();
        let verdict = ask(&mut supervisor, case);
        assert_eq!(verdict.status, Status::Inconclusive, "{verdict:?}");
        assert!(verdict.reason.contains("no device was known to be at work"), "{}", verdict.reason);
        assert!(verdict.reason.contains("; judged a second time, alone and with 0.6 s: at first no answer after 0."), "{}", verdict.reason);
        assert_next_runs_afresh(&mut supervisor, id);
    }
}

fn what_the_worker_calls_inconclusive_is_looked_at_again() {
    let mut supervisor = supervisor("ready");
    supervisor.machine().unwrap();
    let id = supervisor.worker_id().unwrap();
    supervisor.patience = 1000;
    let verdict = ask(&mut supervisor, "given_up_if_hurried");
    assert_eq!(verdict.status, Status::Pass, "{verdict:?}");
    assert!(verdict.reason.ends_with("; judged a second time, alone and with 600.0 s: at first hosts were slow"), "{}", verdict.reason);
    assert_next_runs_afresh(&mut supervisor, id);
    let id = supervisor.worker_id().unwrap();
    let verdict = ask(&mut supervisor, "given_up");
    assert_eq!(verdict.status, Status::Inconclusive, "{verdict:?}");
    assert!(verdict.reason.starts_with("hosts were slow; judged a second time"), "{}", verdict.reason);
    assert_next_runs_afresh(&mut supervisor, id);
}

/// If this fails, a machine on which nothing ends takes hours to say so.
fn second_looks_are_few() {
    let mut supervisor = supervisor("ready");
    supervisor.second_looks = 1;
    assert!(ask(&mut supervisor, "sleep").reason.contains("judged a second time"));
    assert_eq!(supervisor.second_looks, 0);
    for (case, status) in [("sleep", Status::Inconclusive), ("sleep_at_work", Status::Hang), ("given_up", Status::Inconclusive)] {
        let start = Instant::now();
        let verdict = ask(&mut supervisor, case);
        assert_eq!(verdict.status, status, "{verdict:?}");
        assert!(verdict.reason.ends_with("; it was not judged a second time, as others of this run were"), "{}", verdict.reason);
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}

/// If this fails, what a device does not promise, to start all of the ranks that share it, is a finding on a kernel; or no kernel hangs there at all.
fn what_ranks_that_share_gpus_hang_in_is_looked_at_again() {
    let mut supervisor = supervisor("ready");
    supervisor.patience = 1000;
    let verdict = ask(&mut supervisor, "all_reduce/one_shot:bf16,sum:w=4:n=40");
    assert_eq!(verdict.status, Status::Pass, "{verdict:?}");
    assert!(
        verdict.reason.ends_with("; judged a second time, alone and with 600.0 s: at first rank 3 did not start"),
        "{}",
        verdict.reason
    );
    let verdict = ask(&mut supervisor, "all_reduce/one_shot:bf16,max:w=4:n=40");
    assert_eq!(verdict.status, Status::Hang, "{verdict:?}");
    assert!(verdict.reason.starts_with("rank 3 did not start; judged a second time"), "{}", verdict.reason);
    // A GPU for each, and a rank that is to stay away.
    let verdict = ask(&mut supervisor, "all_reduce/one_shot:bf16,sum:w=2:n=40");
    assert_eq!((verdict.status, &*verdict.reason), (Status::Hang, "rank 3 did not start"));
    let verdict = ask(&mut supervisor, "all_reduce/one_shot:bf16,sum:w=4:n=40:fault=absent@r1");
    assert_eq!((verdict.status, verdict.came_to), (Status::Fail, Some(Status::Hang)), "rank 1 was not named: {verdict:?}");
    assert!(verdict.reason.ends_with("but was a hang: rank 3 did not start"), "{}", verdict.reason);
    assert_eq!(supervisor.second_looks, 1);
}

fn a_second_look_that_dies_is_a_crash() {
    let mut supervisor = supervisor("ready");
    supervisor.patience = 1000;
    let verdict = ask(&mut supervisor, "sleep_then_die");
    assert_eq!(verdict.status, Status::Crash, "{verdict:?}");
    assert!(verdict.reason.contains("exited with code 5") && verdict.reason.contains("; judged a second time"), "{}", verdict.reason);
}

/// If this fails, `fault=killed` kills any process that judges it, or none at all.
fn only_a_worker_that_says_so_is_killed() {
    let case = "judge,all_reduce/one_shot:bf16,sum:w=2:n=40:fault=killed";
    let verdict = ask(&mut supervisor("ready"), case);
    assert_eq!(verdict.status, Status::NotSupported, "{verdict:?}");
    assert!(verdict.reason.contains("only a worker is killed"), "{}", verdict.reason);
    let verdict = ask(&mut supervisor("expendable"), case);
    assert_eq!(verdict.status, Status::Crash, "{verdict:?}");
    assert!(verdict.reason.contains("died of signal 9"), "{}", verdict.reason);
    assert_eq!(verdict.blamed, [Blamed::process(How::Killed { signal: 9 })]);
}

fn deaths_are_crashes_that_say_how_and_keep_the_last_words() {
    for (case, how) in [("exit,41", "exited with code 41"), ("abort", "died of signal 6"), ("exit,0", "exited with code 0")] {
        let mut supervisor = supervisor("ready");
        supervisor.machine().unwrap();
        let id = supervisor.worker_id().unwrap();
        let verdict = ask(&mut supervisor, case);
        assert_eq!(verdict.status, Status::Crash, "{verdict:?}");
        assert!(verdict.reason.contains(how), "{}", verdict.reason);
        assert!(verdict.reason.contains("step 1 of"), "{}", verdict.reason);
        assert!(verdict.findings[0].details.contains("a library's own output\n"), "{verdict:?}");
        assert!(verdict.findings[0].details.contains("a library's own complaint\n"), "{verdict:?}");
        assert_next_runs_afresh(&mut supervisor, id);
    }
}

fn a_death_is_seen_though_a_child_holds_the_output_open() {
    let mut supervisor = supervisor("ready");
    let start = Instant::now();
    let verdict = ask(&mut supervisor, "orphan");
    assert_eq!(verdict.status, Status::Crash, "{verdict:?}");
    assert!(start.elapsed() < Duration::from_secs(10));
    let log = &verdict.findings[0].details;
    let orphan: u32 = log.lines().find_map(|line| line.strip_prefix("started ")).expect(log).parse().unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while !is_gone(orphan) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(is_gone(orphan), "what the worker started, {orphan}, is still there");
}

fn a_panic_is_the_harness_s_fault() {
    let mut supervisor = supervisor("ready");
    supervisor.machine().unwrap();
    let id = supervisor.worker_id().unwrap();
    let verdict = ask(&mut supervisor, "panic");
    assert_eq!((verdict.status, verdict.reason.as_str()), (Status::InfraError, "the harness panicked: index 8 out of range"));
    assert_next_runs_afresh(&mut supervisor, id);
}

fn a_worker_that_says_hang_is_not_used_again() {
    let mut supervisor = supervisor("ready");
    supervisor.machine().unwrap();
    let id = supervisor.worker_id().unwrap();
    let verdict = ask(&mut supervisor, "hang");
    assert_eq!((verdict.status, verdict.reason.as_str()), (Status::Hang, "rank 3 did not finish"));
    assert_next_runs_afresh(&mut supervisor, id);
}

fn an_answer_to_another_question_is_no_verdict() {
    let mut supervisor = supervisor("ready");
    supervisor.machine().unwrap();
    let id = supervisor.worker_id().unwrap();
    let verdict = ask(&mut supervisor, "other");
    assert_eq!((verdict.case.as_str(), verdict.status), ("other", Status::InfraError));
    assert_eq!(verdict.reason, "the worker was asked for other and judged another case");
    assert_next_runs_afresh(&mut supervisor, id);
}

fn an_answer_may_be_longer_than_a_line_of_log() {
    let verdict = ask(&mut supervisor("ready"), "long");
    assert_eq!((verdict.status, verdict.reason.len()), (Status::Pass, LONG), "{:.200}", verdict.reason);
}

fn a_death_between_cases_is_a_note() {
    let mut supervisor = supervisor("ready");
    assert_eq!(ask(&mut supervisor, "die_later").status, Status::Pass);
    let id = supervisor.worker_id().unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while !is_gone(id) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    assert_next_runs_afresh(&mut supervisor, id);
    assert_eq!(supervisor.notes(), [format!("worker {id} exited with code 7 after its last verdict")]);
}

fn a_death_before_a_case_is_taken_up_is_not_the_case_s() {
    let mut supervisor = supervisor("dies_when_asked_again");
    assert_eq!(ask(&mut supervisor, "pass").status, Status::Pass);
    let id = supervisor.worker_id().unwrap();
    assert_next_runs_afresh(&mut supervisor, id);
    assert_eq!(supervisor.notes(), [format!("worker {id} exited with code 7 after its last verdict")]);
}

fn a_case_that_no_worker_survives_is_a_crash() {
    let mut supervisor = supervisor("dies_when_asked");
    let verdict = ask(&mut supervisor, "pass");
    assert_eq!(verdict.status, Status::Crash, "{verdict:?}");
    assert!(verdict.reason.ends_with("exited with code 7; it reported no progress"), "{}", verdict.reason);
    assert_eq!(supervisor.notes().len(), 1, "{:?}", supervisor.notes());
}

fn starts_that_fail_are_told_from_machines_that_cannot() {
    let mut without_gpu = supervisor("no_gpu");
    let reason = "found 0 GPUs, 2 are needed".to_owned();
    assert_eq!(without_gpu.machine(), Err(StartError::CannotRun { reason }));
    let verdict = ask(&mut without_gpu, "pass");
    assert_eq!(verdict.status, Status::NotRun);
    assert_eq!(verdict.reason, "this machine cannot run it: found 0 GPUs, 2 are needed");

    let mut broken = supervisor("broken");
    let verdict = ask(&mut broken, "pass");
    assert_eq!(verdict.status, Status::InfraError);
    let expected = "the worker did not start: exited with code 127: libnccl.so.2: cannot open shared object file";
    assert_eq!(verdict.reason, expected);

    let mut slow = supervisor("slow");
    slow.start_limit = Duration::from_millis(200);
    let verdict = ask(&mut slow, "pass");
    assert_eq!(verdict.status, Status::InfraError);
    assert!(verdict.reason.contains("not ready after 0.2 s"), "{}", verdict.reason);

    let command = WorkerCommand { program: "/nonexistent".into(), args: Vec::new(), env: Vec::new() };
    let mut missing = Supervisor::new(command, REGISTRY.clone());
    let verdict = ask(&mut missing, "pass");
    assert_eq!(verdict.status, Status::InfraError);
    assert!(verdict.reason.contains("/nonexistent: No such file"), "{}", verdict.reason);
}

fn nothing_is_left_running() {
    let mut stopped = supervisor("ready");
    stopped.machine().unwrap();
    let id = stopped.worker_id().unwrap();
    let start = Instant::now();
    stopped.stop();
    assert!(is_gone(id));
    assert!(start.elapsed() < FAREWELL, "an idle worker goes when its input ends");
    assert_next_runs_afresh(&mut stopped, id);

    let id = stopped.worker_id().unwrap();
    drop(stopped);
    assert!(is_gone(id));
}

/// As after the supervisor was killed: its end of the worker's input is closed, and nobody kills the worker.
fn a_hung_worker_does_not_outlive_its_supervisor() {
    let mut worker = Command::new(env::current_exe().unwrap())
        .env(ROLE, "ready")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap();
    let request = serde_json::to_string(&Request::new("sleep", Duration::from_secs(600))).unwrap();
    worker.stdin.take().unwrap().write_all(format!("{request}\n").as_bytes()).unwrap();
    let deadline = Instant::now() + FAREWELL * 2;
    let status = loop {
        match worker.try_wait().unwrap() {
            Some(status) => break status,
            None => assert!(Instant::now() < deadline, "worker {} is still there", worker.id()),
        }
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.signal(), Some(9));
}

fn the_environment_reaches_the_worker() {
    let roles = [(ROLE, "ready"), ("PASSMUSTER_TEST_MODE", "ring")];
    let command = WorkerCommand::of_this_program(Vec::<String>::new()).unwrap().with_environment(roles);
    let mut supervisor = Supervisor::new(command, REGISTRY.clone());
    assert!(ask(&mut supervisor, "pass").reason.ends_with(" ring"));
}
