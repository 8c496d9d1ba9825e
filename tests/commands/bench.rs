//! `bench` and `report` as commands: their exit codes, files and errors. What is timed is a rehearsal on the emulator.

mod folder;

use std::{
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use passmuster::collective::DType;
use passmuster::conformance::{
    Status,
    report::{Record, packed},
};
use passmuster_bench::{Rendezvous, Side, Timing, Workload};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use folder::Folder;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_passmuster")).args(arguments).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn record(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/records").join(name).display().to_string()
}

/// If this fails, calls of another type or operator are timed as bf16 and sum, or their files overwrite each other.
#[test]
fn types_and_operators_have_tables_of_their_own() {
    let folder = Folder::new("types");
    let [json, plots, nccl, trace, changed] = ["run.json", "plots", "nccl", "trace.json", "changed.json"].map(|name| folder.file(name));
    let mut line = vec!["bench", "reduce_scatter", "--rehearse", "--worlds", "2", "--sizes", "256,1K", "--dtype", "f32,e4m3"];
    line.extend([
        "--op",
        "max,premul_sum",
        "--contenders",
        "pull,ll",
        "--json",
        &json,
        "--plot",
        &plots,
        "--nccl-tests",
        &nccl,
        "--trace",
        &trace,
    ]);
    let output = run(&line);
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}\n{error}");
    let mut record: Record<Timing> = serde_json::from_str(&folder.read("run.json")).unwrap();
    assert_eq!(record.cases.len(), 16);
    for timing in &record.cases {
        let of = timing.workload.collective().unwrap();
        let judged = format!("{}:{},{}:", timing.contender, of.dtype, of.op);
        assert!(timing.is_judged() && timing.check.as_ref().unwrap().case.contains(&judged), "{timing:?}");
    }
    assert!(record.notes[0].contains("--sizes 256,1024 --dtype f32,e4m3 --op max,premul_sum --contenders pull,ll"), "{}", record.notes[0]);
    for (title, file) in [("f32 max", "f32-max"), ("e4m3 premul_sum", "e4m3-premul_sum")] {
        assert!(out.contains(&format!("reduce_scatter {title}, w=2: microseconds a call")), "{out}");
        assert!(folder.read(&format!("plots/reduce_scatter-{file}-w2-time.svg")).contains("pull"));
    }
    let document: Value = serde_json::from_str(&folder.read("nccl/reduce_scatter-e4m3-premul_sum-w2-ll.json")).unwrap();
    let kinds = ["type", "redop"].map(|key| document["results"][0][key].as_str().unwrap().to_owned());
    assert_eq!(kinds, ["f8e4m3", "mulsum"]);
    assert!(folder.read("trace.json").contains("reduce_scatter f32 max/pull w=2"));

    // One that was faster, and one that was not timed.
    let is = |timing: &Timing, dtype, contender| timing.workload.dtype() == dtype && timing.contender == contender;
    for timing in &mut record.cases {
        if is(timing, DType::F32, "ll") {
            let times = timing.microseconds.as_mut().unwrap();
            times.rounds.iter_mut().for_each(|round| *round /= 2.0);
            times.median /= 2.0;
        }
        if is(timing, DType::E4M3, "pull") {
            timing.reason = "for a reason".into();
        }
    }
    fs::write(&changed, serde_json::to_string(&record).unwrap()).unwrap();
    let slower = run(&["report", &json, "--baseline", &changed]);
    assert!(text(&slower.stdout).contains("reduce_scatter f32 max/ll"), "{}", text(&slower.stdout));
    let page = folder.file("changed.html");
    run(&["report", &changed, "--html", &page]);
    assert!(folder.read("changed.html").contains("reduce_scatter e4m3 max/pull"));
}

