//! Which files judge, and which tests may notice that they are wrong.

use std::collections::BTreeMap;

use anyhow::Context;

use super::mutate;

/// A part of the judge.
pub(super) struct Target {
    /// Files, and folders that end with `/`.
    paths: &'static [&'static str],
    /// Tests that have to do with it. Which of them come to a mutant is traced.
    pub(super) suites: &'static [Suite],
}

/// Tests of one binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Suite {
    pub(super) package: &'static str,
    /// The file under `tests/`; the unit tests, if there is none.
    pub(super) test: Option<&'static str>,
}

const fn unit(package: &'static str) -> Suite {
    Suite { package, test: None }
}

const fn of(package: &'static str, test: &'static str) -> Suite {
    Suite { package, test: Some(test) }
}

/// The packages that have targets, and their folders.
pub(super) const PACKAGES: [(&str, &str); 2] = [("passmuster-emulator", "crates/emulator/"), ("passmuster-harness", "crates/harness/")];

const EMULATOR: &str = PACKAGES[0].0;
const HARNESS: &str = PACKAGES[1].0;

/// Every target.
pub(super) const TARGETS: [Target; 4] = [
    Target {
        paths: &["crates/emulator/src/numerics/"],
        suites: &[unit(EMULATOR), of(HARNESS, "numerics"), of(HARNESS, "ledger"), unit(HARNESS)],
    },
    Target {
        paths: &["crates/emulator/src/memory/", "crates/emulator/src/races/"],
        suites: &[
            unit(EMULATOR),
            of(EMULATOR, "litmus"),
            unit(HARNESS),
            of(HARNESS, "emulator"),
            of(HARNESS, "foreign"),
            of(HARNESS, "hangs"),
            of(HARNESS, "products"),
            of(HARNESS, "processes"),
        ],
    },
    Target {
        paths: &[
            "crates/harness/src/conformance/oracle.rs",
            "crates/harness/src/conformance/oracle/",
            "crates/harness/src/conformance/compare.rs",
            "crates/harness/src/conformance/compare/",
            "crates/harness/src/conformance/runner.rs",
            "crates/harness/src/conformance/runner/",
            "crates/harness/src/conformance/scenario.rs",
            "crates/harness/src/conformance/scenario/",
            "crates/harness/src/conformance/diagnosis.rs",
            "crates/harness/src/conformance/diagnosis/",
            "crates/harness/src/conformance/waivers.rs",
            "crates/harness/src/conformance/waivers/",
        ],
        suites: &[unit(HARNESS), of(HARNESS, "emulator"), of(HARNESS, "foreign"), of(HARNESS, "nodes")],
    },
    Target {
        paths: &[
            "crates/harness/src/emulator/schedule.rs",
            "crates/harness/src/emulator/schedule/",
            "crates/harness/src/emulator/strategy.rs",
            "crates/harness/src/emulator/strategy/",
        ],
        suites: &[
            unit(HARNESS),
            of(HARNESS, "emulator"),
            of(HARNESS, "forks"),
            of(HARNESS, "streams"),
            of(HARNESS, "foreign"),
            of(HARNESS, "fetches"),
            of(HARNESS, "hangs"),
            of(HARNESS, "nodes"),
            of(HARNESS, "processes"),
        ],
    },
];

/// A file of a target that judges nothing: text for people.
const LEFT_OUT: &str = "crates/harness/src/conformance/compare/display.rs";

/// The target that a file is of.
pub(super) fn of_file(path: &str) -> Option<&'static Target> {
    let is_within = |of: &&str| if of.ends_with('/') { path.starts_with(*of) } else { path == *of };
    let left_out = !path.ends_with(".rs") || path == LEFT_OUT;
    TARGETS.iter().find(|target| !left_out && target.paths.iter().any(is_within))
}

/// Files of targets, with their text, without those that only tests have.
///
/// # Errors
/// A file that is no Rust.
pub(super) fn that_judge(mut files: BTreeMap<String, String>) -> anyhow::Result<BTreeMap<String, String>> {
    let mut of_tests = Vec::new();
    for (file, text) in &files {
        let folder = file.trim_end_matches(".rs").trim_end_matches("/mod");
        let modules = mutate::modules_of_tests(text).with_context(|| file.clone())?;
        of_tests.extend(modules.into_iter().map(|module| format!("{folder}/{module}")));
    }
    let is_of = |file: &str, module: &str| file.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'));
    files.retain(|file, _| !of_tests.iter().any(|module| is_of(file, module)));
    Ok(files)
}

/// The package of a file, and its module there: `races::clock` of `crates/emulator/src/races/clock.rs`.
pub(super) fn module_of(path: &str) -> (&'static str, String) {
    let (package, folder) = PACKAGES.iter().find(|(_, folder)| path.starts_with(folder)).expect("every target is of a package");
    let within = path[folder.len()..].trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    (package, within.replace('/', "::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_targets() {
        let has = |path| of_file(path).is_some();
        assert!(has("crates/emulator/src/races/clock.rs") && has("crates/harness/src/conformance/diagnosis/numbers.rs"));
        assert!(!has("crates/emulator/src/lib.rs") && !has("crates/harness/src/conformance/compare/display.rs"));
    }

    /// If this fails, tests are mutated, or the judge is not.
    #[test]
    fn tests_do_not_judge() {
        let files = [
            ("a/mod.rs", "mod b; #[cfg(test)] mod c;"),
            ("a/b.rs", "#[cfg(test)] mod d;"),
            ("a/b/d.rs", ""),
            ("a/c.rs", ""),
            ("a/c/e.rs", ""),
        ];
        let files = files.into_iter().map(|(file, text)| (file.to_owned(), text.to_owned())).collect();
        assert_eq!(that_judge(files).unwrap().into_keys().collect::<Vec<_>>(), ["a/b.rs", "a/mod.rs"]);
    }

    #[test]
    fn modules_are_named() {
        assert_eq!(module_of("crates/emulator/src/races/mod.rs"), ("passmuster-emulator", "races".into()));
        assert_eq!(module_of("crates/harness/src/conformance/oracle.rs"), ("passmuster-harness", "conformance::oracle".into()));
    }

    /// If this fails, a target was moved and nobody mutates it.
    #[test]
    fn every_target_is_there() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        for target in &TARGETS {
            // A module may be one file, or that and a folder.
            for path in target.paths.iter().filter(|path| !path.ends_with('/') || path.contains("/emulator/src/")) {
                assert!(root.join(path).exists() || root.join(path.replace(".rs", "/mod.rs")).exists(), "{path}");
            }
        }
    }
}
