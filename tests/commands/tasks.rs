//! Tasks that authors declare, as their authors meet them: a fused kernel, its reference, its bugs, and what is said when a declaration is wrong.

mod folder;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use folder::Folder;
use rstest::rstest;

fn example(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/tasks/one_shot_norm").join(file)
}

fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let output: Output = Command::new(env!("CARGO_BIN_EXE_passmuster")).args(arguments).output().expect("it starts");
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.code(), text)
}

/// The example in a folder of its own, with changes to its specification, its PTX or its reference.
fn changed(folder: &Folder, changes: &[(&str, &str, &str)]) -> String {
    let files = ["spec.toml", "kernel.ptx", "reference.py"];
    for file in files {
        let mut text = fs::read_to_string(example(file)).unwrap();
        for (_, from, to) in changes.iter().filter(|(of, ..)| *of == file) {
            assert!(text.contains(from), "{file} has no `{from}`");
            text = text.replacen(from, to, 1);
        }
        folder.write(file, &text);
    }
    folder.file("spec.toml")
}

const PROGRAM: (&str, &str, &str) = ("spec.toml", r#"reference = "all_reduce_rms_norm""#, r#"reference = ["python3", "reference.py"]"#);

/// If this fails, a right fused kernel is refused, or its cases are not what they should be.
#[test]
fn a_fused_kernel_passes() {
    let spec = example("spec.toml").display().to_string();
    let (code, text) = run(&["validate", "--spec", &spec]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(" passed, 0 findings in "), "{text}");
    let (_, list) = run(&["validate", "--list", "--spec", &spec]);
    let has = |part: &str| list.lines().any(|line| line.contains(part));
    assert!(has(":w=4:") && has(":tokens=9:") && has(":hidden=1032") && has(":skew=r") && has("inputs=integers") && has("+"), "{list}");
    let (code, text) = run(&["validate", "*:*,task:tokens=3:hidden=8", "--list", "--spec", &spec]);
    assert!(code == Some(0) && text.lines().all(|id| id.contains(":tokens=3:hidden=8")), "{text}");
}

/// If this fails, a rank that never comes to a fused kernel is not named.
#[test]
fn a_rank_that_stays_away_is_named() {
    let spec = example("spec.toml").display().to_string();
    let (code, text) = run(&["validate", "faults", "--spec", &spec]);
    assert!(code == Some(0) && text.contains("4 passed, 0 findings"), "{text}");
}

/// If this fails, a bug of a fused kernel passes, or is not said to be what it is.
#[test]
fn the_planted_bug_is_a_race() {
    let case = "all_reduce_rms_norm/one_shot_norm:bf16,task:w=2:tokens=9:hidden=64";
    let folder = Folder::new("tasks-bug");
    let spec = changed(&folder, &[]);
    fs::copy(example("kernel.bug.ptx"), folder.file("kernel.ptx")).unwrap();
    let (code, text) = run(&["validate", case, "--schedules", "8", "--spec", &spec]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("race, ") && text.contains("shared memory"), "{text}");
    // Packs hold eight elements: a row of one would fail for another reason.
    let smaller = text.lines().find(|line| line.trim_start().starts_with("shrunk to ")).unwrap_or(case);
    assert!(!smaller.contains(":hidden=1") && !smaller.contains("NaN"), "{smaller}");
}

/// If this fails, an assumption that the contract of a task declares is called undeclared.
#[test]
fn declared_assumptions_are_named_with_their_reason() {
    let folder = Folder::new("tasks-assumes");
    let release = ("kernel.ptx", "st.release.sys", "st.relaxed.sys");
    let acquire = ("kernel.ptx", "ld.acquire.sys", "ld.relaxed.sys");
    let contract = ("spec.toml", "[launch]\n", "[contract]\nassumes.boundary = \"copies have ended\"\n\n[launch]\n");
    let spec = changed(&folder, &[release, acquire, contract]);
    let (code, text) = run(&["validate", CASE, "--spec", &spec]);
    assert!(code == Some(0) && text.contains("(declared: copies have ended)") && !text.contains("not declared"), "{text}");
}

const CASE: &str = "all_reduce_rms_norm/one_shot_norm:bf16,task:w=2:tokens=3:hidden=64";

/// If this fails, a wrong declaration or a wrong argument is not found, or the report does not say what is wrong.
#[rstest]
#[case::residual_forgotten(&[("spec.toml", "pointer = \"residual\"", "pointer = \"zeros\""), ("spec.toml", "[[buffer]]", "[[buffer]]\nname = \"zeros\"\nrole = \"state\"\nmemory = \"local\"\nbytes = \"tokens * hidden * 2\"\n\n[[buffer]]")], "if residual of rank 0 were zero")]
#[case::own_input_for_every_rank(&[("spec.toml", "peers = \"input\", length = 8", "pointer = \"input\", repeat = \"world\" }, { u64 = 0, repeat = \"8 - world\"")], "residual_out of rank 1 differs from that of rank 0")]
#[case::wrong_width(&[("spec.toml", "u32 = \"hidden\"", "u32 = \"hidden / 2\"")], "rank 0 did not write 96 of 192 elements of residual_out")]
fn wrong_results_are_explained(#[case] changes: &[(&str, &str, &str)], #[case] says: &str) {
    let folder = Folder::new(&format!("tasks-wrong-{}", says.len()));
    let spec = changed(&folder, changes);
    let (code, text) = run(&["validate", CASE, "--verbose", "--shrink", "0", "--spec", &spec]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("elements of ") && text.contains(says), "no `{says}` in {text}");
}

/// If this fails, a program is run that nobody allowed, or the same reference in Python gives another verdict.
#[test]
fn a_program_is_a_reference_if_it_is_allowed() {
    let folder = Folder::new("tasks-program");
    let spec = changed(&folder, &[PROGRAM]);
    let (code, text) = run(&["validate", CASE, "--spec", &spec]);
    assert!(code == Some(2) && text.contains("reference: `python3 reference.py` is a program: --allow-program runs it"), "{text}");
    let (code, text) = run(&["validate", CASE, "--allow-program", "--spec", &spec]);
    assert!(code == Some(0) && text.contains("passed, 0 findings"), "{text}");
}

/// If this fails, a broken reference passes, is taken for a bug of the kernel, or its author does not learn what it printed.
#[rstest]
#[case::crashes("    questions, answers", "    raise ValueError('no such norm')\n    questions, answers", "ValueError: no such norm")]
#[case::another_shape(
    "        values += ",
    "        values += [0.0]\n        magnitudes += [0.0]\n        values += ",
    "its shape is [3, 64]"
)]
#[case::not_a_number("EPSILON = 1e-6", "EPSILON = float('nan')", "gives no finite number for element 0 of output")]
#[case::two_answers(
    "    scale = 1 ",
    "    scale = len(os.listdir('/proc/self/fd')) * __import__('time').monotonic() ",
    "gives two answers to the same call"
)]
#[case::no_header(
    "        answers.write(json",
    "        answers.write(b'hello\\n' + json",
    "its answer starts with `hello`, which is no header"
)]
#[case::an_error(
    "        header, body = [], []",
    "        answers.write(b'{\"error\": \"too many tokens\"}\\n'); answers.flush(); continue",
    "it says: too many tokens"
)]
#[case::ends("    while line", "    sys.exit('nothing to say')\n    while line", "nothing to say")]
fn a_broken_reference_is_no_finding(#[case] from: &str, #[case] to: &str, #[case] says: &str) {
    let folder = Folder::new(&format!("tasks-reference-{}", says.len()));
    let spec = changed(&folder, &[PROGRAM, ("reference.py", from, to)]);
    let (code, text) = run(&["validate", CASE, "--allow-program", "--spec", &spec]);
    assert!(code == Some(2) && text.contains(says), "{code:?}, no `{says}` in {text}");
}