/// If this fails, some way from the command line through the workers to the files is broken.
#[test]
fn a_rehearsal_judges_times_and_records() {
    let folder = Folder::new("rehearsal");
    let [json, csv, html, plots, nccl, trace] =
        ["run.json", "run.csv", "run.html", "plots", "nccl", "trace.json"].map(|name| folder.file(name));
    let contenders = "two_shot,one_shot_push,nccl_ring";
    let mut line =
        vec!["bench", "all_reduce", "--rehearse", "--worlds", "2,3", "--sizes", "256,1K", "--rounds", "6", "--contenders", contenders];
    line.extend(["--json", &json, "--csv", &csv, "--html", &html, "--plot", &plots, "--nccl-tests", &nccl, "--trace", &trace]);
    let output = run(&line);
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}\n{error}");
    assert!(error.contains("its times order and do not measure"), "{error}");

    let record: Record<Timing> = serde_json::from_str(&folder.read("run.json")).unwrap();
    assert_eq!((record.kind.as_str(), record.machine.kind.as_str(), record.cases.len()), ("bench", "emulator", 12));
    for timing in &record.cases {
        assert!(timing.status == Status::Pass && timing.is_judged(), "{timing:?}");
        assert!([&timing.microseconds, &timing.eager].iter().all(|times| times.as_ref().is_some_and(|times| times.rounds.len() == 6)));
        assert_eq!(timing.wire.is_some(), !timing.is_peer());
    }
    assert!(
        record.notes[0].contains("bench all_reduce --worlds 2,3 --sizes 256,1024 --contenders two_shot,one_shot_push,nccl_ring --rounds 6")
    );
    assert!(out.contains("all_reduce bf16 sum, w=3: microseconds a call, eager"), "{out}");
    assert!(out.starts_with("rounds: 6, samples of each: 2 after 2, calls of each: 2, copies of the buffers: 2; L2 cold"), "{out}");
    assert!(folder.read("run.csv").lines().count() > 12);
    assert!(folder.read("run.html").contains("</html>"));
    assert!(folder.read("plots/all_reduce-w2-time.svg").contains("two_shot"));
    assert!(fs::metadata(folder.file("plots/all_reduce-w3-busbw.png")).unwrap().len() > 1000);
    let document: Value = serde_json::from_str(&folder.read("nccl/all_reduce-w2-two_shot.json")).unwrap();
    assert_eq!(document["results"].as_array().unwrap().len(), 2);
    let trace: Value = serde_json::from_str(&folder.read("trace.json")).unwrap();
    let launches = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X").count();
    assert_eq!(launches, 3 * 2 * (2 + 3), "one operation a rank of each call");

    // The same machine, the same method: nothing has become slower, for emulated times are always the same.
    let again = run(&["report", &json, "--baseline", &json]);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    assert!(text(&again.stdout).contains("against the baseline: 0 slower, 0 faster"), "{}", text(&again.stdout));
}

