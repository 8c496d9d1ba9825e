//! Which files judge, and which tests may notice that they are wrong.

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
pub(super) const PACKAGES: [(&str, &str); 2] = [("passmuster-emulator", "crates/emulator/"), ("passmuster", "crates/harness/")];

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
            of(HARNESS, "nodes"),
            of(HARNESS, "processes"),
        ],
    },
];

/// Files and folders of targets that judge nothing: tests, the model that tests compare with, and text for people.
const LEFT_OUT: [&str; 4] = ["/tests.rs", "/tests/", "/races/reference.rs", "/compare/display.rs"];

/// The target that a file is of.
pub(super) fn of_file(path: &str) -> Option<&'static Target> {
    let is_within = |of: &&str| if of.ends_with('/') { path.starts_with(*of) } else { path == *of };
    let left_out = !path.ends_with(".rs") || LEFT_OUT.iter().any(|part| path.contains(part));
    TARGETS.iter().find(|target| !left_out && target.paths.iter().any(is_within))
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
        assert!(has("crates/emulator/src/races/clock.rs") && has("crates/harness/src/conformance/runner/planted.rs"));
        assert!(!has("crates/emulator/src/races/tests.rs") && !has("crates/emulator/src/races/reference.rs"));
        assert!(!has("crates/emulator/src/numerics/tests/special.rs") && !has("crates/emulator/src/lib.rs"));
    }

    #[test]
    fn modules_are_named() {
        assert_eq!(module_of("crates/emulator/src/races/mod.rs"), ("passmuster-emulator", "races".into()));
        assert_eq!(module_of("crates/harness/src/conformance/oracle.rs"), ("passmuster", "conformance::oracle".into()));
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
