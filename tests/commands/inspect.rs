//! `inspect` as its users see it.

mod folder;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use passmuster::emulator;
use passmuster::{
    algorithms::{Algorithm, Foreign},
    collective::Collective,
};
use passmuster_ptx as ptx;
use rstest::rstest;

use folder::Folder;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn inspect(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_passmuster")).arg("inspect").args(arguments).current_dir(root()).output().expect("it starts")
}

/// What it prints where all is well.
fn printed(arguments: &[&str]) -> String {
    let output = inspect(arguments);
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""), "{arguments:?}");
    String::from_utf8(output.stdout).expect("it is text")
}

/// What it says where it refuses, with exit status 2.
fn refused(arguments: &[&str]) -> String {
    let output = inspect(arguments);
    let said = String::from_utf8(output.stderr).expect("it is text");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}: {said}");
    said
}

/// If this fails, `inspect` says something else of a kernel than what its PTX has.
#[test]
fn a_kernel_is_told_as_it_is() {
    insta::assert_snapshot!(printed(&["kernels/ptx/all_reduce/two_shot.ptx", "--kernel", "all_reduce_two_shot_bf16_sum"]));
    insta::assert_snapshot!("one_shot_triton", printed(&["examples/foreign/one_shot_triton/kernel.ptx"]));
    insta::assert_snapshot!("one_shot_triton_json", printed(&["examples/foreign/one_shot_triton/kernel.ptx", "--json"]));
    let scattered = ["examples/foreign/reduce_scatter_triton/kernel.ptx", "--spec", "--collective", "reduce_scatter"];
    insta::assert_snapshot!("draft_reduce_scatter", printed(&scattered));
    insta::assert_snapshot!("draft", printed(&["examples/foreign/one_shot_by_value/kernel.ptx", "--kernel", "one_shot_bf16", "--spec"]));
}

/// If this fails, a draft is no specification, or it launches the kernel with arguments of other sizes than its parameters have.
#[rstest]
fn a_draft_is_a_specification_that_fits(
    #[values("one_shot_by_value", "one_shot_triton", "two_shot_by_table")] example: &str,
    #[values("kernel.ptx", "kernel.bug.ptx")] file: &str,
) {
    let path = format!("examples/foreign/{example}/{file}");
    let text = fs::read_to_string(root().join(&path)).unwrap();
    let module = ptx::parse(&text).unwrap();
    for (entry, collective) in module.entries().flat_map(|entry| Collective::ALL.map(|collective| (entry, collective))) {
        let draft = printed(&[&path, "--kernel", &entry.name, "--spec", "--collective", collective.name()]);
        let foreign = Foreign::read(&draft, None).unwrap_or_else(|error| panic!("{path}: {error}\n{draft}"));
        assert_eq!(foreign.collective(), collective);
        let samples = foreign.samples();
        assert!(samples.iter().any(|launch| launch.entry == entry.name), "{draft}");
        samples.iter().for_each(|launch| emulator::accepts(&module, launch).unwrap_or_else(|why| panic!("{why}\n{draft}")));
    }
    let told: serde_json::Value = serde_json::from_str(&printed(&[&path, "--json"])).unwrap();
    let kernels = told["kernels"].as_array().unwrap();
    assert!(!kernels.is_empty() && kernels.iter().all(|kernel| kernel["runs"] == true), "{told:#}");
    assert!(kernels.iter().all(|kernel| !kernel["synchronisation"].as_array().unwrap().is_empty()), "{told:#}");
}

/// If this fails, what the PTX tells of a parameter, or its name does, is left for a person to find out; or a guess does not say that it is one.
#[rstest]
#[case::unread("reduce_scatter_triton", "reduce_scatter", &["_7: .u64, 8 bytes, to .global aligned to 1\n[[argument]]\nu64 = 0 # guessed: the kernel never reads it"])]
#[case::numbers("reduce_scatter_triton", "reduce_scatter", &["u32 = \"rank\" # DECIDE: guessed by its place", "u32 = \"world\" #", "u32 = \"count\" #", "ops = ["])]
#[case::root("broadcast_push", "broadcast", &["u32 = \"root\" # DECIDE: guessed", "pointer = \"input\" # DECIDE: an address, guessed by its place"])]
#[case::no_address("broadcast_push", "broadcast", &["u64 = \"count\" # DECIDE: a number, guessed for it is not used as an address itself"])]
#[case::slots("all_gather_push", "all_gather", &["collective = \"all_gather\" # count: elements of each rank's input"])]
#[case::parts("all_to_all_triton", "all_to_all", &["counts = false # DECIDE"])]
fn a_draft_guesses_and_says_so(#[case] example: &str, #[case] collective: &str, #[case] expected: &[&str]) {
    let draft = printed(&[&format!("examples/foreign/{example}/kernel.ptx"), "--spec", "--collective", collective]);
    for expected in expected {
        assert!(draft.contains(expected), "{expected}\n{draft}");
    }
    assert_eq!(draft.contains("[contract]"), draft.contains("ops = ["), "{draft}");
    Foreign::read(&draft, None).unwrap_or_else(|error| panic!("{error}\n{draft}"));
}

