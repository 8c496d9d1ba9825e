//! The command line as its users see it: what is printed and where, what is refused and how, and the exit statuses.

mod folder;

use std::{
    fs,
    io::pipe,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use passmuster::conformance::{Status, report::Record};

use folder::Folder;
use rstest::rstest;

fn passmuster(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_passmuster"));
    command.args(arguments).current_dir(root()).env_remove("GITHUB_ACTIONS").env_remove("GITHUB_STEP_SUMMARY");
    command
}

fn run(arguments: &[&str]) -> Output {
    passmuster(arguments).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

const CASE: &str = "all_reduce/two_shot:bf16,sum:w=2:n=24";
const BUG: [&str; 4] =
    ["--ptx", "examples/foreign/one_shot_by_value/kernel.bug.ptx", "--spec", "examples/foreign/one_shot_by_value/spec.toml"];
const WITH_BUG: &str = "all_reduce/one_shot_by_value:bf16,sum:w=4:n=1040";

/// If this fails, a shell completes nothing, or refuses the script; or the manual page lacks a command.
#[rstest]
#[case("bash", "complete -F _passmuster")]
#[case("zsh", "#compdef passmuster")]
#[case("fish", "complete -c passmuster")]
#[case("man", "passmuster\\-validate(1)")]
fn completions_are_of_all_commands(#[case] of: &str, #[case] says: &str) {
    let output = run(&["completions", of]);
    let script = text(&output.stdout);
    assert!(output.status.success() && script.contains(says) && script.contains("reveal"), "{script}");
    if of == "bash" {
        let folder = Folder::new("completions");
        let file = folder.write("passmuster.bash", &script);
        assert!(Command::new("bash").args(["-n", &file]).status().unwrap().success());
    }
}

/// If this fails, `... | head` ends in a panic or an error message.
#[test]
fn a_reader_that_goes_ends_a_command_quietly() {
    let bench = "fixtures/records/h100x4-bench-broadcast.json";
    let printing: [&[&str]; 10] = [
        &["choose", "all_reduce"],
        &["validate", "merge", "--list"],
        &["validate", "--plan", CASE],
        &["validate", CASE],
        &["reveal-order", "all_reduce/one_shot"],
        &["report", bench],
        &["inspect", "kernels/ptx/all_reduce/two_shot.ptx"],
        &["--help"],
        &["bench", "--help"],
        &["--version"],
    ];
    for arguments in printing {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let output = passmuster(arguments).stdout(writer).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(141), ""), "{arguments:?}");
    }
    // Standard error in the same pipe, as with `2>&1 | head`.
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let mut both = passmuster(&["validate", "all_reduce/two_shot:bf16,sum", "--limit", "2"]);
    assert_eq!(both.stdout(writer.try_clone().unwrap()).stderr(writer).status().unwrap().code(), Some(141));
}

/// If this fails, a run is lost because nobody read what it printed, or a finding is not told for that.
#[test]
fn what_a_run_came_to_stays_where_its_reader_has_gone() {
    let folder = Folder::new("gone");
    let json = folder.file("run.json");
    let arguments = [&["validate"][..], &BUG, &["--shrink", "0", "--json", &json, WITH_BUG]].concat();
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let status = passmuster(&arguments).stdout(writer).status().unwrap();
    let record: Record = serde_json::from_str(&folder.read("run.json")).unwrap();
    assert_eq!((status.code(), record.cases[0].status), (Some(1), Status::Fail));
}

/// If this fails, a full disk goes unnoticed, or ends in a panic.
#[test]
fn output_that_cannot_be_written_is_an_error() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = passmuster(&["choose", "all_reduce"]).stdout(full).output().unwrap();
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.starts_with("error: cannot write to standard output: "), "{error}");
}

