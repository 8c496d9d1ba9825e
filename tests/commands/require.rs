//! `--require`: what commands say of what must run, and their exit statuses.

mod folder;

use std::process::{Command, Output};

use folder::Folder;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_passmuster")).args(arguments).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const CASE: &str = "all_reduce/two_shot:bf16,sum:w=2:n=8";

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
