//! Commands of the upkeep of this repository: what they say and their exit statuses.

mod folder;

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use folder::Folder;
use passmuster::{
    conformance::{
        Status,
        report::{Record, packed},
    },
    ledger::litmus::LitmusRow,
};
use rstest::rstest;
use serde_json::Value;

const COMMANDS: [&str; 6] = ["kernels", "docs", "records", "ledger", "tune", "bundle"];

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_passmuster"));
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).env("COLUMNS", "200").output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// If this fails, who looks for a command of passmuster reads those for its developers first.
#[test]
fn upkeep_comes_last_in_help() {
    let help = text(&run(&["--help"]).stdout);
    assert!(help.starts_with("Test multi-GPU kernels before you merge them.\n"), "{help}");
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<&str> = listed.filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names[names.len() - 7..], [&COMMANDS[..], &["help"]].concat(), "{help}");
    assert!(names.contains(&"validate") && names.contains(&"choose"), "{help}");
    let (of_users, of_upkeep) = help.split_once("\nUpkeep of this repository:\n").unwrap();
    for command in COMMANDS {
        let example = format!("cargo xtask {command} ");
        assert!(!of_users.contains(&example) && of_upkeep.contains(&example), "{command}: {help}");
    }
}

/// If this fails, examples are torn on a terminal of 80 columns, or an option is offered that does nothing or has two spellings.
#[rstest]
fn help_is_readable(#[values("kernels", "records", "ledger", "tune", "bundle")] command: &str) {
    let help = text(&run(&[command, "--help"]).stdout);
    let mut examples = help.lines().skip_while(|line| *line != "Examples:").peekable();
    assert!(examples.peek().is_some() && examples.all(|line| line.chars().count() <= 80), "{help}");
    assert!(!help.contains("--multimem") && !help.contains("--profile") && !help.contains("--world "), "{help}");
}

/// If this fails, a litmus test ends otherwise than its record says, one that cannot run passes for one that did, or one without a readable head is taken for none.
#[test]
fn litmus_tests_are_held_against_other_schedules() {
    let folder = Folder::new("litmus");
    let json = folder.file("litmus.json");
    let arguments =
        ["ledger", "--litmus", "--machine", "emulator", "--only", "copy", "--launches", "50", "--skip", "copy_met", "--json", &json];
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let record: Record<LitmusRow> = serde_json::from_str(&folder.read("litmus.json")).unwrap();
    let row = |name: &str| record.cases.iter().find(|row| row.test == name).unwrap_or_else(|| panic!("no {name}"));
    let copy = row("copy");
    assert_eq!((copy.status, copy.launches, copy.ends, copy.unknown, copy.wrong), (Status::Pass, 50, 1, 0, false), "{copy:?}");
    let skipped = row("copy_met");
    assert_eq!((skipped.status, skipped.launches, &*skipped.reason), (Status::NotSupported, 0, "it was left out: --skip"));
    let wrong: Vec<&LitmusRow> = record.cases.iter().filter(|row| row.wrong && row.launches == 50).collect();
    assert!(!wrong.is_empty() && wrong.iter().all(|row| row.status == Status::Pass), "{wrong:#?}");

    fs::write(folder.file("headless.ptx"), ".version 9.0\n").unwrap();
    let refused = run(&["ledger", "--machine", "emulator", "--litmus", &folder.file("")]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("headless: the first line does not say what it shows"), "{}", text(&refused.stderr));
}

const CASE: &str = "all_reduce/two_shot:bf16,sum:w=2:n=8";