/// If this fails, what works in place only is compared with what does not, or is not timed at all.
#[test]
fn calls_in_place_have_tables_of_their_own() {
    let folder = Folder::new("bench_in_place");
    let [json, csv, nccl] = ["run.json", "run.csv", "nccl"].map(|name| folder.file(name));
    let mut line = vec!["bench", "reduce_scatter", "--rehearse", "--in-place", "--worlds", "2", "--sizes", "256", "--rounds", "2"];
    line.extend(["--contenders", "push,nccl_ring", "--json", &json, "--csv", &csv, "--nccl-tests", &nccl]);
    let output = run(&line);
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}\n{error}");
    for title in ["reduce_scatter bf16 sum, w=2: microseconds", "reduce_scatter bf16 sum in place, w=2: microseconds"] {
        assert!(out.contains(title), "{out}");
    }
    let record: Record<Timing> = serde_json::from_str(&folder.read("run.json")).unwrap();
    let judged: Vec<bool> = record.cases.iter().map(|timing| timing.check.as_ref().unwrap().case.contains("in_place")).collect();
    assert_eq!(judged, [false, false, true, true], "each is judged as it is timed");
    assert!(record.cases.iter().all(Timing::is_judged), "{record:?}");
    assert!(record.notes[0].contains(" --in-place "), "{}", record.notes[0]);
    assert_eq!(folder.read("run.csv").lines().filter(|line| line.contains(",true,")).count(), 4);
    let document: Value = serde_json::from_str(&folder.read("nccl/reduce_scatter-in-place-w2-push.json")).unwrap();
    let [apart, in_place] = ["out_of_place", "in_place"].map(|place| &document["results"][0][place]);
    assert!(apart.is_null() && in_place["time"].as_f64().is_some_and(|time| time > 0.0), "{document}");

    let refused = run(&["bench", "all_to_all", "--rehearse", "--in-place"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--in-place: all_to_all is not done in place"), "{}", text(&refused.stderr));
}

/// The variable by which processes of a test are known.
const MARK: &str = "PASSMUSTER_TEST_MARK";

/// A command whose processes are known by the folder's path.
fn marked(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_passmuster"));
    command.args(arguments).env(MARK, folder.file("")).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The processes that such commands have started and that have not ended, of these variables.
fn processes_of(folder: &Folder, variables: &[&str]) -> Vec<i32> {
    let mark = format!("{MARK}={}", folder.file(""));
    let is = |id: &i32| {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        let has = |variable: &str| environment.split(|byte| *byte == 0).any(|set| set == variable.as_bytes());
        has(&mark) && variables.iter().all(|variable| has(variable))
    };
    let ids = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(is).collect()
}

/// Waits until `is` what is asked of such processes: what they are then, or after a minute.
fn wait_for(folder: &Folder, variables: &[&str], is: impl Fn(&[i32]) -> bool) -> Vec<i32> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let processes = processes_of(folder, variables);
        if is(&processes) || Instant::now() > deadline {
            return processes;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// If this fails, what is timed as ranks in processes is something else, or is not shown beside the same in threads; or processes stay behind.
#[test]
fn ranks_in_processes_are_timed_beside_ranks_in_threads() {
    let folder = Folder::new("beside");
    let [json, csv, html, plots, nccl, trace] =
        ["run.json", "run.csv", "run.html", "plots", "nccl", "trace.json"].map(|name| folder.file(name));
    let spec = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/foreign/all_gather_push/spec.toml").display().to_string();
    let mut line = vec!["bench", "all_gather", "--rehearse", "--worlds", "2,4", "--sizes", "256,1K", "--rounds", "6", "--processes"];
    line.extend(["--contenders", "push,nccl_ring,foreign/all_gather_push", "--spec", &spec]);
    line.extend(["--json", &json, "--csv", &csv, "--html", &html, "--plot", &plots, "--nccl-tests", &nccl, "--trace", &trace]);
    let output = marked(&folder, &line).output().unwrap();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}\n{error}");
    assert_eq!(processes_of(&folder, &[]), [0; 0], "they are left");

    let record: Record<Timing> = serde_json::from_str(&folder.read("run.json")).unwrap();
    let names: Vec<&str> = record.cases.iter().map(|timing| timing.contender.as_str()).collect();
    let of_size =
        ["push", "push@processes", "nccl_ring", "nccl_ring@processes", "foreign/all_gather_push", "foreign/all_gather_push@processes"];
    assert_eq!(names, of_size.repeat(4));
    for timing in &record.cases {
        assert!(timing.status == Status::Pass && timing.is_judged(), "{timing:?}");
        assert!([&timing.microseconds, &timing.eager].iter().all(|times| times.as_ref().is_some_and(|times| times.rounds.len() == 6)));
        assert_eq!(timing.side() == Side::Part, timing.contender.ends_with("@processes"));
    }
    // The same again, without the option.
    assert!(record.notes[0].contains(&format!(" --contenders {} ", of_size.join(","))), "{}", record.notes[0]);
    for world in [2, 4] {
        let processes = format!("{world} ranks, each in a process of its own: atomics are the processor's");
        assert!(record.machine.notes.contains(&("processes".into(), processes)), "{:?}", record.machine.notes);
        let title = format!("all_gather bf16, w={world}: time with ranks in processes over that in threads, in a graph");
        let table = |text: &str| text.split(&title).nth(1).map(|rest| rest.lines().take(5).collect::<Vec<_>>().join("\n"));
        let table = table(&out).unwrap_or_else(|| panic!("{out}"));
        assert!(table.contains("push") && table.contains("largest") && !table.contains("@processes"), "{table}");
        assert!(folder.read("run.html").contains(&title));
    }
    assert!(folder.read("run.csv").contains("push@processes"));
    assert!(folder.read("plots/all_gather-w4-time.svg").contains("push@processes"));
    let document: Value = serde_json::from_str(&folder.read("nccl/all_gather-w2-push@processes.json")).unwrap();
    assert_eq!(document["results"].as_array().unwrap().len(), 2);
    assert!(folder.read("nccl/all_gather-w4-foreign-all_gather_push@processes.json").contains("experiment_name"));
    assert!(folder.read("trace.json").contains("/push@processes w=4"));

    let torch = run(&["bench", "--rehearse", "--worlds", "2", "--contenders", "torch_one_shot", "--processes"]);
    let none = "--processes: none of the contenders is of ours, of NCCL or from elsewhere";
    assert!(torch.status.code() == Some(2) && text(&torch.stderr).contains(none), "{}", text(&torch.stderr));
}

/// Hundredths of a second of processor time that a process has had.
fn processor_time(process: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // Behind its name, which may have blanks: the 12th field from there.
    stat.rsplit(')').next().and_then(|fields| fields.split_whitespace().nth(11)?.parse().ok()).unwrap_or(0)
}

/// A bench that times ranks in processes first, for long, once rank 1 is at work: its process.
fn with_ranks(folder: &Folder, more: &[&str]) -> (Child, i32) {
    let line = ["bench", "--rehearse", "--worlds", "2", "--sizes", "64K", "--rounds", "100", "--contenders", "two_shot@processes,two_shot"];
    let bench = marked(folder, &[&line, more].concat()).spawn().unwrap();
    // To start takes less.
    let ranks = wait_for(folder, &["PASSMUSTER_RANK=1"], |ranks| ranks.iter().any(|&rank| processor_time(rank) > 50));
    assert_eq!(ranks.len(), 1, "rank 1 did not come, or was done");
    (bench, ranks[0])
}

/// If this fails, ranks go on after the process that asked for their times has ended, and hold GPUs.
#[test]
fn no_rank_outlives_the_bench() {
    for (name, end) in [("bench-term", Signal::TERM), ("bench-kill", Signal::KILL)] {
        let folder = Folder::new(name);
        let (bench, _) = with_ranks(&folder, &[]);
        kill_process(Pid::from_raw(bench.id() as i32).unwrap(), end).unwrap();
        drop(bench.wait_with_output());
        assert_eq!(wait_for(&folder, &[], <[i32]>::is_empty), [0; 0], "left after {end:?}");
    }
}

/// If this fails, a rank's process that is lost holds up the bench, or a contender has a time that was taken without it.
#[test]
fn a_rank_that_is_lost_is_named_and_its_contender_has_no_time() {
    let folder = Folder::new("bench-lost");
    let (bench, rank) = with_ranks(&folder, &["--json", &folder.file("run.json")]);
    kill_process(Pid::from_raw(rank).unwrap(), Signal::KILL).unwrap();
    let output = bench.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert_eq!(wait_for(&folder, &[], <[i32]>::is_empty), [0; 0]);
    let record: Record<Timing> = serde_json::from_str(&folder.read("run.json")).unwrap();
    let [processes, threads] = &record.cases[..] else { panic!("{} cases", record.cases.len()) };
    assert!(processes.status == Status::Crash && processes.microseconds.is_none(), "{processes:?}");
    assert!(processes.reason.contains("rank 1 of 2: its process was killed by signal 9 (SIGKILL)"), "{}", processes.reason);
    assert!(threads.status == Status::Pass && threads.microseconds.is_some(), "{threads:?}");
}

/// If this fails, a contender that cannot do a call is called timed, or a run without a single time is called good.
#[test]
fn what_cannot_be_done_has_no_time() {
    let output = run(&["bench", "--rehearse", "--worlds", "2", "--sizes", "1M", "--contenders", "one_shot_push"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("one_shot_push takes inputs of up to 524288 bytes, not of 1048576"), "{}", text(&output.stderr));
}

/// If this fails, some way from the command line to the tables of products is broken.
#[test]
fn products_are_rehearsed_judged_and_shown() {
    let folder = Folder::new("products");
    let [json, html, csv] = ["run.json", "run.html", "run.csv"].map(|name| folder.file(name));
    let shape = ["--rehearse", "--worlds", "2", "--m", "16", "--n", "24", "--k", "40", "--rounds", "2"];
    let mut line = [&["bench", "all_gather_matmul"], &shape[..]].concat();
    line.extend(["--contenders", "cublas_lt,matmul,nccl_ring+matmul,chunked", "--json", &json, "--html", &html, "--csv", &csv]);
    let output = run(&line);
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}\n{error}");
    assert!(out.contains("all_gather_matmul bf16 N=24 K=40, w=2: microseconds a call, in a graph"), "{out}");
    let record: Record<Timing> = serde_json::from_str(&folder.read("run.json")).unwrap();
    let statuses: Vec<(Status, bool)> = record.cases.iter().map(|timing| (timing.status, timing.is_judged())).collect();
    let done = (Status::Pass, true);
    assert_eq!(statuses, [done; 4]);
    assert!(record.cases[3].check.as_ref().unwrap().case.starts_with("integers, "), "{:?}", record.cases[3]);
    assert!(folder.read("run.html").contains("ahead of cuBLASLt + NCCL"));
    let refused = run(&["bench", "all_gather_matmul", "--contenders", "cublas"]);
    assert!(text(&refused.stderr).contains("unknown contender `cublas` of all_gather_matmul: expected one of cublas_lt, matmul, "));
    let odd = run(&["bench", "all_gather_matmul", "--rehearse", "--worlds", "3", "--m", "16"]);
    assert!(text(&odd.stderr).contains("--m 16 does not divide by 3 ranks"), "{}", text(&odd.stderr));
}

/// If this fails, some way from the command line to the tables of scattered products and of controls is broken.
#[test]
fn scattered_products_and_controls_are_rehearsed_and_judged() {
    let folder = Folder::new("scattered");
    let json = folder.file("run.json");
    let shape = ["--rehearse", "--worlds", "2", "--m", "16", "--n", "24", "--k", "40", "--rounds", "2", "--json", &json];
    let output =
        run(&[&["bench", "matmul_reduce_scatter"], &shape[..], &["--contenders", "cublas_lt,matmul+nccl_ring,matmul+pull,chunked"]]
            .concat());
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}\n{error}");
    assert!(out.contains("matmul_reduce_scatter bf16 N=24 K=40, w=2: microseconds a call, in a graph"), "{out}");
    let record: Record<Timing> = serde_json::from_str(&folder.read("run.json")).unwrap();
    assert!(record.cases.len() == 4 && record.cases.iter().all(|timing| timing.status == Status::Pass && timing.is_judged()), "{record:?}");
    assert!(record.cases.iter().all(|timing| timing.workload.subject() == "matmul_reduce_scatter"));

    let output = run(&[&["bench", "all_gather_matmul", "--controls"], &shape[..], &["--contenders", "chunked"]].concat());
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}\n{error}");
    assert!(out.contains("microseconds from the plain product to the fused one, in a graph"), "{out}");
    let record: Record<Timing> = serde_json::from_str(&folder.read("run.json")).unwrap();
    let names: Vec<&str> = record.cases.iter().filter(|timing| timing.is_judged()).map(|timing| timing.contender.as_str()).collect();
    assert!(["chunked", "control/copies_alone"].iter().all(|name| names.contains(name)), "{names:?}");
    let unknown = run(&["bench", "matmul_reduce_scatter", "--contenders", "control/copies_alone"]);
    assert!(
        text(&unknown.stderr).contains("unknown contender `control/copies_alone` of matmul_reduce_scatter: expected one of cublas_lt, ")
    );
}