/// If this fails, a declaration that makes no sense is taken, or its author does not learn where and what was expected.
#[rstest]
#[case::no_reference("reference = \"all_reduce_rms_norm\" # built in;", "reference = \"rms\" # built in;", "unknown reference `rms`: ")]
#[case::other_inputs(
    "reference = \"all_reduce_rms_norm\" # built in;",
    "reference = \"all_reduce\" # built in;",
    "`all_reduce` has the inputs input, in this order, and the task input, residual, gamma"
)]
#[case::role("role = \"output\"", "role = \"out\"", "unknown role `out`: did you mean `output` or `input_output`?")]
#[case::contents("contents = \"weights\"", "contents = \"weight\"", "unknown contents `weight`: did you mean `weights`?")]
#[case::no_contract("contract = { kind = \"bound\", roundings = 1, operations = \"world\" }", "", "output `residual_out` has no contract")]
#[case::unreasoned(
    "contract = { kind = \"bound\", roundings = 1, operations = \"world\" }",
    "contract = { kind = \"tolerance\", relative = 0.1 }",
    "needs a reason"
)]
#[case::mixed("kind = \"bound\", roundings = 1, operations = \"world\" ", "kind = \"bits\", roundings = 1", "go with kind = \"bound\"")]
#[case::no_values("values = [1, 3, 9]", "values = []", "parameter `tokens` has no value to try")]
#[case::reserved(
    "name = \"tokens\"\nvalues",
    "name = \"world\"\nvalues",
    "parameter `world`: expressions or case ids use this name already"
)]
#[case::unknown_word("shape = [\"hidden\"]", "shape = [\"hiden\"]", "unknown word `hiden`: did you mean `hidden`?")]
#[case::word_of_collectives("grid = \"min(min(waiting_blocks, 36), tokens)\"", "grid = \"count\"", "unknown word `count`")]
#[case::both("[task]\n", "[call]\n[task]\n", "[call] is of collectives")]
#[case::order("[launch]\n", "[contract]\norder = \"any\"\n[launch]\n", "order is of collectives")]
#[case::too_large("values = [1, 3, 9]", "values = [4611686018427387904]", "more bytes than any device has")]
#[case::empty("values = [1, 3, 9]", "values = [0]", "every output of every rank is empty")]
fn wrong_declarations_say_where(#[case] from: &str, #[case] to: &str, #[case] says: &str) {
    let folder = Folder::new(&format!("tasks-declared-{}-{}", from.len(), says.len()));
    let spec = changed(&folder, &[("spec.toml", from, to)]);
    let (code, text) = run(&["validate", "--list", "--spec", &spec]);
    assert!(code == Some(2) && text.contains(says) && text.contains("spec.toml:"), "{code:?}, no `{says}` in {text}");
}

