//! Soaks on the emulator, as their users see them.

mod folder;

use std::process::{Command, Output};

use folder::Folder;
use serde_json::Value;

const BUG: &str = "value_01_rank_dropped";

fn soak(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_passmuster"));
    command.arg("soak").args(arguments).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn case(folder: &Folder, file: &str) -> (Value, Value) {
    let record: Value = serde_json::from_str(&folder.read(file)).unwrap();
    (record["cases"][0].clone(), record)
}

/// If this fails, a soak of kernels that are right finds something, says that something leaks, or records another sequence the next time.
#[test]
fn a_clean_soak_passes_and_is_the_same_again() {
    let folder = Folder::new("soak");
    let run = |file: &str, more: &[&str]| {
        let json = folder.file(file);
        let output = soak(&[&["--minutes", "10", "--rounds", "4", "--worlds", "1-3", "--bytes", "1K", "--json", &json], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
        assert!(text(&output.stdout).ends_with(": no divergence\n"), "{}", text(&output.stdout));
        case(&folder, file)
    };
    let ((first, record), (again, _), (other, _)) = (run("a.json", &[]), run("b.json", &[]), run("c.json", &["--seed", "1"]));
    assert_eq!((&record["kind"], &record["summary"]["pass"]), (&"soak".into(), &4.into()));
    assert!(record["source"]["modules"].as_object().is_some_and(|modules| !modules.is_empty()), "{record}");
    assert!(first["calls"].as_u64() > Some(10) && first["bytes"].as_u64() > Some(0) && first["groups"].as_u64() >= Some(4), "{first}");
    assert_eq!(first["held_last"].as_array().map(Vec::len), Some(2), "{first}");
    for field in ["outputs", "calls", "of_algorithm", "groups"] {
        assert_eq!(first[field], again[field]);
        assert_ne!(first[field], other[field], "seed 1 has the {field} of seed 0");
    }
}

/// If this fails, soaks do not find a planted bug, or the line of the report does not find it again.
#[test]
fn a_planted_bug_is_found_and_its_line_finds_it_again() {
    let found = soak(&["--rounds", "100", "--worlds", "4", "--bytes", "512", "--mutant", BUG]);
    let told = text(&found.stdout);
    assert_eq!(found.status.code(), Some(1), "{told}{}", text(&found.stderr));
    let first = told.lines().find(|line| line.contains("reference call ")).expect("a value is wrong");
    assert!(first.contains(", first at rank ") && first.contains(", element "), "{first}");
    let line = told.lines().find(|line| line.starts_with("  repro ")).expect("it can be run again");
    let (before, token) = line.trim_end_matches('\'').split_once(" --replay '").unwrap();
    assert!(before.ends_with(&format!("soak --mutant {BUG}")), "{line}");
    let again = soak(&["--mutant", BUG, "--replay", token]);
    let told_again = text(&again.stdout);
    assert_eq!(again.status.code(), Some(1), "{told_again}");
    assert!(told_again.contains(first) && told_again.contains(token), "{told_again}");
    let clean = soak(&["--replay", token]);
    assert_eq!(clean.status.code(), Some(0), "without the bug: {}", text(&clean.stdout));
}

#[test]
fn what_cannot_be_is_refused() {
    for (arguments, said) in [
        (&["--minutes", "0"][..], "`0`: expected minutes above 0"),
        (&["--worlds", "0-3"], "`0-3`: expected numbers of ranks from 1 to 72"),
        (&["--mutant", "none"], "unknown mutant `none`"),
        (&["--replay", "all_reduce/one_shot:bf16,sum:w=2:n=1"], "is no round: expected soak:seed=HEX"),
    ] {
        let output = soak(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
    }
    let listed = soak(&["--list", "--rounds", "2"]);
    assert_eq!(text(&listed.stdout).matches("soak:seed=0:round=").count(), 2, "{}", text(&listed.stdout));
}

/// A machine without GPUs must not look as if it had passed.
#[test]
fn without_gpus_it_cannot_run() {
    let hidden = Command::new(env!("CARGO_BIN_EXE_passmuster"))
        .args(["soak", "--machine", "cuda", "--rounds", "1"])
        .env("CUDA_VISIBLE_DEVICES", "")
        .output()
        .unwrap();
    assert_eq!(hidden.status.code(), Some(3), "{}", text(&hidden.stderr));
}
