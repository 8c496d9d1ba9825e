//! What a change can affect: a table from paths to tests and steps.
//!
//! [`select`] is a function of the list of changed files and of nothing else: not of a commit, the date or luck. What the table does not know runs everything.

use std::{collections::BTreeSet, fmt};

use glob::{MatchOptions, Pattern};

/// A step of `cargo xtask test`, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// rustfmt.
    Formatting,
    /// clippy.
    Lints,
    /// Unit and integration tests.
    Tests,
    /// Examples in documentation.
    Examples,
    /// The Python package: its wheel, types and tests, and the examples in Python.
    Python,
    /// Whether the PTX is what its sources compile to.
    Ptx,
    /// The same of `examples/own_kernel`.
    OwnPtx,
    /// Parts of documents that are made from code and records.
    Documents,
    /// Records that rest on code which has changed since.
    Records,
    /// Sizes and contents of tracked files.
    Tidiness,
    /// What crates.io would get.
    Archives,
    /// Licences, sources and duplicates of dependencies, by `deny.toml`.
    Dependencies,
}

impl Step {
    /// All of them, in order.
    pub const ALL: [Step; 12] = [
        Step::Formatting,
        Step::Lints,
        Step::Tests,
        Step::Examples,
        Step::Python,
        Step::Ptx,
        Step::OwnPtx,
        Step::Documents,
        Step::Records,
        Step::Tidiness,
        Step::Archives,
        Step::Dependencies,
    ];

    /// Those that take seconds. They run for every change.
    const CHEAP: [Step; 4] = [Step::Formatting, Step::Documents, Step::Records, Step::Tidiness];
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::Formatting => "formatting",
            Step::Lints => "lints",
            Step::Tests => "tests",
            Step::Examples => "documentation examples",
            Step::Python => "the Python package",
            Step::Ptx => "PTX drift",
            Step::OwnPtx => "PTX drift of the own kernel",
            Step::Documents => "generated parts of documents",
            Step::Records => "records",
            Step::Tidiness => "tidiness",
            Step::Archives => "archives",
            Step::Dependencies => "licences and sources of dependencies",
        })
    }
}