/// If this fails, a case id that the task does not know is taken for another case.
#[rstest]
#[case::missing("all_reduce_rms_norm/one_shot_norm:bf16,task:w=2:tokens=3", "hidden= must be given")]
#[case::unknown("all_reduce_rms_norm/one_shot_norm:bf16,task:w=2:tokens=3:hiden=64", "unknown key `hiden`: did you mean `hidden`?")]
#[case::per_rank("all_reduce_rms_norm/one_shot_norm:bf16,task:w=2:tokens=3/4:hidden=64", "(per_rank = true)")]
#[case::algorithm(
    "all_reduce_rms_norm/two_shot_norm:bf16,task:w=2:tokens=3:hidden=64",
    "unknown algorithm `two_shot_norm` of the task all_reduce_rms_norm"
)]
fn unknown_cases_are_refused(#[case] id: &str, #[case] says: &str) {
    let (code, text) = run(&["validate", "--replay", id, "--spec", &example("spec.toml").display().to_string()]);
    assert!(code == Some(2) && text.contains(says), "{code:?} {text}");
}

/// If this fails, mutants of a fused kernel are not made or not caught.
#[test]
fn mutants_of_a_fused_kernel_are_caught() {
    let (code, text) = run(&["mutants", "--only", "st.release.sys", "--spec", &example("spec.toml").display().to_string()]);
    assert!(code == Some(0) && text.contains("synchronisation mutants: 12 of 13 caught"), "{text}");
}