/// If this fails, a record does not say which kernels it rests on, or a change of one of them goes unseen, or what rests on it.
#[test]
fn a_record_is_stale_once_a_kernel_of_its_has_changed() {
    let folder = Folder::new("stale");
    let json = folder.file("fresh.json");
    assert_eq!(run(&["validate", CASE, "--json", &json]).status.code(), Some(0));
    let mut record: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    let modules = record["source"]["modules"].as_object_mut().unwrap();
    assert_eq!(modules.keys().collect::<Vec<_>>(), ["all_reduce/two_shot", "conformance/fill"]);
    modules["all_reduce/two_shot"] = "0123456789abcdef".into();
    let stale = folder.write("stale.json", &record.to_string());
    record["source"].as_object_mut().unwrap().remove("modules");
    let unknown = folder.write("unknown.json", &record.to_string());
    let found = folder.file("found.json");
    let output = run(&["records", &json, &stale, &unknown, "--json", &found]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("3 records: 1 fresh, 1 stale, 1 unknown") && said.contains("1 of 1"), "{said}");
    let found: Value = serde_json::from_str(&fs::read_to_string(found).unwrap()).unwrap();
    let states: Vec<&Value> = found["records"].as_array().unwrap().iter().map(|record| &record["freshness"]).collect();
    assert_eq!((states[0], states[2]), (&"fresh".into(), &"unknown".into()));
    assert_eq!((&states[1]["stale"][0], &found["records"][1]["resting"]), (&"all_reduce/two_shot".into(), &1.into()));
}

/// If this fails, the committed documents quote stale records and do not say so; or the command does not see it.
#[test]
fn the_documents_say_where_records_are_stale() {
    let output = run(&["records", "--check"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("README.md:"), "no part of the README says what it was made from");
}

/// If this fails, a document has a figure that no record has, or a table of what the code no longer is: `cargo xtask docs`.
#[test]
fn the_documents_say_what_code_and_records_say() {
    let output = run(&["docs", "--check"]);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).ends_with(" parts, all as they were\n"), "{}", text(&output.stdout));
}

/// If this fails, the parts of a run that were judged apart pass though together they lack what must run.
#[test]
fn records_are_asked_for_what_must_run() {
    let folder = Folder::new("asked");
    let json = folder.file("run.json");
    assert_eq!(run(&["validate", CASE, "--json", &json]).status.code(), Some(0));
    let status = |passed: u32| {
        let manifest = format!("[[require]]\nquery = \"all_reduce/two_shot:*,*:w=2\"\nmachine = \"emulator\"\npassed = {passed}\n");
        run(&["records", "--require", &folder.write("manifest.toml", &manifest), &json]).status.code()
    };
    assert_eq!((status(1), status(2)), (Some(0), Some(1)));
}

/// If this fails, two runs are said to have given the same bits where one case of theirs differs, or where they have no case in common.
#[test]
fn records_of_other_bits_are_told_apart() {
    let folder = Folder::new("same");
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/records/h200x2-processes-own.json").display().to_string();
    let bytes = packed::unpack(&fs::read(packed::beside(Path::new(&committed))).unwrap(), u64::MAX).unwrap();
    let mut record: Record = serde_json::from_slice(&bytes).unwrap();
    record.cases.truncate(3);
    let write = |name: &str, record: &Record| folder.write(name, &serde_json::to_string(record).unwrap());
    let first = write("first.json", &record);
    let same = run(&["records", "--same", &first, &committed]);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same.stderr));
    assert!(text(&same.stdout).ends_with("3 of 3 cases have the same bits\n"));

    record.cases[1].outputs = Some("another".into());
    let changed = run(&["records", "--same", &first, &write("changed.json", &record)]);
    let told = text(&changed.stdout);
    assert_eq!(changed.status.code(), Some(1), "{told}");
    assert!(told.contains(&format!("differs: {}\n2 of 3 cases", record.cases[1].case)), "{told}");

    record.cases.clear();
    assert_eq!(run(&["records", "--same", &first, &write("none.json", &record)]).status.code(), Some(1));
}

/// If this fails, an hour of measuring ends in a file that cannot be written.
#[test]
fn unwritable_output_is_refused_first() {
    let path = "/proc/run.json";
    for line in [&["ledger", "--machine", "emulator", "--only", "add.", "--json", path][..], &["tune", "--out", path]] {
        let output = run(line);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line:?}: {error}");
        assert!(error.starts_with("error: cannot write /proc/run.json: ") && output.stdout.is_empty(), "{line:?}: {error}");
    }
}