/// If this fails, somebody who mistypes a query is left alone with it.
#[test]
fn what_is_wrong_with_a_query_is_named() {
    for (query, said) in [
        ("smoek", "`smoek` is neither a list (smoke, merge, faults) nor a collective: the nearest is 'smoke'"),
        ("two_shto", "the nearest is '*/two_shot'"),
        ("all_reduce/two_shto", "no case has algorithm `two_shto`: the nearest is two_shot"),
        ("all_reduce/*:bf61", "no case has dtype `bf61`: the nearest is bf16"),
        ("*:*,*:w=99", "no case has w=99: the nearest are 72, 64, 32"),
        ("all_reduec/*", "no case has collective `all_reduec`: the nearest is all_reduce"),
        ("all_reduce/*:*,*:wrold=3", "unknown key `wrold` in query"),
        ("all_gather/*:*,max", "no case has both collective all_gather and operator max: with collective all_gather, expected one of copy"),
    ] {
        let output = run(&["validate", query]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{query}: {error}");
        assert!(error.contains(said) && error.lines().count() == 1, "{query}: {error}");
    }
}

/// If this fails, a run starts without a word, or ends without its verdict.
#[test]
fn a_run_says_what_comes_and_ends_with_its_verdict() {
    let output = run(&["validate", "all_gather/push:bf16,copy:w=2", "--limit", "3"]);
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}\n{error}");
    assert_eq!(error, "3 cases on the emulator: a few seconds\n");
    assert!(out.lines().last().unwrap().starts_with("3 passed, 0 findings in "), "{out}");
    let names: Vec<&str> = out.lines().filter(|line| line.starts_with("rests on `")).map(|line| line.split('`').nth(1).unwrap()).collect();
    assert!(!names.is_empty() && names.is_sorted_by(|a, b| a < b), "one line a name: {out}");
    let all = run(&["validate", "all_gather/push:bf16,copy:w=2", "--limit", "3", "--list-waived"]);
    let waived = text(&all.stdout).lines().filter(|line| line.starts_with("waived by `")).count();
    assert!(waived > names.len(), "{}", text(&all.stdout));
}

/// If this fails, a kernel with one bug prints pages, or the same both to standard output and to standard error.
#[rstest]
#[case("all_gather_push", "race, ")]
#[case("one_shot_by_value", "elements wrong")]
fn one_bug_fits_on_one_page(#[case] kernel: &str, #[case] said: &str) {
    let [ptx, spec] = ["kernel.bug.ptx", "spec.toml"].map(|file| format!("examples/foreign/{kernel}/{file}"));
    let line = ["validate", "smoke", "--ptx", &ptx, "--spec", &spec, "--shrink", "1"];
    let output = run(&line);
    let (told, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(told.lines().count() <= 40, "{} lines:\n{told}", told.lines().count());
    assert!(told.lines().take(5).any(|line| line.contains(said)) && told.contains("\n  also in "), "{told}");
    assert!(!errors.contains(&format!("/{kernel}:")), "findings on standard error, too: {errors}");
    let all = text(&run(&[&line[..], &["--verbose"]].concat()).stdout);
    assert!(all.lines().count() > told.lines().count() && !all.contains("also in "), "{all}");
}

/// If this fails, a release that was dropped passes without a word under the default profile.
#[test]
fn run_names_assumptions_it_rests_on() {
    let folder = Folder::new("assumed");
    let path = folder.file("record.json");
    let arguments = ["validate", "all_gather/push:bf16,copy:w=2", "--limit", "3", "--json", &path];
    let output = run(&arguments);
    let out = text(&output.stdout);
    let lines: Vec<&str> = out.lines().rev().take(12).collect();
    assert!(lines.iter().any(|line| line.starts_with("rests on `boundary`, ")), "{out}");
    let record: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let assumed = record["assumed"].as_array().unwrap();
    let boundary = assumed.iter().find(|assumed| assumed["assumption"] == "boundary").unwrap();
    let at = boundary["places"][0]["at"].as_str().unwrap();
    assert!(at.split(" and then ").count() == 2 && out.contains(&format!("  {at}: ")), "{at}: {out}");
    assert!(boundary["times"].as_u64() > Some(0) && boundary["cases"].as_u64() > Some(0));
    assert_eq!(run(&[&arguments[..], &["--fail-on-waived"]].concat()).status.code(), Some(1));
    let refused = run(&[&arguments[..], &["--fail-on-waived", "--profile", "off"]].concat());
    assert_eq!(refused.status.code(), Some(0), "{}", text(&refused.stdout));
}

/// If this fails, nobody learns which code of a kernel the cases leave out, or a file that was asked for lacks it.
#[test]
fn coverage_is_printed_and_written() {
    let folder = Folder::new("coverage");
    let (record, lcov) = (folder.file("record.json"), folder.file("lcov.info"));
    let arguments = ["validate", "all_gather/push:bf16,copy:w=2", "--limit", "3"];
    let output = run(&[&arguments[..], &["--coverage", "--json", &record, "--lcov", &lcov]].concat());
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}");
    let row: Vec<&str> =
        out.lines().find(|line| line.starts_with("all_gather/push ") && line.contains('%')).unwrap().split_whitespace().collect();
    let record: serde_json::Value = serde_json::from_str(&fs::read_to_string(&record).unwrap()).unwrap();
    let module = record["coverage"].as_array().unwrap().iter().find(|of| of["module"] == "all_gather/push").unwrap();
    assert!(row.contains(&&*format!("{}/{}", module["entries"]["covered"], module["entries"]["all"])), "{row:?} {module}");
    assert!(module["instructions"]["covered"].as_u64() > Some(0) && module["edges"][0]["write"]["line"].as_u64() > Some(0), "{module}");
    assert!(fs::read_to_string(&lcov).unwrap().contains("SF:kernels/ptx/all_gather/push.ptx\n"));
    assert!(!text(&run(&arguments).stdout).contains("instructions"), "nobody asked for it");
    for part in [["--part", "1/2"], ["--launcher", "own"]] {
        let refused = run(&[&arguments[..], &["--coverage"], &part].concat());
        let error = text(&refused.stderr);
        assert!(refused.status.code() == Some(2) && error.contains("--coverage and --lcov are "), "{error}");
    }
}