/// If this fails, some way from the command line to the table and trace of overlaps is broken.
#[test]
fn overlaps_are_rehearsed_judged_and_traced() {
    let folder = Folder::new("overlap");
    let [json, trace] = ["run.json", "trace.json"].map(|name| folder.file(name));
    let mut line = vec!["bench", "overlap", "--rehearse", "--worlds", "2", "--m", "16", "--n", "24", "--k", "40", "--dtype", "bf16"];
    line.extend([
        "--ag-mb",
        "0.00390625",
        "--out-of-place",
        "--iters",
        "4",
        "--warmup",
        "2",
        "--rounds",
        "2",
        "--json",
        &json,
        "--trace",
        &trace,
    ]);
    line.extend(["--contenders", "matmul,gather/copy_engine,sequential/copy_engine,overlap/copy_engine,overlap/copy_engine@100"]);
    let output = run(&line);
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}\n{error}");
    assert!(
        out.contains("overlap bf16 16x24x40, gather out of place, w=2: microseconds, eager") && out.contains("copy_engine@100"),
        "{out}"
    );
    let record: Record<Timing> = serde_json::from_str(&folder.read("run.json")).unwrap();
    assert!(record.cases.iter().all(|timing| timing.status == Status::Pass && timing.is_judged()));
    assert!(record.notes[0].contains(" --ag-mb 0.00390625 --out-of-place --dtype bf16 "), "{:?}", record.notes);
    let Workload::Matmul(of) = record.cases[1].workload else { panic!("{:?}", record.cases[1]) };
    assert!(of.out_of_place);
    let noted: Vec<bool> = record.cases.iter().map(|timing| timing.products.is_some()).collect();
    assert_eq!(noted, [true, false, true, true, true]);
    let trace: Value = serde_json::from_str(&folder.read("trace.json")).unwrap();
    let rows = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["name"] == "thread_name");
    let rows: Vec<&str> = rows.map(|event| event["args"]["name"].as_str().unwrap()).collect();
    assert_eq!(rows, ["stream 0", "stream 1", "stream 0", "stream 1"], "a row for each stream of each rank");
    let unknown = run(&["bench", "overlap", "--contenders", "overlap/ring"]);
    assert!(text(&unknown.stderr).contains("unknown contender `overlap/ring` of overlap: expected matmul, gather/NAME"));
}