/// Hand-written PTX has names.
#[test]
fn names_of_parameters_tell_what_they_are() {
    let folder = Folder::new("inspect-names");
    let body = "{ .reg .b64 %rd<4>; .reg .b32 %r<4>; ld.param.u64 %rd1, [dst_ptr]; ld.param.u64 %rd2, [send_buf]; st.global.u64 [%rd1], 1; \
                ld.global.u64 %rd3, [%rd2]; ld.param.u32 %r1, [nranks]; ld.param.u32 %r2, [my_rank]; ld.param.u64 %rd3, [numel]; ret; }";
    let parameters = ".param .u32 nranks, .param .u64 dst_ptr, .param .u64 numel, .param .u64 send_buf, .param .u32 my_rank";
    let file =
        folder.write("named.ptx", &format!(".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k({parameters}) {body}\n"));
    let draft = printed(&[&file, "--spec"]);
    let at = |words: &str| draft.find(words).unwrap_or_else(|| panic!("{words}\n{draft}"));
    let order = ["u32 = \"world\"", "pointer = \"output\"", "u64 = \"count\"", "pointer = \"input\"", "u32 = \"rank\""];
    assert!(order.windows(2).all(|pair| at(pair[0]) < at(pair[1])), "{draft}");
    assert_eq!(draft.matches("guessed by its name").count(), 5, "{draft}");
}

const MIXED: &str = ".version 9.0\n.target sm_90\n.address_size 64\n.func shared() { tcgen05.fence::before_thread_sync; ret; }\n\
                     .visible .entry old(.param .u64 p) { fence.acq_rel.sys; bar.sync 0; ret; }\n\
                     .visible .entry new(.param .u64 p) { call shared; ret; }\n";

/// If this fails, nobody sees which kernels an unknown instruction keeps from running, or it keeps others from it.
#[test]
fn an_unknown_instruction_is_of_those_who_reach_it() {
    let folder = Folder::new("inspect");
    let file = folder.file("mixed.ptx");
    fs::write(&file, MIXED).unwrap();
    let told: serde_json::Value = serde_json::from_str(&printed(&[&file, "--json"])).unwrap();
    let runs: Vec<_> = told["kernels"].as_array().unwrap().iter().map(|kernel| (&kernel["name"], &kernel["runs"])).collect();
    assert_eq!(runs, [(&"old".into(), &true.into()), (&"new".into(), &false.into())]);
    assert_eq!(told["unknown"][0]["reached_by"], serde_json::json!(["new"]));
    assert_eq!(told["kernels"][0]["synchronisation"][0]["instruction"], "fence.acq_rel.sys");
    let shown = printed(&[&file]);
    assert!(
        shown.contains("unknown to the emulator, in shared, reached by new:") && shown.contains(":4:18: unknown instruction"),
        "{shown}"
    );
}

/// If this fails, somebody who mistypes is left alone with it.
#[test]
fn what_is_wrong_is_named_with_what_was_allowed() {
    let folder = Folder::new("inspect-refused");
    let file = folder.file("mixed.ptx");
    fs::write(&file, MIXED).unwrap();
    assert!(refused(&[&file, "--spec"]).contains("has 2 kernels: --kernel NAME says of which the specification is, one of old, new"));
    assert!(refused(&[&file, "--kernel", "odl"]).contains("has no such kernel, expected one of old, new"));
    fs::write(&file, MIXED.replace("bar.sync 0;", "bar.sync 0")).unwrap();
    let cut = refused(&[&file]);
    assert!(cut.contains("mixed.ptx:5:68: ") && cut.contains("expected `,` or `;`"), "{cut}");
    assert!(refused(&["nowhere.ptx"]).contains("cannot open nowhere.ptx"));
}