/// If this fails, a synchronisation that no case comes to is called one that nothing needs.
#[test]
fn mutants_of_code_that_never_runs_are_not_reached() {
    let folder = Folder::new("not_reached");
    let kernel = fs::read_to_string(root().join("examples/foreign/all_gather_push/kernel.ptx")).unwrap();
    let never = "mov.u32 %r26, %ntid.x;\nsetp.ne.u32 %p15, %r26, 7;\n@%p15 bra $never;\nfence.acq_rel.sys;\n$never:\n";
    let edited = kernel.replace("%p<15>", "%p<16>").replacen("mov.u32 %r26, %ctaid.x;\n", &format!("{never}mov.u32 %r26, %ctaid.x;\n"), 1);
    assert!(edited.contains("%p<16>") && edited.contains("$never:"), "{kernel}");
    let (ptx, record) = (folder.file("kernel.ptx"), folder.file("record.json"));
    fs::write(&ptx, edited).unwrap();
    let of_kernel =
        ["mutants", "--spec", "examples/foreign/all_gather_push/spec.toml", "--ptx", &ptx, "--schedules", "1", "--json", &record];
    let outcomes = |only: &str| {
        let output = run(&[&of_kernel[..], &["--only", only]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let record: serde_json::Value = serde_json::from_str(&fs::read_to_string(&record).unwrap()).unwrap();
        let cases = record["cases"].as_array().unwrap();
        let told = cases.iter().map(|case| (case["not_reached"] == true, case["caught"] == true, case["tried"].as_u64() > Some(0)));
        (told.collect::<Vec<_>>(), text(&output.stdout))
    };
    let (fences, out) = outcomes("fence.acq_rel");
    assert!(!fences.is_empty() && fences.iter().all(|told| *told == (true, false, false)), "{fences:?}");
    assert!(out.contains(&format!("{} not reached: no case executes what they change", fences.len())), "{out}");
    let (barriers, _) = outcomes("bar.sync dropped");
    assert!(barriers.contains(&(false, true, true)) && barriers.iter().all(|(not_reached, ..)| !not_reached), "{barriers:?}");
}

/// If this fails, proptest talks to people who have never heard of it.
#[test]
fn the_search_for_a_smaller_case_is_quiet() {
    for shrink in ["1ms", "2s"] {
        let output = run(&[&["validate"][..], &BUG, &["--shrink", shrink, WITH_BUG]].concat());
        let said = (text(&output.stdout) + &text(&output.stderr)).to_lowercase();
        assert!(output.status.code() == Some(1) && !said.contains("proptest") && !said.contains("aborting"), "{said}");
        assert!(said.contains("0 passed, 1 finding (1 fail) in "), "{said}");
    }
}

/// If this fails, a world that a specification names is not in the table, and the run says that all is well.
#[test]
fn a_world_of_which_an_expression_fails_is_counted() {
    let folder = Folder::new("worlds");
    let spec = fs::read_to_string(root().join("examples/foreign/one_shot_by_value/spec.toml")).unwrap();
    let broken =
        spec.replace("worlds = [2, 4, 8]", "worlds = [2, 3]").replacen("[launch]\ngrid = \"", "[launch]\ngrid = \"0 / (3 - world) + ", 1);
    assert!(broken.contains("worlds = [2, 3]") && broken.contains("0 / (3 - world)"), "{spec}");
    let path = folder.file("spec.toml");
    fs::write(&path, broken).unwrap();
    let kernel = ["--ptx", "examples/foreign/one_shot_by_value/kernel.ptx", "--spec", &path];
    for list in ["smoke", "merge"] {
        let listed = text(&run(&[&["validate", list, "--list"][..], &kernel].concat()).stdout);
        assert_eq!(listed.lines().filter(|id| id.contains(":w=3:")).count(), 2, "one for each type: {listed}");
    }
    // In place of the whole list, what has a small call.
    let output = run(&[&["validate", "*:*,*:w=2,3:n=4,12,1040"][..], &kernel].concat());
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}\n{error}");
    let last = out.lines().last().unwrap();
    assert!(out.contains("0/1 s1") && last.contains(" passed, 2 not supported, 0 findings in "), "{out}");
    let of_three = run(&[&["validate", "*:*,*:w=3"][..], &kernel].concat());
    let out = text(&of_three.stdout);
    assert!(
        of_three.status.code() == Some(3) && out.starts_with("no case could run; ") && out.contains("division of 0 by zero in grid"),
        "{out}"
    );
}

/// If this fails, what is to be left out is judged, or a pattern that leaves out nothing goes unnoticed.
#[test]
fn except_leaves_out_what_a_pattern_selects() {
    let listed = |more: &[&str]| text(&run(&[&["validate", "smoke", "--list"][..], more].concat()).stdout);
    let (all, rest) = (listed(&[]), listed(&["--except", "*/two_shot:*,*:w=2,4"]));
    let left_out = |id: &&str| id.contains("/two_shot:") && (id.contains(":w=2:") || id.contains(":w=4:"));
    assert_eq!(rest.lines().collect::<Vec<_>>(), all.lines().filter(|id| !left_out(id)).collect::<Vec<_>>());
    assert!(rest.lines().count() < all.lines().count());
    for (except, said) in [("*:*,*", "it leaves no case of `smoke`"), ("*/two_shto:*,*", "no case has algorithm `two_shto`")] {
        let output = run(&["validate", "smoke", "--list", "--except", except]);
        let error = text(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(&format!("--except {except}")) && error.contains(said), "{error}");
    }
}

/// If this fails, one thing has two spellings, or a number means something else in one command than in another.
#[test]
fn options_are_spelled_and_measured_alike() {
    for line in [
        &["validate", "--list", "--memory", "1G", "--deadline", "2min", "--shrink", "500ms", CASE][..],
        &["validate", "--list", "--memory", "64MiB", "--deadline", "30", CASE],
        &["choose", "all_reduce", "--worlds", "2,4", "--bytes", "64K"],
        // An old spelling, in records and scripts.
        &["choose", "all_reduce", "--world", "4"],
        &["reveal-order", "all_reduce/one_shot", "--worlds", "2,3", "--count", "8"],
    ] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(0), "{line:?}: {}", text(&output.stderr));
    }
    for (line, said) in [
        (&["validate", "--limit", "0"][..], "'0' for '--limit"),
        (&["validate", "--memory", "1X"], "`1X` is no size: expected bytes, as in 4096, 64K, 16M or 1G"),
        (&["validate", "--deadline", "3 days"], "`3 days` is no duration: expected seconds"),
        (&["validate", "--wait-limit", "2000"], "`2000` has no unit: expected 2000ms or 2000s"),
        (&["mutants", "--limit", "0"], "'0' for '--limit"),
        (&["mutants", "--schedules", "0"], "'0' for '--schedules"),
        (&["bench", "--multimem", "bound"], "unexpected argument '--multimem'"),
        (&["test-gpu", "--profile", "ptx"], "unexpected argument '--profile'"),
    ] {
        let output = run(line);
        let error = text(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(said), "{line:?}: {error}");
    }
    let worlds = text(&run(&["reveal-order", "all_reduce/one_shot", "--worlds", "2,3", "--count", "8"]).stdout);
    assert!(worlds.contains("w=2, n=8") && worlds.contains("w=3, n=8"), "{worlds}");
}