/// If this fails, some way from the command line to the table of training steps is broken.
#[test]
fn steps_are_rehearsed_judged_and_shown() {
    let folder = Folder::new("fsdp");
    let [json, trace] = ["run.json", "trace.json"].map(|name| folder.file(name));
    let mut line = vec!["bench", "fsdp", "--rehearse", "--worlds", "2", "--layers", "3", "--m", "16,32", "--n", "24", "--k", "40"];
    line.extend(["--rounds", "2", "--json", &json, "--trace", &trace]);
    line.extend(["--contenders", "matmul,sequential/copy_engine,overlap/copy_engine,overlap/nccl_ring"]);
    let output = run(&line);
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}\n{error}");
    assert!(out.contains("fsdp bf16 layers=3 N=24 K=40, w=2: microseconds a step, eager"), "{out}");
    let record: Record<Timing> = serde_json::from_str(&folder.read("run.json")).unwrap();
    assert_eq!(record.cases.len(), 8);
    for timing in &record.cases {
        assert!(timing.status == Status::Pass && timing.is_judged() && timing.products.is_some(), "{timing:?}");
        // Two rounds of two samples after two, in a graph and eagerly.
        let Some(Rendezvous { met, steps }) = timing.rendezvous else { panic!("{timing:?}") };
        assert_eq!((met, steps), (1, 16), "{timing:?}");
    }
    assert!(record.notes[0].contains("bench fsdp --worlds 2 --layers 3 --m 16,32 --n 24 --k 40 --dtype bf16 --contenders matmul,"));
    let trace: Value = serde_json::from_str(&folder.read("trace.json")).unwrap();
    let rows = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["name"] == "thread_name");
    assert_eq!(rows.count(), 2 * 3, "a row for the products, the gathers and the reduce-scatters of each rank");
    let odd = run(&["bench", "fsdp", "--rehearse", "--worlds", "3", "--n", "32"]);
    assert!(text(&odd.stderr).contains("--n 32 does not divide by 3 ranks"), "{}", text(&odd.stderr));
    let unknown = run(&["bench", "fsdp", "--contenders", "overlap/ring"]);
    assert!(text(&unknown.stderr).contains("unknown contender `overlap/ring` of fsdp: expected matmul, sequential/NAME or overlap/NAME"));
}

