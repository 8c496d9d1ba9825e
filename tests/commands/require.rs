//! `records` and `--require` as commands: what they say, and their exit codes.

mod folder;

use std::{
    fs,
    process::{Command, Output},
};

use folder::Folder;
use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_passmuster")).args(arguments).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
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

/// If this fails, a run passes in which what must run did not, or an unreadable manifest is found out after an hour.
#[test]
fn what_must_run_is_missed() {
    let folder = Folder::new("require");
    let manifest = |name: &str, passed: &str| {
        folder.write(name, &format!("[[require]]\nquery = \"all_reduce/two_shot:*,*:w=2\"\nmachine = \"emulator\"\npassed = {passed}\n"))
    };
    let (met, unmet, wrong) = (manifest("met.toml", "1"), manifest("unmet.toml", "2"), manifest("wrong.toml", "\"two\""));
    let validate = |manifest: &str| run(&["validate", CASE, "--require", manifest]);
    assert_eq!(validate(&met).status.code(), Some(0));
    let output = validate(&unmet);
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("required: {unmet}:1: `all_reduce/two_shot:*,*:w=2`: 1 passed, 2 must; the run had 1 such cases");
    assert!(text(&output.stderr).contains(&expected), "{}", text(&output.stderr));
    let output = validate(&wrong);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains(&format!("{wrong}:4:10: invalid type: string \"two\"")), "{}", text(&output.stderr));
    let elsewhere = folder.write("elsewhere.toml", "[[require]]\nquery = \"*\"\nmachine = \"cuda\"\npassed = 1\n");
    assert_eq!(validate(&elsewhere).status.code(), Some(2), "a manifest of which nothing is asked here cannot fail");
    // A record can be asked later, as one whose parts were judged apart.
    let json = folder.file("run.json");
    run(&["validate", CASE, "--json", &json]);
    assert_eq!(run(&["records", "--require", &met, &json]).status.code(), Some(0));
    assert_eq!(run(&["records", "--require", &unmet, &json]).status.code(), Some(1));
}

/// The same of mutants and of what is timed.
#[test]
fn mutants_and_times_are_required_too() {
    let folder = Folder::new("others");
    let manifest = |name: &str, query: &str, passed: u32| {
        folder.write(name, &format!("[[require]]\nquery = \"{query}\"\nmachine = \"emulator\"\npassed = {passed}\n"))
    };
    let mutants = |manifest: &str| run(&["mutants", "--only", "value_06", "--require", manifest]);
    assert_eq!(mutants(&manifest("caught.toml", "value/value_06*", 1)).status.code(), Some(0));
    let output = mutants(&manifest("sync.toml", "sync/*:*,all_reduce/push", 1));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("0 passed, 1 must; the run had 0 such cases"), "{}", text(&output.stderr));
    let bench = |manifest: &str| {
        let line = ["bench", "all_gather", "--rehearse", "--worlds", "2", "--sizes", "256", "--contenders", "push", "--rounds", "1"];
        run(&[&line[..], &["--require", manifest]].concat())
    };
    assert_eq!(bench(&manifest("timed.toml", "all_gather/push:bf16,copy:w=2", 1)).status.code(), Some(0));
    assert_eq!(bench(&manifest("untimed.toml", "all_gather/ll", 1)).status.code(), Some(1));
}
