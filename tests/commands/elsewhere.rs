//! Kernels from elsewhere, through every command that takes them.

mod folder;

use std::{
    fs,
    process::{Command, Output},
};

use passmuster::conformance::{Status, report::Record};
use rstest::rstest;
use serde_json::Value;

use folder::Folder;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn run(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_passmuster")).current_dir(ROOT).args(line.split_whitespace()).output().unwrap()
}

fn spec(name: &str) -> String {
    format!("--spec examples/foreign/{name}/spec.toml")
}

/// What a command prints that does what it should.
fn printed(line: &str) -> String {
    let run = run(line);
    let text = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success(), "{line}\n{text}{}", String::from_utf8_lossy(&run.stderr));
    text
}

/// If this fails, nobody learns which of a kernel's barriers are needed, a kernel that is whole has a mutant caught, or the record does not name the kernel.
#[test]
fn their_mutants_are_scored() {
    let folder = Folder::new("mutants-elsewhere");
    let json = folder.file("run.json");
    let text = printed(&format!("mutants {} --only bar.sync --schedules 1 --json {json}", spec("all_gather_push")));
    let record: Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(record["source"]["modules"].as_object().unwrap().keys().collect::<Vec<_>>(), ["foreign/all_gather_push/kernel.ptx"]);
    assert!(
        text.starts_with("1 of 4 survived: ") && text.contains("\n3 of 4 were caught\n") && text.contains("bar.sync dropped"),
        "{text}"
    );
    assert!(record["cases"].as_array().unwrap().iter().all(|case| case["line"].is_u64()), "{record:#}");
    assert!(text.contains("synchronisation mutants made by rule, barrier: 2 of 3 caught"), "{text}");
    assert!(!text.contains("value mutants"), "only the kernel's own: {text}");
}

/// If this fails, a user whose kernel hangs does not learn which rank did not come, which are stuck, where they wait and for which value.
#[rstest]
#[case::in_cuda(
    "all_reduce/one_shot_by_value",
    "w=8:n=5000",
    7,
    "[0, 1, 2, 3, 4, 5, 6]",
    "signals+28 at PTX 73:1: found 1 (u32), wants == 2; rank 7 (operation 2, ",
    1
)]
#[case::in_triton(
    "all_gather/all_gather_triton",
    "w=2:n=2500",
    1,
    "[0]",
    "pads+512 at PTX 133:7 (signals.py:26): found 2 (s32), wants >= 3; rank 1 (operation 2, signals.py:20) wrote it last",
    4
)]
#[case::of_the_root(
    "broadcast/broadcast_push",
    "w=2:n=5000",
    0,
    "[1]",
    "window+4096 at PTX 216:1: found 1 (u32), wants >= 2; rank 0 (operation 2, ",
    1
)]
fn a_rank_that_stays_away_is_named(
    #[case] of: &str,
    #[case] size: &str,
    #[case] absent: u32,
    #[case] stuck: &str,
    #[case] at: &str,
    #[case] schedules: u32,
) {
    let name = of.split('/').next_back().unwrap();
    let folder = Folder::new(&format!("faults-{name}"));
    let file = folder.file("record.json");
    printed(&format!("validate faults {} --schedules {schedules} --json {file}", spec(name)));
    let record: Record = serde_json::from_str(&folder.read("record.json")).unwrap();
    let of_fault = record.cases.iter().find(|verdict| verdict.case.contains(&format!("{size}:")) && verdict.case.contains("fault=absent"));
    let reason = &of_fault.unwrap().reason;
    let said = [&format!("rank {absent} did not come to {of} "), &format!("ranks {stuck} did not finish; rank "), " polls ", at];
    assert!(said.iter().all(|said| reason.contains(*said)), "{reason}");
    // A rank that is struck is named too, and the case passes without a fault. No process of this command is one to be killed.
    let is = |words: &str, status| record.cases.iter().any(|verdict| verdict.case.contains(words) && verdict.status == status);
    assert!(is("fault=illegal_address@r0", Status::Pass) && is("fault=killed", Status::NotSupported));
    assert!(record.cases.iter().filter(|verdict| !verdict.case.contains("fault")).all(|verdict| verdict.status == Status::Pass));
}

#[test]
fn their_order_of_addition_is_revealed() {
    let text = printed(&format!("reveal-order {} --worlds 3", spec("reduce_scatter_pull")));
    assert!(text.contains("reduce_scatter/reduce_scatter_pull f32 sum, w=3") && text.contains("(r0 + r1) + r2"), "{text}");
}

/// If this fails, a kernel is not timed beside others, or is taken for passmuster's own.
#[test]
fn several_are_contenders_beside_ours() {
    let specs = [spec("all_gather_push"), spec("all_gather_triton")].join(" ");
    let contenders = "push,all_gather_push,foreign/all_gather_triton";
    let text = printed(&format!("bench all_gather --rehearse --worlds 2 --sizes 4K --rounds 1 {specs} --contenders {contenders}"));
    for name in ["foreign/all_gather_push", "foreign/all_gather_triton"] {
        assert!(text.contains(name), "{text}");
    }
    assert!(text.contains("push") && !text.contains("not_supported"), "{text}");
}