/// If this fails, some way from the command line to the table of pipelines is broken.
#[test]
fn pipelines_are_rehearsed_judged_and_shown() {
    let folder = Folder::new("pipeline");
    let [json, trace] = ["run.json", "trace.json"].map(|name| folder.file(name));
    let mut line =
        vec!["bench", "all_to_all", "--async", "--rehearse", "--worlds", "2", "--batches", "3", "--sizes", "1K", "--rounds", "2"];
    line.extend(["--contenders", "blocking/push,deferred/push,deferred/nccl_send_recv", "--controls", "--json", &json, "--trace", &trace]);
    let output = run(&line);
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}\n{error}");
    assert!(out.contains("all_to_all_async bf16 batches=3, w=2: microseconds for all batches, eager"), "{out}");
    let record: Record<Timing> = serde_json::from_str(&folder.read("run.json")).unwrap();
    let names: Vec<&str> = record.cases.iter().map(|timing| timing.contender.as_str()).collect();
    assert_eq!(names[3..], ["apart/push", "behind/push", "apart/nccl_send_recv", "behind/nccl_send_recv"]);
    for timing in &record.cases {
        assert!(timing.status == Status::Pass && timing.is_judged() && timing.microseconds.is_none(), "{timing:?}");
        // Two rounds of two samples that count, three batches, two ranks.
        assert_eq!(timing.waits.as_ref().map(|waits| waits.looked), Some(24), "{timing:?}");
    }
    assert!(record.notes[0].contains("bench all_to_all --async --batches 3 --worlds 2 --sizes 1024 --contenders blocking/push,"));
    let other = run(&["bench", "all_reduce", "--async"]);
    assert!(text(&other.stderr).contains("--async is of all_to_all, not of all_reduce"), "{}", text(&other.stderr));
    let unknown = run(&["bench", "all_to_all", "--async", "--contenders", "push"]);
    assert!(
        text(&unknown.stderr)
            .contains("unknown contender `push` of all_to_all --async: expected blocking/NAME, deferred/NAME, or as controls ")
    );
}