/// If this fails, a command's help offers what does nothing there, or has two spellings.
#[test]
fn help_offers_what_works() {
    let help = |line: &[&str]| text(&run(&[line, &["--help"]].concat()).stdout);
    for line in [&["bench"][..], &["bench", "overlap"], &["test-gpu"]] {
        let help = help(line);
        assert!(!help.contains("--multimem") && !help.contains("--profile"), "{line:?}: {help}");
    }
    for line in [&["bench"][..], &["bench", "fsdp"], &["bench", "all_gather_matmul"], &["reveal-order"], &["choose"]] {
        let help = help(line);
        assert!(help.contains("--worlds") && !help.contains("--world "), "{line:?}: {help}");
    }
}

/// If this fails, examples are torn on a terminal of 80 columns.
#[test]
fn examples_fit_a_terminal() {
    for command in ["", "validate", "test-gpu", "bench", "reveal-order", "choose", "inspect", "mutants", "museum", "peers"] {
        let line: Vec<&str> = command.split_whitespace().chain(["--help"]).collect();
        let help = text(&passmuster(&line).env("COLUMNS", "200").output().unwrap().stdout);
        let examples = help.lines().skip_while(|line| *line != "Examples:");
        let long: Vec<&str> = examples.filter(|line| line.chars().count() > 80).collect();
        assert!(help.contains("Examples:") && long.is_empty(), "{command}: {long:?}");
    }
}

