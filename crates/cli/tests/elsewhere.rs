//! Kernels from elsewhere, through every command that takes them.

use std::process::{Command, Output};

use rstest::rstest;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

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

/// If this fails, nobody is told which of a kernel's barriers are needed, or a kernel that is whole has a mutant caught.
#[test]
fn their_mutants_are_scored() {
    let text = printed(&format!("mutants {} --only bar.sync --schedules 1", spec("all_gather_push")));
    assert!(text.contains("all_gather_push/L") && text.contains("bar.sync dropped"), "{text}");
    assert!(text.contains("synchronisation mutants made by rule, barrier: 2 of 3 caught"), "{text}");
    assert!(!text.contains("value mutants"), "only the kernel's own: {text}");
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
#[case::no_file("validate --spec examples/foreign/none.toml", "cannot open examples/foreign/none.toml")]
#[case::another_kernel(
    "validate --spec examples/foreign/all_gather_push/spec.toml --ptx examples/foreign/reduce_pull/kernel.ptx",
    "examples/foreign/reduce_pull/kernel.ptx and examples/foreign/all_gather_push/spec.toml: "
)]
fn mistakes_are_named(#[case] line: &str, #[case] named: &str) {
    let run = run(line);
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.code() == Some(2) && errors.contains(named), "{:?}: {errors}", run.status);
    assert!(run.stdout.is_empty(), "{}", String::from_utf8_lossy(&run.stdout));
}