/// If this fails, a mistake on the command line is not named, or something runs before it is.
#[rstest]
#[case::two_for_one_file(
    "validate --spec examples/foreign/all_gather_push/spec.toml --spec examples/foreign/reduce_pull/spec.toml --ptx examples/foreign/reduce_pull/kernel.ptx",
    "--ptx is for one --spec, 2 are given: each may name its own in `module` and `entry`"
)]
#[case::another_collective(
    "bench broadcast --rehearse --spec examples/foreign/all_gather_push/spec.toml",
    "the kernel all_gather_push is of all_gather, and what is timed is broadcast"
)]
#[case::no_contender(
    "bench all_gather --rehearse --worlds 2 --contenders push --spec examples/foreign/all_gather_push/spec.toml",
    "--spec: none of its kernels is a contender here"
)]
#[case::twice(
    "reveal-order --spec examples/foreign/reduce_pull/spec.toml --spec examples/foreign/all_gather_push/spec.toml",
    "--spec is given 2 times: the order of one algorithm is printed"
)]
#[case::on_gpus("mutants --machine cuda --spec examples/foreign/reduce_pull/spec.toml", "run on the emulator only")]
#[case::no_gpus_needed_to_say_so("test-gpu faults --spec examples/foreign/none.toml", "cannot open examples/foreign/none.toml")]
#[case::no_file("validate --spec examples/foreign/none.toml", "cannot open examples/foreign/none.toml")]
#[case::another_kernel(
    "validate --spec examples/foreign/all_gather_push/spec.toml --ptx examples/foreign/reduce_pull/kernel.ptx",
    "examples/foreign/all_gather_push/spec.toml:5:9: kernel `all_gather` is not in the PTX, which has "
)]
fn mistakes_are_named(#[case] line: &str, #[case] named: &str) {
    let run = run(line);
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.code() == Some(2) && errors.contains(named), "{:?}: {errors}", run.status);
    assert!(run.stdout.is_empty(), "{}", String::from_utf8_lossy(&run.stdout));
}

/// If this fails, a mistake in a specification is found when something runs, or its author has to look for it.
#[rstest]
#[case::missing_module("\"kernel.ptx\"", "\"nowhere.ptx\"", "4:10: module: cannot open ")]
#[case::missing_contents("role = \"signals\"", "role = \"signals\"\nfill = { file = \"none.bin\" }", "26:17: cannot open ")]
#[case::two_of_one_name(
    "[[argument]] # struct Inputs",
    "[[buffer]]\nname = \"signals\"\nrole = \"state\"\nbytes = 8\n[[argument]]",
    "29:8: a second buffer"
)]
#[case::circular_grid("\"min(min", "\"grid + min(min", "15:9: unknown word `grid`: expected one of count, ")]
#[case::circular_block("block = 512", "block = \"block\"", "16:10: unknown word `block`: did you mean `waiting_blocks`? expected one of ")]
#[case::circular_buffer("\"(2 * 36 * 8", "\"signals + (2 * 36 * 8", "26:10: unknown word `signals`: expected one of ")]
#[case::beyond_any_device("\"(2 * 36 * 8 + 36) * 4\"", "\"world * 1125899906842624\"", "26:10: bytes of buffer `signals` ")]
#[case::no_such_entry("\"one_shot_{dtype}\"", "\"two_shot_{dtype}\"", "5:9: kernel `two_shot_f32` is not in the PTX, which has ")]
#[case::fewer_arguments("[[argument]]\ni32 = \"world\"\n", "", "5:9: kernel `one_shot_f32` takes 7 arguments of ")]
#[case::more_arguments(
    "i32 = \"bytes / 16\"",
    "i32 = \"bytes / 16\"\n[[argument]]\ni32 = 1",
    "48:1: kernel `one_shot_f32` takes 7 arguments of "
)]
#[case::another_size("i32 = \"rank\"", "u64 = \"rank\"", "40:1: argument 4 of kernel `one_shot_f32` has 8 bytes, its parameter 4")]
#[case::another_layout(
    "\"input\", length = 8 }]",
    "\"input\", length = 8 }, { u32 = 1 }]",
    "28:1: argument 0 of kernel `one_shot_f32` has 72 bytes, its parameter 64"
)]
fn mistakes_in_specifications_have_a_place(#[case] find: &str, #[case] replace: &str, #[case] expected: &str) {
    let folder = Folder::new("specification");
    let example = format!("{ROOT}/examples/foreign/one_shot_by_value");
    let text = std::fs::read_to_string(format!("{example}/spec.toml")).unwrap();
    assert!(text.contains(find), "{find}");
    let file = folder.write("spec.toml", &text.replacen(find, replace, 1));
    std::fs::copy(format!("{example}/kernel.ptx"), folder.file("kernel.ptx")).unwrap();
    let run = run(&format!("validate --spec {file}"));
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(errors.starts_with(&format!("error: {file}:{expected}")), "{errors}");
    assert_eq!((run.status.code(), run.stdout.len(), errors.lines().count()), (Some(2), 0, 1), "{errors}");
}