/// If this fails, GitHub shows nothing of a finding, or one finding breaks the page.
#[test]
fn findings_are_annotations_on_github() {
    let folder = Folder::new("github");
    let summary = folder.file("summary.md");
    fs::write(&summary, "before\n").unwrap();
    let arguments = [&["validate"][..], &BUG, &["--shrink", "0", WITH_BUG]].concat();
    let output = passmuster(&arguments).env("GITHUB_ACTIONS", "true").env("GITHUB_STEP_SUMMARY", &summary).output().unwrap();
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{out}");
    let annotations: Vec<&str> = out.lines().filter(|line| line.starts_with("::")).collect();
    let [annotation] = annotations[..] else { panic!("{out}") };
    let start = "::error title=fail all_reduce/one_shot_by_value%3Abf16%2Csum%3Aw=4%3An=1040,\
                 file=examples/foreign/one_shot_by_value/kernel.bug.ptx::reference: ";
    assert!(annotation.starts_with(start), "{annotation}");
    assert!(annotation.contains("(100 %25 of wrong elements fit)%0A") && annotation.contains("--replay 'all_reduce/one_shot_by_value:"));
    let page = folder.read("summary.md");
    assert!(
        page.starts_with("before\n### passmuster validate\n\n0 passed, 1 finding (1 fail) in ") && page.contains("| fail | <code>"),
        "{page}"
    );
    assert!(!text(&run(&arguments).stdout).contains("::error"), "annotations are for GitHub only");
}
