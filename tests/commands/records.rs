//! Files of results, whatever fails: a record that was there stays, what was judged is kept, and no command says that all went well.

mod folder;

use std::{
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use folder::Folder;
use passmuster::conformance::report::{Assumed, Partial, Record, packed};
use serde_json::Value;

/// Some cases of which each takes a moment; in some of them something is waived.
const CASES: &str = "all_reduce/one_shot|two_shot:f32|bf16,sum:w=2,3:in_place";
/// A few of them.
const FEW: &str = "all_reduce/one_shot:f32,sum:w=2:in_place";
/// What the file held before.
const BEFORE: &str = "the record of an earlier day";

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_passmuster"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> Output {
    command(arguments).output().expect("it starts")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn start(arguments: &[&str]) -> Child {
    command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

fn send(signal: &str, process: u32) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {process}")]).status().unwrap();
    assert!(sent.success(), "no signal could be sent");
}

fn read(path: &str) -> Record {
    let packed = || packed::unpack(&fs::read(packed::beside(Path::new(path)))?, u64::MAX).map(|bytes| String::from_utf8(bytes).unwrap());
    let text = fs::read_to_string(path).or_else(|_| packed()).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
}

/// Waits until something is there.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "{what} does not come");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Sends a signal to a run of [`CASES`] once a case is judged, and returns what becomes of it. The record goes to `run.json`.
fn interrupted(folder: &Folder, signal: &str) -> Output {
    let json = folder.file("run.json");
    let kept = format!("{json}.partial");
    for _ in 0..10 {
        let mut child = start(&["validate", CASES, "--json", &json, "--keep-every", "0"]);
        let ended = until("a case", || {
            let ended = child.try_wait().unwrap().is_some();
            (ended || Path::new(&kept).exists()).then_some(ended)
        });
        if !ended {
            send(signal, child.id());
        }
        let output = child.wait_with_output().unwrap();
        // It may have been faster.
        if Path::new(&kept).exists() {
            return output;
        }
        fs::write(&json, BEFORE).unwrap();
    }
    panic!("all runs came to their end before a signal reached them");
}

/// If this fails, somebody who stops a run loses what it has found, or the record that was there.
#[test]
fn a_signal_keeps_what_was_judged() {
    for (signal, code) in [("INT", 130), ("TERM", 143)] {
        let folder = Folder::new(signal);
        let json = folder.write("run.json", BEFORE);
        let output = interrupted(&folder, signal);
        assert_eq!(output.status.code(), Some(code), "{}", errors(&output));
        assert_eq!(fs::read_to_string(&json).unwrap(), BEFORE);
        assert_eq!(folder.names(), ["run.json", "run.json.partial"]);

        let record = read(&format!("{json}.partial"));
        let Some(Partial { judged, of, why }) = record.partial else { panic!("it is not marked") };
        assert_eq!((why, judged), (format!("SIG{signal}"), record.cases.len()));
        assert!((1..of).contains(&judged), "{judged} of {of}");
        assert!(errors(&output).contains(&format!("SIG{signal}: {judged} of {of} cases judged; kept in {json}.partial")));
    }
}

/// If this fails, a run that is killed leaves half a record, or what it kept cannot be gone on with.
#[test]
fn a_kill_leaves_the_record_and_what_was_kept() {
    let folder = Folder::new("kill");
    let json = folder.write("run.json", BEFORE);
    let output = interrupted(&folder, "KILL");
    assert_eq!(output.status.code(), None);
    assert_eq!(fs::read_to_string(&json).unwrap(), BEFORE);
    let kept = format!("{json}.partial");
    let before = read(&kept);
    assert_eq!(before.partial.as_ref().map(|partial| (partial.judged, partial.why.as_str())), Some((before.cases.len(), "not yet ended")));

    let again = run(&["validate", CASES, "--json", &json]);
    assert_eq!(again.status.code(), Some(2), "what was kept would be overwritten");
    assert!(errors(&again).contains(&format!("{kept} is there, of a run that was interrupted")), "{}", errors(&again));
    let resumed = run(&["validate", CASES, "--json", &json, "--resume", &kept]);
    assert_eq!(resumed.status.code(), Some(0), "{}", errors(&resumed));
    assert!(read(&json).cases.len() > before.cases.len() && !Path::new(&kept).exists());
}

/// A record without times and dates.
fn timeless(path: &str) -> Value {
    let mut record = serde_json::to_value(read(path)).unwrap();
    for time in ["date", "seconds"] {
        record[time] = Value::Null;
    }
    record["cases"].as_array_mut().unwrap().iter_mut().for_each(|case| case[3] = Value::Null);
    let note = record["notes"][0].as_str().unwrap();
    let (cases, query) = (note.split(" in ").next().unwrap(), note.split(" s, ").nth(1).unwrap());
    record["notes"][0] = format!("{cases}, {query}").into();
    record
}

/// If this fails, an interrupted run that was gone on with says something else than one that was not, or one of other conditions is gone on with.
#[test]
fn a_run_gone_on_with_gives_the_record_of_one_that_was_not_interrupted() {
    let folder = Folder::new("resume");
    let [json, whole] = ["run.json", "whole.json"].map(|name| folder.file(name));
    let kept = format!("{json}.partial");
    interrupted(&folder, "TERM");
    let text = fs::read_to_string(&kept).unwrap();

    let changed = |field: &str, value: Value| {
        let mut record: Value = serde_json::from_str(&text).unwrap();
        *record.pointer_mut(field).unwrap() = value;
        record.to_string()
    };
    let of = read(&kept).partial.unwrap().of;
    for (record, arguments, why) in [
        (text.clone(), vec![CASES, "--seed", "7"], "other selection: seed 0, here 7".to_owned()),
        (text.clone(), vec![FEW], format!("other selection: query {CASES}, here {FEW}")),
        (text.clone(), vec![CASES, "--schedules", "2"], "other selection: schedules 1, here 2".into()),
        (text.clone(), vec![CASES, "--profile", "ptx"], "other selection: profile hopper, here ptx".into()),
        (text.clone(), vec![CASES, "--device", "a100"], "other selection: device none, here a100".into()),
        (text.clone(), vec![CASES, "--part", "1/2"], "other selection: part none, here 1/2".into()),
        (changed("/source/commit", "0".into()), vec![CASES], "other sources: commit 0, here ".into()),
        (changed("/source/ptx_hash", "0".into()), vec![CASES], "other sources: PTX 0, here ".into()),
        (changed("/machine/kind", "cuda".into()), vec![CASES], "other machine cuda, here emulator".into()),
        (changed("/partial/of", 3.into()), vec![CASES], format!("it is of 3 cases, here are {of}")),
        (changed("/cases/0/0", "all_reduce/other".into()), vec![CASES], "all_reduce/other is not selected here".into()),
    ] {
        fs::write(&kept, record).unwrap();
        let refused = run(&[&["validate"], &arguments[..], &["--resume", &kept, "--json", &json]].concat());
        assert_eq!(refused.status.code(), Some(2), "{}", errors(&refused));
        assert!(errors(&refused).contains(&why), "{why}: {}", errors(&refused));
    }
    fs::write(&kept, &text).unwrap();

    let resumed = run(&["validate", CASES, "--resume", &kept, "--json", &json]);
    assert_eq!(resumed.status.code(), Some(0), "{}", errors(&resumed));
    let uninterrupted = run(&["validate", CASES, "--json", &whole]);
    assert_eq!(uninterrupted.status.code(), Some(0), "{}", errors(&uninterrupted));
    let (timeless_whole, timeless_run) = (timeless(&whole), timeless(&json));
    assert!(read(&whole).assumed.iter().any(|assumed| !assumed.races.is_empty()), "nothing is waived: the counts of it are not looked at");
    assert_eq!(timeless_run, timeless_whole);
    assert!(read(&whole).cases.iter().all(|verdict| verdict.milliseconds > 0.0));
    assert_eq!(folder.names(), ["run.json", "whole.json"]);

    let refused = run(&["validate", CASES, "--resume", &whole, "--json", &json]);
    assert!(errors(&refused).contains("came to its end: nothing is left to judge"), "{}", errors(&refused));
}

/// If this fails, mutants that were judged before an interruption are judged again, or an outcome of other conditions is taken over.
#[test]
fn mutants_are_gone_on_with() {
    const ONLY: [&str; 5] = ["mutants", "--only", "value_0", "--schedules", "1"];
    let folder = Folder::new("mutants");
    let [json, whole] = ["run.json", "whole.json"].map(|name| folder.file(name));
    let kept = format!("{json}.partial");
    let output = run(&[&ONLY[..], &["--json", &whole]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let record: Value = serde_json::from_str(&fs::read_to_string(&whole).unwrap()).unwrap();
    let all = record["cases"].as_array().unwrap().len();
    assert!(all > 4, "{all} mutants are too few to interrupt");

    // Two of them were judged, the first in a way that no run would judge it.
    let mut before = record.clone();
    before["cases"].as_array_mut().unwrap().truncate(2);
    before["cases"][0]["tried"] = 77.into();
    before["partial"] = serde_json::json!({ "judged": 2, "of": all, "why": "SIGTERM" });
    fs::write(&kept, before.to_string()).unwrap();
    for (arguments, why) in [
        (vec!["mutants", "--only", "value_0"], "other selection: schedules 1, here 8"),
        (vec!["mutants", "--only", "value_1", "--schedules", "1"], "other selection: query value_0, here value_1"),
    ] {
        let refused = run(&[&arguments[..], &["--resume", &kept, "--json", &json]].concat());
        assert!(refused.status.code() == Some(2) && errors(&refused).contains(why), "{why}: {}", errors(&refused));
    }
    let again = run(&[&ONLY[..], &["--json", &json]].concat());
    assert!(again.status.code() == Some(2) && errors(&again).contains("go on with it (--resume"), "{}", errors(&again));

    let resumed = run(&[&ONLY[..], &["--resume", &kept, "--json", &json]].concat());
    assert_eq!(resumed.status.code(), Some(0), "{}", errors(&resumed));
    let read = |path| serde_json::from_str::<Value>(&fs::read_to_string(path).unwrap()).unwrap();
    let (mut resumed, mut record) = (read(&json), record);
    assert_eq!(resumed["cases"][0]["tried"], 77);
    resumed["cases"][0]["tried"] = record["cases"][0]["tried"].clone();
    for record in [&mut resumed, &mut record] {
        for time in ["date", "seconds"] {
            record[time] = Value::Null;
        }
        record["cases"].as_array_mut().unwrap().iter_mut().for_each(|case| case["verdict"]["milliseconds"] = Value::Null);
    }
    assert_eq!(resumed, record);
    assert!(!Path::new(&kept).exists());
}

/// If this fails, a change of one kernel has the mutants of all others judged again, or leaves outcomes that are no longer true.
#[test]
fn mutants_of_changed_kernels_are_judged_again() {
    const ONLY: [&str; 5] = ["mutants", "--only", "value_all_gather_", "--schedules", "1"];
    let folder = Folder::new("stale-mutants");
    let json = folder.file("run.json");
    let output = run(&[&ONLY[..], &["--json", &json]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let read = || serde_json::from_str::<Value>(&fs::read_to_string(&json).unwrap()).unwrap();
    let mut before = read();
    let tried = |record: &Value| record["cases"].as_array().unwrap().iter().map(|case| case["tried"].as_u64().unwrap()).collect::<Vec<_>>();
    let true_ones = tried(&before);

    // As if another version of one kernel had been judged, and all outcomes were of another run.
    let registry = passmuster_harness::registry(passmuster_kernels::catalogue());
    let changed = registry.mutants().iter().find(|mutant| before["cases"][0]["mutant"] == mutant.name).unwrap().module;
    before["source"]["modules"][changed] = "0".into();
    before["source"]["commit"] = "0".into();
    before["cases"].as_array_mut().unwrap().iter_mut().for_each(|case| case["tried"] = 77.into());
    let lost = before["cases"].as_array_mut().unwrap().pop().unwrap();
    fs::write(&json, before.to_string()).unwrap();
    let output = run(&[&ONLY[..], &["--stale", "--json", &json]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let after = read();
    let last = true_ones.len() - 1;
    assert_eq!(after["cases"][last]["mutant"], lost["mutant"]);
    assert_eq!((tried(&after)[0], tried(&after)[last]), (true_ones[0], true_ones[last]), "those of the changed kernel and those it lacks");
    assert!(tried(&after).contains(&77), "outcomes of unchanged kernels are kept");
    assert_ne!(after["source"]["modules"][changed], "0");

    let refused = run(&["mutants", "--only", "value_all_gather_", "--stale", "--json", &json]);
    let why = "other selection: schedules 1, here 8";
    assert!(refused.status.code() == Some(2) && errors(&refused).contains(why), "{}", errors(&refused));
}

/// If this fails, a change of one kernel has all others judged again, or leaves verdicts, counts or coverage that are no longer true.
#[test]
fn cases_of_changed_kernels_are_judged_again() {
    let folder = Folder::new("stale-cases");
    let json = folder.file("run.json");
    let line = ["validate", CASES, "--coverage", "--json", &json];
    let output = run(&line);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let whole = read(&json);
    let of = |record: &Record, algorithm: &str| {
        record.cases.iter().filter(|verdict| verdict.case.contains(algorithm)).map(|verdict| verdict.outputs.clone()).collect::<Vec<_>>()
    };

    // As if another two_shot had been judged, and everything there were of another run.
    let mut before = read(&json);
    let changed = |name: &str| name == "all_reduce/two_shot" || name == "all_reduce/two_shot.stalls";
    before.source.modules.iter_mut().filter(|(name, _)| changed(name)).for_each(|(_, hash)| *hash = "0".into());
    before.cases.iter_mut().for_each(|verdict| verdict.outputs = Some("0".into()));
    let old = |assumed: &mut Assumed| assumed.times += u64::from(assumed.modules.iter().any(|name| changed(name)));
    before.assumed.iter_mut().for_each(old);
    before.coverage.iter_mut().filter(|of| changed(&of.module)).for_each(|of| of.instructions.covered = 0);
    let lost = before.cases.pop().unwrap();
    assert!(lost.case.contains("two_shot"), "{}", lost.case);
    fs::write(&json, before.to_json()).unwrap();
    let output = run(&[&line[..], &["--stale"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    let after = read(&json);
    assert_eq!(of(&after, "two_shot"), of(&whole, "two_shot"));
    let kept = of(&after, "one_shot");
    assert!(!kept.is_empty() && kept.iter().all(|outputs| outputs.as_deref() == Some("0")), "{kept:?}");
    assert_eq!(after.assumed, whole.assumed);
    assert_eq!(after.coverage, whole.coverage);
    assert_eq!(after.source.modules, whole.source.modules);

    for (arguments, why) in [
        (vec!["validate", CASES, "--stale", "--json", &json], "has coverage: add --coverage"),
        (vec!["validate", CASES, "--coverage", "--seed", "1", "--stale", "--json", &json], "other selection: seed 0, here 1"),
    ] {
        let refused = run(&arguments);
        assert!(refused.status.code() == Some(2) && errors(&refused).contains(why), "{}", errors(&refused));
    }
    assert_eq!(read(&json), after, "what is refused takes nothing away");
}

/// If this fails, a list that was judged in parts has no one record, or one of something else.
#[test]
fn the_parts_of_a_list_make_its_record() {
    let folder = Folder::new("parts");
    let [whole, first, second, merged] = ["whole", "first", "second", "merged"].map(|name| folder.file(&format!("{name}.json")));
    for arguments in [vec!["--json", &whole], vec!["--json", &first, "--part", "1/2"], vec!["--json", &second, "--part", "2/2"]] {
        let output = run(&[&["validate", FEW], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    }
    let output = run(&["report", "--merge", &second, &first, "--json", &merged]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
    assert_eq!(timeless(&merged), timeless(&whole));
    let refused = run(&["report", "--merge", &second, "--json", &merged]);
    assert!(refused.status.code() == Some(2) && errors(&refused).contains("part 1/2 is missing"), "{}", errors(&refused));
    let refused = run(&["report", "--merge", &record("h200x4-bench.json"), "--json", &merged]);
    assert!(refused.status.code() == Some(2) && errors(&refused).contains("is no record of cases"), "{}", errors(&refused));
    assert_eq!(timeless(&merged), timeless(&whole), "a merge that is refused takes nothing away");
}

fn record(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/records").join(name).display().to_string()
}

/// If this fails, a disk that is full takes the record that was there, or nobody learns of it.
#[test]
fn a_full_disk_leaves_the_record_that_was_there() {
    let folder = Folder::new("full");
    let [json, junit, trace, csv] = ["run.json", "run.xml", "trace.json", "run.csv"].map(|name| folder.write(name, BEFORE));
    let case = "all_reduce/one_shot:f32,sum:w=2:n=4096";
    let bench = ["bench", "all_reduce", "--rehearse", "--worlds", "2", "--sizes", "256", "--contenders", "one_shot", "--rounds", "1"];
    let conformance = vec!["validate", case, "--json", &json, "--junit", &junit, "--trace", &trace];
    for (arguments, paths) in [(conformance, vec![&json, &trace]), ([&bench[..], &["--json", &json, "--csv", &csv]].concat(), vec![&json])]
    {
        // No file may be larger than a block; what is larger fails as on a full disk, once its signal is ignored.
        let limited = "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\"";
        let output = Command::new("sh").args(["-c", limited, env!("CARGO_BIN_EXE_passmuster")]).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        for path in paths {
            assert!(errors(&output).contains(&format!("cannot write {path}: ")), "{}", errors(&output));
            assert_eq!(fs::read_to_string(path).unwrap(), BEFORE);
        }
    }
    assert_eq!(folder.names(), ["run.csv", "run.json", "run.xml", "trace.json"], "nothing is left of what could not be written");

    // A device takes what it gets.
    let output = run(&["validate", case, "--json", "/dev/full"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("cannot write /dev/full: No space left on device"), "{}", errors(&output));
    let output = run(&["validate", case, "--json", "/dev/null"]);
    assert_eq!(output.status.code(), Some(0), "{}", errors(&output));
}

/// If this fails, cases are judged whose results cannot be kept, and who waited for them learns it afterwards, or never.
#[test]
fn what_cannot_be_written_is_told_before_the_first_case() {
    let folder = Folder::new("unwritable");
    let file = folder.write("file", BEFORE);
    let read_only = folder.write("read-only.json", BEFORE);
    let mut permissions = fs::metadata(&read_only).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&read_only, permissions).unwrap();
    // Nobody, not even root, makes files in these.
    let places = [
        ("/proc/run.json".to_owned(), "No such file or directory"),
        (format!("{file}/run.json"), "Not a directory"),
        (folder.file("none/run.json"), "No such file or directory"),
        (folder.file(""), "it is a folder"),
        (read_only.clone(), "it is read-only"),
    ];
    for (path, why) in &places {
        for option in ["--json", "--junit", "--trace"] {
            let output = run(&["validate", "all_reduce/one_shot:f32,sum:w=2:n=1", option, path]);
            refused(&output, path, why);
        }
    }
    let (path, why) = &places[0];
    let bench = ["bench", "all_reduce", "--rehearse", "--worlds", "2", "--sizes", "256", "--contenders", "one_shot"];
    for option in ["--json", "--csv", "--markdown", "--html", "--trace", "--plot", "--nccl-tests"] {
        let output = run(&[&bench[..], &[option, path]].concat());
        refused(&output, path, why);
    }
    refused(&run(&["mutants", "--only", "value_06", "--json", path]), path, why);
    refused(&run(&["test-gpu", "--json", path]), path, why);
    refused(&run(&["report", &record("h200x4-bench.json"), "--html", path]), path, why);
    assert_eq!(fs::read_to_string(&read_only).unwrap(), BEFORE);
    assert_eq!(folder.names(), ["file", "read-only.json"]);

    let twice = folder.file("run");
    let output = run(&["validate", "--json", &twice, "--junit", &twice]);
    refused(&output, &twice, "two options name it");
}

fn refused(output: &Output, path: &str, why: &str) {
    assert_eq!(output.status.code(), Some(2), "{path}: {}", errors(output));
    let said = errors(output);
    assert!(said.starts_with(&format!("error: cannot write {path}: ")) && said.contains(why), "{path}: {said}");
    assert!(output.stdout.is_empty(), "{path}: something was judged: {}", String::from_utf8_lossy(&output.stdout));
}

/// If this fails, a reader that goes, as `| head` does, takes the record with it.
#[test]
fn a_closed_pipe_takes_no_record() {
    let folder = Folder::new("pipe");
    let json = folder.write("run.json", BEFORE);
    let mut child = start(&["validate", FEW, "--json", &json]);
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success(), "nobody has read what was found");
    let record = read(&json);
    assert!(record.partial.is_none() && record.summary.total == record.cases.len());
    assert_eq!(folder.names(), ["run.json"]);
}

/// If this fails, two runs that were given one file mix their records, or one takes the other's away.
#[test]
fn two_runs_do_not_write_one_file() {
    let folder = Folder::new("two");
    let json = folder.write("run.json", BEFORE);
    let kept = format!("{json}.partial");
    let mut first = start(&["validate", "merge", "--json", &json, "--keep-every", "0"]);
    until("a case", || Path::new(&kept).exists().then_some(()));
    let second = run(&["validate", FEW, "--json", &json]);
    assert_eq!(second.status.code(), Some(2));
    let said = errors(&second);
    assert!(said.contains(&format!("cannot write {json}: another run writes it: process {}", first.id())), "{said}");
    // By another way to it.
    let (_, name) = json.strip_suffix("/run.json").unwrap().rsplit_once('/').unwrap();
    let other = folder.file(&format!("../{name}/run.json"));
    assert_eq!(run(&["validate", FEW, "--junit", &other]).status.code(), Some(2));
    assert_eq!(first.try_wait().unwrap(), None, "the first goes on");
    send("TERM", first.id());
    assert_eq!(first.wait().unwrap().code(), Some(143));
    assert_eq!(fs::read_to_string(&json).unwrap(), BEFORE);
    assert_eq!(read(&kept).partial.unwrap().why, "SIGTERM");
}

/// If this fails, workers live on after a signal and hold their GPUs, or what was timed is lost.
#[test]
fn workers_go_with_their_command() {
    let folder = Folder::new("workers");
    let json = folder.write("run.json", BEFORE);
    let mut line = vec!["bench", "all_reduce", "--rehearse", "--worlds", "2,3,4", "--sizes", "1K,64K", "--rounds", "50"];
    line.extend(["--contenders", "one_shot,two_shot", "--json", &json]);
    let kept = format!("{json}.partial");
    // The first at once, the others ever later: how long it takes to begin is the machine's affair. The run itself takes a quarter of a minute.
    for attempt in 0..10 {
        let mut child = start(&line);
        let worker = until("a worker", || children(child.id()).into_iter().next());
        until("the first round", || Path::new(&folder.file(".run.json.partial.lock")).exists().then_some(()));
        thread::sleep(attempt * Duration::from_millis(50));
        send("TERM", child.id());
        assert_eq!(child.wait().unwrap().code(), Some(143));
        until("its end", || (!is_alive(worker)).then_some(()));
        assert_eq!(fs::read_to_string(&json).unwrap(), BEFORE);
        // In the moment before it begins, nothing is kept yet.
        if Path::new(&kept).exists() {
            break;
        }
    }
    let partial: Value = serde_json::from_str(&fs::read_to_string(&kept).unwrap()).unwrap();
    assert_eq!((&partial["kind"], &partial["partial"]["of"], &partial["partial"]["why"]), (&"bench".into(), &12.into(), &"SIGTERM".into()));
}

/// State and parent of a process, if there is one.
fn stat(process: u32) -> Option<(String, u32)> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = text.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}

fn is_alive(process: u32) -> bool {
    stat(process).is_some_and(|(state, _)| state != "Z")
}

fn children(parent: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    all.filter(|&process| stat(process).is_some_and(|(_, of)| of == parent)).collect()
}