/// Where Python has no PyTorch, or that no GPU: if this fails, that is an error, or a time.
#[test]
fn without_pytorch_its_operations_are_not_supported() {
    let output = run(&["bench", "--rehearse", "--worlds", "9", "--sizes", "1K", "--contenders", "torch_one_shot"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("not_supported torch_one_shot all_reduce bf16 sum, w=9, 1 KiB: "), "{}", text(&output.stderr));
}

#[test]
fn a_regression_exits_1() {
    let folder = Folder::new("regression");
    let json = folder.file("run.json");
    let output = run(&["bench", "--rehearse", "--worlds", "2", "--sizes", "1K", "--contenders", "two_shot", "--save", &json]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let mut slower: Record<Timing> = serde_json::from_str(&folder.read("run.json")).unwrap();
    for times in slower.cases[0].microseconds.iter_mut() {
        times.rounds.iter_mut().for_each(|time| *time *= 1.5);
    }
    let later = folder.file("later.json");
    fs::write(&later, serde_json::to_string(&slower).unwrap()).unwrap();
    let output = run(&["report", &later, "--baseline", &json]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("SLOWER"));
    let lenient = run(&["report", &later, "--baseline", &json, "--threshold", "60"]);
    assert_eq!(lenient.status.code(), Some(0));
}

/// The text of a committed record.
fn committed(file: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/records");
    packed::committed(&folder, file.trim_end_matches(".json")).unwrap()
}

/// A record under another name, changed.
fn changed(folder: &Folder, name: &str, change: impl FnOnce(&mut Record<Timing>)) -> String {
    let mut changed: Record<Timing> = serde_json::from_str(&committed(name)).unwrap();
    change(&mut changed);
    let path = folder.file("changed.json");
    fs::write(&path, serde_json::to_string(&changed).unwrap()).unwrap();
    path
}

/// If this fails, a scenario has no baseline: what has become slower is not seen, or what has not is called slower.
#[test]
fn every_scenario_is_compared_with_its_baseline() {
    let folder = Folder::new("scenarios");
    let scenarios = [
        ("h100x4", "all_reduce"),
        ("h100x4", "all_gather_matmul"),
        ("h100x2", "matmul_reduce_scatter"),
        ("h200x2", "overlap"),
        ("h200x2", "fsdp"),
        ("h200x2", "all_to_all-async"),
    ];
    for (gpus, scenario) in scenarios {
        let name = format!("{gpus}-bench-{scenario}.json");
        let (now, then) = (record(&name), record(&name));
        let compared = |now: &str, then: &str, more: &[&str]| {
            let output = run(&[&["report", now, "--baseline", then], more].concat());
            (output.status.code(), text(&output.stdout), text(&output.stderr))
        };
        let (code, out, error) = compared(&now, &then, &[]);
        assert_eq!(code, Some(0), "{scenario}: {out}\n{error}");
        assert!(out.contains("against the baseline: 0 slower, 0 faster, ") && out.contains(" the same, 0 unknown"), "{out}");
        assert!(!out.contains("not in the baseline"), "{scenario}: {out}");

        for (of, expected) in [(Side::Ours, 1), (Side::Peer, 0)] {
            let mut of_whom = String::new();
            let slower = changed(&folder, &name, |record| {
                let timing = record.cases.iter_mut().rfind(|timing| timing.side() == of && timing.eager.is_some()).unwrap();
                let times = [timing.microseconds.as_mut(), timing.eager.as_mut()];
                times.into_iter().flatten().flat_map(|times| &mut times.rounds).for_each(|time| *time *= 1.5);
                of_whom = format!("{}/{}", timing.workload.subject(), timing.contender);
            });
            let (code, out, error) = compared(&slower, &then, &[]);
            assert_eq!(code, Some(expected), "{of_whom}: {out}\n{error}");
            let told = out.lines().filter(|line| line.ends_with("SLOWER")).all(|line| line.split_whitespace().next() == Some(&*of_whom));
            assert!(out.contains("SLOWER") && told, "{of_whom}: {out}");
        }

        let elsewhere = changed(&folder, &name, |record| record.machine.gpus = 8);
        let (code, _, error) = compared(&now, &elsewhere, &[]);
        let refused = format!(
            "the baseline is of another machine: number of GPUs 8, here {}; --force compares all the same",
            gpus.split('x').nth(1).unwrap()
        );
        assert!(code == Some(2) && error.contains(&refused), "{scenario}: {error}");
        let (code, out, error) = compared(&now, &elsewhere, &["--force"]);
        assert!(
            code == Some(0) && out.contains("against the baseline: 0 slower") && error.contains("number of GPUs 8"),
            "{scenario}: {error}"
        );
    }
}

/// If this fails, a run that was compared with nothing looks like one in which nothing has become slower.
#[test]
fn a_baseline_of_something_else_is_no_pass() {
    let (now, then) = (record("h200x2-bench-fsdp.json"), record("h200x2-bench-overlap.json"));
    let output = run(&["report", &now, "--baseline", &then]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("fsdp bf16 layers=4 N=8192 K=8192, w=2: microseconds a step, in a graph"));
    assert!(text(&output.stderr).contains("nothing was compared: the baseline has none of what was timed"), "{}", text(&output.stderr));
}

/// If this fails, two records of the same cannot be shown beside each other, or each not under its own command line.
#[test]
fn records_are_shown_each_by_itself() {
    let folder = Folder::new("separately");
    let html = folder.file("all.html");
    let records = ["h100x4-bench-all_gather_matmul", "h200x2-bench-all_gather_matmul-controls", "h200x2-bench-overlap"]
        .map(|name| record(&format!("{name}.json")));
    let line: Vec<&str> = ["report", "--separately", "--html", &html].into_iter().chain(records.iter().map(String::as_str)).collect();
    let output = run(&line);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for world in [2, 4] {
        let title = format!("all_gather_matmul bf16 N=1792 K=4096, w={world}: microseconds a call, in a graph");
        assert_eq!(text(&output.stdout).matches(&title).count(), 1, "{title}");
    }
    let page = folder.read("all.html");
    let commands: Vec<&str> =
        page.split("<pre class=\"line\">./passmuster").skip(1).filter_map(|rest| rest.split_whitespace().nth(1)).collect();
    assert_eq!(commands, ["all_gather_matmul", "all_gather_matmul", "overlap"]);
    // Each under a heading of its own, which says what tells it from the other.
    for heading in ["all_gather_matmul bf16", "all_gather_matmul bf16 (2 x NVIDIA H200, 2026-11-22 00:24)", "overlap f16"] {
        assert_eq!(page.matches(&format!(">{heading}</h2>")).count(), 1, "{heading}");
    }
    let mixed = run(&["report", "--separately", &records[0], "--baseline", &records[0]]);
    assert!(mixed.status.code() == Some(2) && text(&mixed.stderr).contains("cannot be used with"), "{}", text(&mixed.stderr));
}

/// A disk that is full only when the run has ended.
const FULL: &str = "/dev/full";

/// If this fails, records of different commands cannot be looked at together.
#[test]
fn records_of_different_commands_make_one_page() {
    let folder = Folder::new("kinds-of-records");
    let html = folder.file("all.html");
    let records = ["h200x2-bench-fsdp", "h200x2-faults", "h200x2-mutants-sync", "ledger"].map(|name| record(&format!("{name}.json")));
    let line: Vec<&str> = ["report", "--html", &html].into_iter().chain(records.iter().map(String::as_str)).collect();
    let output = run(&line);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let forms = fs::read_to_string(&records[3]).unwrap().matches("\"form\":").count();
    let of_ledger = format!("{forms} cases: {forms} passed; 0 findings");
    for said in
        ["162 cases: 119 passed, 43 not_supported; 0 findings", "33 of 45 mutants caught (73.3 %), 12 missed", &*of_ledger, "fsdp bf16"]
    {
        assert!(out.contains(said) && folder.read("all.html").contains(said), "{said}");
    }
}

/// If this fails, a run of an hour is lost with a disk that is full.
#[test]
fn a_run_that_cannot_be_written_is_still_printed() {
    let mut line =
        vec!["bench", "fsdp", "--rehearse", "--worlds", "2", "--layers", "2", "--m", "16", "--n", "24", "--k", "40", "--rounds", "1"];
    line.extend(["--contenders", "matmul,overlap/copy_engine", "--json", FULL, "--trace", FULL]);
    let output = run(&line);
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{out}\n{error}");
    assert!(out.contains("fsdp bf16 layers=2 N=24 K=40, w=2: microseconds a step, eager"), "{out}");
    assert_eq!(error.matches(&format!("cannot write {FULL}: No space left on device")).count(), 2, "{error}");
}

#[test]
fn a_baseline_of_another_machine_is_refused() {
    let folder = Folder::new("other-machine");
    let mut other: Record<Timing> = serde_json::from_str(&fs::read_to_string(record("h200x4-bench.json")).unwrap()).unwrap();
    other.machine.gpus = 8;
    let path = folder.file("other.json");
    fs::write(&path, serde_json::to_string(&other).unwrap()).unwrap();
    let here = record("h200x4-bench.json");
    let refused = run(&["report", &here, "--baseline", &path]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("the baseline is of another machine: number of GPUs 8, here 4; --force"),
        "{}",
        text(&refused.stderr)
    );
    let forced = run(&["report", &here, "--baseline", &path, "--force"]);
    assert_eq!(forced.status.code(), Some(0), "{}", text(&forced.stderr));
}

#[test]
fn what_cannot_be_written_is_still_printed() {
    let folder = Folder::new("unwritable");
    let markdown = folder.file("run.md");
    let output = run(&["report", &record("h200x4-bench.json"), "--csv", FULL, "--markdown", &markdown]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stdout).contains("all_reduce bf16 sum, w=4: microseconds a call, in a graph"));
    assert!(text(&output.stderr).contains(&format!("cannot write {FULL}")), "{}", text(&output.stderr));
    assert!(folder.read("run.md").contains("| 8 KiB |"), "one file that fails takes no other with it");
}

#[test]
fn bad_input_is_said() {
    let missing = run(&["report", "/nowhere/run.json"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("cannot open /nowhere/run.json"), "{}", text(&missing.stderr));
    let without_timings = run(&["report", &record("h200x2-faults.json"), "--csv", FULL]);
    assert_eq!(without_timings.status.code(), Some(2));
    assert!(
        text(&without_timings.stderr).contains("--csv is for records of bench, and there is none"),
        "{}",
        text(&without_timings.stderr)
    );
    let folder = Folder::new("kinds");
    fs::write(folder.file("tune.json"), r#"{"kind": "tune", "cases": [1]}"#).unwrap();
    let other = run(&["report", &folder.file("tune.json")]);
    let said = text(&other.stderr);
    assert_eq!((other.status.code(), said.lines().count()), (Some(2), 1), "{said}");
    assert!(said.ends_with("a record of `tune`, and report renders those of bench, validate, test-gpu, mutants, ledger\n"), "{said}");
    let twice = run(&["report", &record("h200x4-bench.json"), &record("h200x4-bench.json")]);
    assert_eq!(twice.status.code(), Some(2));
    let said = text(&twice.stderr);
    assert!(said.contains("one_shot of all_reduce bf16 sum, w=2, 8 KiB is in two of the records: --baseline compares runs"), "{said}");
    let unknown = run(&["bench", "--contenders", "three_shot"]);
    assert_eq!(unknown.status.code(), Some(2));
    let said = text(&unknown.stderr);
    assert!(
        said.contains(
            "unknown algorithm `three_shot` of all_reduce: did you mean `one_shot` or `two_shot`? expected one of one_shot, two_shot"
        ),
        "{said}"
    );
    let copied = run(&["bench", "all_gather", "--op", "max"]);
    assert_eq!((copied.status.code(), text(&copied.stderr).contains("--op max: all_gather has copy")), (Some(2), true));
    let untyped = run(&["bench", "--dtype", "f8"]);
    assert_eq!(
        (untyped.status.code(), text(&untyped.stderr).contains("unknown dtype `f8`: did you mean `i8` or `u8`? expected one of f32")),
        (Some(2), true)
    );
}