/// What a rule has run.
#[derive(Clone, Copy, Debug)]
enum Run {
    /// Every test and every step.
    Everything,
    /// All tests of a package and of those that depend on it, with lints and examples.
    Dependents(&'static str),
    /// All tests of a package, with lints and examples.
    Package(&'static str),
    /// Tests in a package's test target, by nextest's filter expression: all of them if it is empty.
    Target { package: &'static str, target: &'static str, only: &'static str },
    /// The test target that the changed file is, `crates/FOLDER/tests/TARGET.rs` or `tests/TARGET.rs`, or all of its package if it is a part of several.
    OwnTarget,
    /// What [`KERNELS`] has.
    Kernels,
    /// A step, beside the cheap ones.
    Step(Step),
}

/// Files, and what a change of them has run.
struct Rule {
    /// Paths under the root: `*` is within a folder, `**` any number of folders.
    paths: &'static [&'static str],
    runs: &'static [Run],
    /// What they may affect and does not run, and why; empty if there is none.
    leaves: &'static str,
    /// Why that is all that these files can affect.
    why: &'static str,
}

const fn target(package: &'static str, target: &'static str) -> Run {
    Run::Target { package, target, only: "" }
}

/// Unit tests.
const LIB: &str = "lib";

/// Tests that judge kernels: every entry on the emulator, the plans that launch them, each algorithm's smoke list, and what mutants and their cases must be.
const KERNELS: &[Run] = &[
    target("passmuster-harness", "kernels"),
    target("passmuster-harness", "plans"),
    target("passmuster-harness", "products"),
    Run::Target { package: "passmuster-harness", target: "emulator", only: "test(/smoke_list/)" },
    Run::Target { package: "passmuster-harness", target: "mutants", only: "test(/^every_/) | test(/^planted_mutants_are_run/)" },
    Run::Step(Step::Ptx),
];

/// What a change of one kernel may affect and does not run. It takes most of the time of everything.
const NOT_OF_KERNELS: &str = "tests that run kernels to try something else (schedules, streams, processes, hangs), and mutants of kernels: \
                              the emulator's record of mutants must be made again for a kernel, and has all of them";

/// Whether what a document shows is there: blocks, commands and their options, parts of specifications.
const SHOWN: Run = Run::Target { package: "passmuster", target: "pages", only: "not test(/^commands_print/)" };

/// The first rule that has a file's path decides.
const RULES: &[Rule] = &[
    // The Python package, whose README is a document, too.
    Rule {
        paths: &["python/**", "examples/python/**", "examples/grade/**"],
        runs: &[Run::Step(Step::Python), target("xtask", "documents")],
        leaves: "",
        why: "a package that nothing here depends on, and its examples",
    },
    // Documents.
    Rule {
        paths: &["docs/reference/*.md"],
        runs: &[
            target("xtask", "documents"),
            target("passmuster-harness", "documents"),
            target("passmuster-harness", LIB),
            target("passmuster-bench", "bench"),
            target("passmuster", "pages"),
        ],
        leaves: "",
        why: "unit tests compare them with the code, and their commands are run",
    },
    Rule {
        paths: &["docs/reference/specification.schema.json"],
        runs: &[target("passmuster", "specification"), target("xtask", "documents")],
        leaves: "",
        why: "a test compares it with the code",
    },
    Rule {
        paths: &["docs/report.html"],
        runs: &[target("passmuster-bench", "browser"), target("xtask", "documents")],
        leaves: "",
        why: "a browser opens it",
    },
    Rule {
        paths: &["README.md"],
        runs: &[target("xtask", "documents"), target("passmuster-bench", "records"), target("passmuster", "pages")],
        leaves: "",
        why: "a test looks for its plot, and its commands are run",
    },
    Rule {
        paths: &["docs/tutorial-algorithm.md"],
        runs: &[target("xtask", "documents"), SHOWN, target("own_kernel", "tutorial")],
        leaves: "",
        why: "it is followed from an empty folder",
    },
    Rule {
        paths: &["docs/emulator/hangs.md"],
        runs: &[target("xtask", "documents"), target("passmuster-harness", "hangs"), SHOWN],
        leaves: "",
        why: "a test compares its report with a hang",
    },
    Rule {
        paths: &["docs/tutorial-foreign-kernel.md", "docs/emulator/races.md"],
        runs: &[target("xtask", "documents"), target("passmuster-harness", "documents"), target("passmuster", "pages")],
        leaves: "",
        why: "their commands are run",
    },
    Rule {
        paths: &["crates/*/README.md"],
        runs: &[target("xtask", "documents"), Run::Step(Step::Examples), Run::Step(Step::Archives)],
        leaves: "",
        why: "they are the heads of crates, and their examples run",
    },
    Rule {
        paths: &["docs/**", "**/*.md", "LICENSE-*"],
        runs: &[target("xtask", "documents"), target("passmuster-harness", "documents"), SHOWN],
        leaves: "",
        why: "people read them; links, readings of the ISA and options of commands are checked",
    },
    // Kernels. A test of each algorithm's smoke list runs them.
    Rule {
        paths: &["kernels/common/**", "kernels/conformance/**", "kernels/ptx/conformance/**"],
        runs: &[Run::Dependents("passmuster-kernels"), Run::Dependents("passmuster-harness"), Run::Step(Step::Ptx)],
        leaves: "",
        why: "all kernels include or follow them, and every case is filled and compared by them",
    },
    Rule {
        paths: &["kernels/*/multimem*", "kernels/ptx/*/multimem*"],
        runs: &[Run::Kernels, Run::Target { package: "passmuster-harness", target: "emulator", only: "test(/multimem/)" }],
        leaves: NOT_OF_KERNELS,
        why: "a kernel runs in the cases of its algorithm, and those of multimem have lists of their own",
    },
    Rule {
        paths: &["kernels/*/*.cu", "kernels/*/*.cuh", "kernels/ptx/**"],
        runs: &[Run::Kernels],
        leaves: NOT_OF_KERNELS,
        why: "a kernel runs in the cases of its algorithm",
    },
    // Fixtures.
    Rule {
        paths: &["fixtures/records/ledger.json", "fixtures/records/litmus.json"],
        runs: &[target("passmuster-harness", LIB), target("passmuster-harness", "ledger")],
        leaves: "",
        why: "unit tests read them",
    },
    Rule {
        paths: &["fixtures/records/**"],
        runs: &[
            target("passmuster-bench", "browser"),
            target("passmuster-bench", "records"),
            target("passmuster", "bench"),
            target("passmuster", "records"),
            target("passmuster", "upkeep"),
            target("passmuster-cli", LIB),
            target("xtask", "documents"),
        ],
        leaves: "",
        why: "reports are made from them",
    },
    Rule {
        paths: &["fixtures/mutants/ptx/**"],
        runs: &[
            Run::Kernels,
            Run::Target { package: "passmuster-harness", target: "mutants", only: "test(/^value_mutants/)" },
            target("passmuster-ptx", LIB),
        ],
        leaves: NOT_OF_KERNELS,
        why: "they are made from a kernel and the bug that is planted in it",
    },
    Rule {
        paths: &["fixtures/mutants/**"],
        runs: &[Run::Dependents("passmuster-kernels"), target("passmuster-ptx", LIB), Run::Step(Step::Ptx)],
        leaves: "",
        why: "they are planted bugs",
    },
    Rule {
        paths: &["fixtures/manifests/**"],
        runs: &[target("passmuster-harness", "documents"), target("passmuster", "require")],
        leaves: "",
        why: "a test compares them with the lists",
    },
    Rule {
        paths: &["fixtures/waivers.toml", "fixtures/judge-equivalents.toml"],
        runs: &[Run::Dependents("passmuster-harness")],
        leaves: "",
        why: "verdicts depend on it",
    },
    Rule {
        paths: &["fixtures/readable/**"],
        runs: &[target("passmuster", "readable")],
        leaves: "",
        why: "each is a wrong input, with what is said of it",
    },
    Rule { paths: &["fixtures/tuning/**"], runs: &[Run::Dependents("passmuster-kernels")], leaves: "", why: "`auto` chooses by it" },
    // Kernels from elsewhere.
    Rule {
        paths: &["museum/**"],
        runs: &[target("passmuster", "museum"), target("passmuster", "pages"), Run::Step(Step::Ptx)],
        leaves: "",
        why: "each entry is a test, and documents show what is said of some",
    },
    Rule {
        paths: &["examples/foreign/**"],
        runs: &[
            target("passmuster-harness", "foreign"),
            target("passmuster", "specification"),
            target("passmuster", "elsewhere"),
            target("passmuster", "inspect"),
            target("passmuster", "pages"),
            Run::Step(Step::Ptx),
        ],
        leaves: "",
        why: "specifications and kernels that tests judge",
    },
    Rule {
        paths: &["examples/tasks/**"],
        runs: &[target("passmuster", "tasks"), target("passmuster", "specification"), target("passmuster", "pages"), Run::Step(Step::Ptx)],
        leaves: "",
        why: "specifications and kernels that tests judge",
    },
    Rule {
        paths: &["examples/own_kernel/**"],
        runs: &[Run::Package("own_kernel"), Run::Step(Step::OwnPtx)],
        leaves: "",
        why: "a crate that nothing depends on",
    },
    Rule { paths: &["peers/**"], runs: &[target("passmuster", "peers")], leaves: "", why: "recipes of other projects' kernels" },
    Rule {
        paths: &["fuzz/corpus/ptx/**"],
        runs: &[target("passmuster-harness", "ptx_input"), target("passmuster-ptx", LIB)],
        leaves: "",
        why: "a test parses what fuzzing found",
    },
    Rule {
        paths: &["fuzz/corpus/frames/**"],
        runs: &[target("passmuster-bootstrap", "frames")],
        leaves: "",
        why: "a test reads what fuzzing found",
    },
    Rule { paths: &["fuzz/**"], runs: &[], leaves: "", why: "a workspace of its own, which needs a nightly compiler" },
    // Tests alone.
    Rule {
        paths: &["crates/harness/tests/occupancy/**", "crates/harness/tests/rounds/**"],
        runs: &[Run::Package("passmuster-harness"), Run::Package("passmuster-cuda")],
        leaves: "",
        why: "tests of two crates include them",
    },
    Rule {
        paths: &["tests/*.rs", "tests/commands/*.rs"],
        runs: &[Run::OwnTarget, Run::Step(Step::Lints)],
        leaves: "",
        why: "nothing depends on a test",
    },
    Rule { paths: &["tests/**"], runs: &[Run::Package("passmuster")], leaves: "", why: "several tests may include them" },
    Rule { paths: &["crates/*/tests/**"], runs: &[Run::OwnTarget, Run::Step(Step::Lints)], leaves: "", why: "nothing depends on a test" },
    Rule { paths: &["xtask/tests/**"], runs: &[Run::Package("xtask")], leaves: "", why: "nothing depends on a test" },
    Rule {
        paths: &["crates/emulator/litmus/**"],
        runs: &[Run::Dependents("passmuster-emulator")],
        leaves: "",
        why: "litmus tests of several crates",
    },
    Rule { paths: &["crates/harness/benches/**"], runs: &[Run::Step(Step::Lints)], leaves: "", why: "nothing runs benchmarks but people" },
    // Crates.
    Rule {
        paths: &["crates/bootstrap/**"],
        runs: &[Run::Dependents("passmuster-bootstrap")],
        leaves: "",
        why: "a crate, and what depends on it",
    },
    Rule { paths: &["crates/ptx/**"], runs: &[Run::Dependents("passmuster-ptx")], leaves: "", why: "a crate, and what depends on it" },
    Rule {
        paths: &["crates/emulator/**"],
        runs: &[Run::Dependents("passmuster-emulator")],
        leaves: "",
        why: "a crate, and what depends on it",
    },
    Rule {
        paths: &["crates/plan/**"],
        runs: &[Run::Dependents("passmuster-plan"), Run::Step(Step::Ptx), Run::Step(Step::OwnPtx)],
        leaves: "",
        why: "a crate, what depends on it, and the kernels' headers that it writes",
    },
    Rule {
        paths: &["crates/kernels/**"],
        runs: &[Run::Dependents("passmuster-kernels"), Run::Step(Step::Ptx), Run::Step(Step::OwnPtx)],
        leaves: "",
        why: "a crate, what depends on it, and what its kernels compile to",
    },
    Rule { paths: &["crates/cuda/**"], runs: &[Run::Dependents("passmuster-cuda")], leaves: "", why: "a crate, and what depends on it" },
    Rule {
        paths: &["crates/harness/**"],
        runs: &[Run::Dependents("passmuster-harness"), Run::Step(Step::Python)],
        leaves: "",
        why: "a crate, and what depends on it",
    },
    Rule { paths: &["crates/bench/**"], runs: &[Run::Dependents("passmuster-bench")], leaves: "", why: "a crate, and what depends on it" },
    Rule {
        paths: &[
            "crates/cli/src/upkeep/kernels.rs",
            "crates/cli/src/upkeep/kernels/**",
            "crates/cli/src/compiler/**",
            "crates/cli/src/compile.rs",
            "crates/cli/cuda-requirements.txt",
        ],
        runs: &[Run::Dependents("passmuster-cli"), Run::Step(Step::Ptx), Run::Step(Step::OwnPtx)],
        leaves: "",
        why: "what compiles the kernels",
    },
    Rule {
        paths: &["crates/cli/**"],
        runs: &[Run::Dependents("passmuster-cli"), Run::Step(Step::Python)],
        leaves: "",
        why: "a crate, what depends on it, and the command in the Python package",
    },
    Rule { paths: &["src/**"], runs: &[Run::Dependents("passmuster")], leaves: "", why: "the front door, and what depends on it" },
    Rule { paths: &["action.yml", ".ci/action"], runs: &[target("passmuster", "action")], leaves: "", why: "a test runs the script" },
    Rule { paths: &["deny.toml"], runs: &[Run::Step(Step::Dependencies)], leaves: "", why: "cargo-deny reads it" },
    Rule { paths: &[".github/**"], runs: &[target("xtask", "documents")], leaves: "", why: "its host reads them" },
    // What nothing here can test.
    Rule { paths: &[".gitattributes", ".gitignore"], runs: &[target("xtask", "tree")], leaves: "", why: "git and its hosts read them" },
    // What builds and runs the tests.
    Rule {
        paths: &["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "rustfmt.toml", ".cargo/**", ".config/**", ".ci/**", "xtask/**"],
        runs: &[Run::Everything],
        leaves: "",
        why: "all tests are built or run by them",
    },
];

/// What is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Why everything runs, if it does. The other fields say the same then.
    pub everything: Option<String>,
    /// Which steps run.
    pub steps: BTreeSet<Step>,
    /// nextest's filter expressions, of which a test matches one.
    pub filters: BTreeSet<String>,
    /// Arguments by which cargo builds what the filters need; none if that is all test targets of the workspace.
    pub targets: BTreeSet<String>,
    /// The files whose PTX is compiled again; of the rest hashes are compared. Empty with `everything`: all PTX is compiled.
    pub compiled: BTreeSet<String>,
    /// What the change may affect and does not run, and why.
    pub leaves: BTreeSet<&'static str>,
}

impl Selection {
    /// Everything, for this reason.
    pub fn everything(why: impl Into<String>) -> Selection {
        Selection {
            everything: Some(why.into()),
            steps: Step::ALL.into(),
            filters: BTreeSet::new(),
            targets: BTreeSet::new(),
            compiled: BTreeSet::new(),
            leaves: BTreeSet::new(),
        }
    }

    /// nextest's one filter expression.
    pub fn filter(&self) -> String {
        self.filters.iter().map(String::as_str).collect::<Vec<_>>().join(" | ")
    }

    /// The steps that do not run.
    pub fn left_out(&self) -> Vec<Step> {
        Step::ALL.into_iter().filter(|step| !self.steps.contains(step)).collect()
    }
}

/// What a change of these files, paths under the root, can affect.
pub fn select(changed: &[String]) -> Selection {
    if changed.is_empty() {
        return Selection::everything("no file differs from the base");
    }
    let mut selection = Selection {
        everything: None,
        steps: Step::CHEAP.into(),
        filters: BTreeSet::new(),
        targets: BTreeSet::new(),
        compiled: BTreeSet::new(),
        leaves: BTreeSet::new(),
    };
    let mut narrow = true;
    for file in changed {
        let Some(rule) = rule(file) else {
            return Selection::everything(format!("the map of xtask/src/test/affected.rs does not know {file}"));
        };
        selection.leaves.extend(Some(rule.leaves).filter(|leaves| !leaves.is_empty()));
        let runs = rule.runs.iter().flat_map(|run| if matches!(run, Run::Kernels) { KERNELS } else { std::slice::from_ref(run) });
        for run in runs {
            match *run {
                Run::Kernels => unreachable!("it was replaced by what it stands for"),
                Run::Everything => return Selection::everything(format!("{file}: {}", rule.why)),
                Run::Dependents(package) => {
                    selection.filters.insert(format!("rdeps({package})"));
                    selection.steps.extend([Step::Lints, Step::Examples, Step::Archives]);
                    narrow = false;
                }
                Run::Package(package) => {
                    selection.filters.insert(format!("package({package})"));
                    selection.steps.extend([Step::Lints, Step::Examples]);
                    narrow = false;
                }
                Run::Target { package, target, only } => selection.insert(package, target, only),
                Run::OwnTarget => match own_target(file) {
                    Some((package, target)) => selection.insert(package, target, ""),
                    None => return Selection::everything(format!("{file} is of no package that the map knows")),
                },
                Run::Step(step) => {
                    selection.steps.insert(step);
                    if step == Step::Ptx {
                        selection.compiled.insert(file.clone());
                    }
                }
            }
        }
    }
    if !narrow {
        selection.targets.clear();
    }
    if !selection.filters.is_empty() {
        selection.steps.insert(Step::Tests);
    }
    selection
}

impl Selection {
    fn insert(&mut self, package: &str, target: &str, only: &str) {
        let (of_target, arguments) = match target {
            LIB => ("kind(lib)".to_owned(), vec!["--lib".to_owned()]),
            "bin" => ("kind(bin)".to_owned(), vec!["--bins".to_owned()]),
            "" => ("all()".to_owned(), vec!["--tests".to_owned()]),
            _ => (format!("binary(={target})"), vec![format!("--test={target}")]),
        };
        let only = if only.is_empty() { String::new() } else { format!(" & ({only})") };
        self.filters.insert(format!("package(={package}) & {of_target}{only}"));
        self.targets.extend(arguments);
    }
}

/// The rule that decides what a file affects.
fn rule(file: &str) -> Option<&'static Rule> {
    let options = MatchOptions { require_literal_separator: true, ..MatchOptions::default() };
    let matches = |pattern: &&str| Pattern::new(pattern).expect("the table's patterns are right").matches_with(file, options);
    RULES.iter().find(|rule| rule.paths.iter().any(matches))
}

/// The package and the test target of a file in `crates/FOLDER/tests/`; an empty target if several may include the file.
fn own_target(file: &str) -> Option<(&'static str, &str)> {
    if let Some(rest) = file.strip_prefix("tests/") {
        let rest = rest.strip_prefix("commands/").unwrap_or(rest);
        return Some(("passmuster", rest.strip_suffix(".rs").unwrap_or("")));
    }
    let (folder, rest) = file.strip_prefix("crates/")?.split_once("/tests/")?;
    let package = match folder {
        "bench" => "passmuster-bench",
        "bootstrap" => "passmuster-bootstrap",

        "cuda" => "passmuster-cuda",
        "emulator" => "passmuster-emulator",
        "harness" => "passmuster-harness",
        "kernels" => "passmuster-kernels",
        "plan" => "passmuster-plan",
        "ptx" => "passmuster-ptx",
        _ => return None,
    };
    Some((package, rest.strip_suffix(".rs").filter(|name| !name.contains('/')).unwrap_or("")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(files: &[&str]) -> Selection {
        select(&files.iter().map(|&file| file.to_owned()).collect::<Vec<_>>())
    }

    fn filters(files: &[&str]) -> String {
        selected(files).filter()
    }

    #[test]
    fn documents_run_documents_tests() {
        let selection = selected(&["docs/emulator/mutants.md", "ARCHITECTURE.md"]);
        let expected = "package(=passmuster) & binary(=pages) & (not test(/^commands_print/)) | package(=passmuster-harness) & binary(=documents) \
                        | package(=xtask) & binary(=documents)";
        assert_eq!(selection.filter(), expected);
        assert_eq!(selection.targets.iter().collect::<Vec<_>>(), ["--test=documents", "--test=pages"]);
        assert_eq!(selection.steps, [Step::Formatting, Step::Tests, Step::Documents, Step::Records, Step::Tidiness].into());
        assert_eq!(
            selection.left_out(),
            [Step::Lints, Step::Examples, Step::Python, Step::Ptx, Step::OwnPtx, Step::Archives, Step::Dependencies]
        );
    }

    #[test]
    fn a_kernel_runs_its_tests() {
        let files =
            ["fixtures/mutants/ptx/value_08_tail_zero.ptx", "kernels/all_reduce/two_shot.cu", "kernels/ptx/all_reduce/two_shot.ptx"];
        let selection = selected(&files);
        for wanted in ["package(=passmuster-harness) & binary(=kernels)", "binary(=emulator) & (test(/smoke_list/)", "binary(=mutants)"] {
            assert!(selection.filter().contains(wanted), "{}", selection.filter());
        }
        assert!(selection.targets.contains("--test=kernels") && !selection.filter().contains("rdeps"));
        assert_eq!(selection.compiled, files.map(str::to_owned).into());
        assert!(!selection.steps.contains(&Step::Lints) && !selection.filter().contains("test(/multimem/)"));
        assert_eq!(selection.leaves, [NOT_OF_KERNELS].into());
        assert!(filters(&["kernels/all_gather/multimem.cu"]).contains("test(/multimem/)"));
    }

    #[test]
    fn a_shared_header_runs_dependents() {
        let selection = selected(&["kernels/common/signals.cuh"]);
        assert_eq!(selection.filter(), "rdeps(passmuster-harness) | rdeps(passmuster-kernels)");
        assert!(selection.targets.is_empty() && selection.steps.contains(&Step::Ptx));
    }

    #[test]
    fn a_crate_runs_its_dependents() {
        let selection = selected(&["crates/emulator/src/races/mod.rs", "docs/emulator/races.md"]);
        assert!(selection.filter().contains("rdeps(passmuster-emulator)"));
        // With whole packages all test targets are built: what the documents need is among them.
        assert!(selection.targets.is_empty());
        assert!([Step::Lints, Step::Examples, Step::Archives].iter().all(|step| selection.steps.contains(step)));
    }

    #[test]
    fn a_test_runs_itself() {
        assert_eq!(filters(&["crates/harness/tests/streams.rs"]), "package(=passmuster-harness) & binary(=streams)");
        assert_eq!(filters(&["crates/bench/tests/snapshots/a.snap"]), "package(=passmuster-bench) & all()");
    }

    #[test]
    fn unknown_files_run_everything() {
        let selection = selected(&["docs/soak.md", "crates/unheard_of/src/lib.rs"]);
        assert!(selection.everything.unwrap().contains("crates/unheard_of/src/lib.rs"));
        assert_eq!(selection.steps, Step::ALL.into());
        assert!(selected(&["crates/unheard_of/tests/a.rs"]).everything.is_some());
        assert!(selected(&["something_new"]).everything.is_some());
    }

    #[test]
    fn no_change_runs_everything() {
        assert!(selected(&[]).everything.is_some());
        assert!(selected(&["Cargo.lock"]).everything.is_some());
    }

    #[test]
    fn order_of_files_is_irrelevant() {
        let files = ["crates/cli/src/lib.rs", "kernels/all_gather/ll.cu", "museum/README.md", "examples/foreign/reduce_push/spec.toml"];
        let mut backwards = files;
        backwards.reverse();
        assert_eq!(selected(&files), selected(&backwards));
    }
}
