//! The order of the crates, asked of cargo.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// Each crate takes only from those before it.
const LAYERS: [&str; 12] = [
    "passmuster-bootstrap",
    "passmuster-ptx",
    "passmuster-emulator",
    "passmuster-plan",
    "passmuster-harness",
    "passmuster-kernels",
    "passmuster-cuda",
    "passmuster-bench",
    "passmuster-cli",
    "passmuster",
    "own_kernel",
    "xtask",
];

/// What a crate's tests take from a crate that stands below it: the harness is tested by our kernels, and machines by the harness.
const OF_TESTS: [(&str, &str); 1] = [("passmuster-harness", "passmuster-kernels")];

fn cargo(arguments: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(env!("CARGO")).args(arguments).args(["--offline", "--locked"]).current_dir(root).output().unwrap();
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// If this fails, a crate takes from one that stands below it, or one of the commands has become a library.
#[test]
fn crates_take_only_from_those_above_them() {
    let metadata: Value = serde_json::from_str(&cargo(&["metadata", "--format-version", "1", "--no-deps"])).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let layer = |name: &str| LAYERS.iter().position(|known| *known == name);
    assert_eq!(packages.len(), LAYERS.len(), "a crate that has no place among the layers");
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let own = layer(name).unwrap_or_else(|| panic!("{name} has no place among the layers"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let taken = dependency["name"].as_str().unwrap();
            let of_tests = dependency["kind"] == "dev" && OF_TESTS.contains(&(name, taken));
            if let Some(other) = layer(taken) {
                assert!(other < own || of_tests, "{name} takes from {taken}");
            }
        }
    }
}

/// The packages that a package is built from, itself among them.
fn built_from(package: &str) -> Vec<String> {
    built_from_with(package, &[])
}

/// The same with features.
fn built_from_with(package: &str, features: &[&str]) -> Vec<String> {
    let arguments = ["tree", "--package", package, "--edges", "normal,build", "--prefix", "none", "--format", "{p}"];
    let tree = cargo(&[&arguments, features].concat());
    tree.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

/// If this fails, the judge knows a kernel of ours: who judges one PTX file compiles ours, and a bug in ours may be in the judge.
#[test]
fn the_harness_does_not_reach_our_kernels() {
    for above in ["passmuster-bootstrap", "passmuster-ptx", "passmuster-emulator", "passmuster-plan", "passmuster-harness"] {
        let packages = built_from(above);
        assert!(packages.iter().any(|name| name == above), "{packages:?}");
        for below in ["passmuster-kernels", "passmuster-cuda", "passmuster-bench", "passmuster-cli"] {
            assert!(!packages.iter().any(|name| name == below), "{above} takes {below}");
        }
    }
}

/// If this fails, the harness is shipped with kernels of ours, or without those that it launches itself.
#[test]
fn the_harness_ships_its_own_kernels_alone() {
    let files = cargo(&["package", "--package", "passmuster-harness", "--list", "--allow-dirty"]);
    let ptx: Vec<&str> = files.lines().filter(|file| file.starts_with("kernels/") || file.starts_with("fixtures/mutants/")).collect();
    assert!(ptx.contains(&"kernels/ptx/conformance/fill.ptx"), "{ptx:?}");
    let is_own = |file: &&str| file.starts_with("kernels/ptx/conformance/") || *file == "kernels/conformance/abi.cuh";
    assert!(ptx.iter().all(is_own), "{ptx:?}");
}

/// If this fails, who judges one PTX file with the command compiles our kernels, plots or what opens GPUs.
#[test]
fn the_smallest_command_comes_without_our_kernels() {
    let packages = built_from_with("passmuster", &["--no-default-features", "--features", "cli"]);
    assert!(packages.iter().any(|name| name == "passmuster-cli"), "{packages:?}");
    for unwanted in ["passmuster-kernels", "passmuster-cuda", "passmuster-bench", "cudarc", "resvg", "maud"] {
        assert!(!packages.iter().any(|name| name == unwanted), "the command takes {unwanted}");
    }
}

/// If this fails, what users install has the commands by which this repository is kept.
#[test]
fn upkeep_is_no_default() {
    for features in [&[][..], &["--no-default-features", "--features", "cli,kernels"], &["--features", "mpi"]] {
        assert!(!has_upkeep(features), "{features:?}");
    }
    assert!(has_upkeep(&["--features", "upkeep"]), "cargo xtask has no upkeep");
}

/// Whether passmuster's command has its upkeep if it is built with these features.
fn has_upkeep(features: &[&str]) -> bool {
    let arguments = ["tree", "--package", "passmuster", "--edges", "normal", "--prefix", "none", "--format", "{p}|{f}"];
    let tree = cargo(&[&arguments, features].concat());
    let line = tree.lines().find(|line| line.starts_with("passmuster-cli ")).unwrap_or_else(|| panic!("{tree}"));
    let (_, of_command) = line.rsplit_once('|').unwrap();
    assert!(of_command.split(',').any(|feature| feature == "kernels"), "{line}");
    of_command.split(',').any(|feature| feature == "upkeep")
}

/// If this fails, a command of users is built only with the upkeep of this repository, or goes by it.
#[test]
fn commands_of_users_do_not_reach_upkeep() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cli/src");
    let sources: Vec<_> = glob::glob(&folder.join("**/*.rs").display().to_string()).unwrap().map(Result::unwrap).collect();
    let names = |path: &&PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        text.contains("upkeep::") || text.contains("mod upkeep")
    };
    let outside = sources.iter().filter(|path| !path.starts_with(folder.join("upkeep"))).filter(names);
    assert_eq!(outside.collect::<Vec<_>>(), [&folder.join("lib.rs")], "only the list of commands may name them");
}

/// If this fails, who judges a kernel compiles a test runner that nothing of theirs calls.
#[test]
fn test_runner_is_a_feature() {
    for packages in [built_from("passmuster-harness"), built_from_with("passmuster", &["--no-default-features", "--features", "bench"])] {
        assert!(packages.iter().any(|name| name == "passmuster-harness"), "{packages:?}");
        assert!(!packages.iter().any(|name| name == "libtest-mimic"), "{packages:?}");
    }
    assert!(built_from("passmuster").iter().any(|name| name == "libtest-mimic"), "`passmuster` has cases as tests");
}

/// If this fails, machines know each other: a plan may be run by one as the other happens to.
#[test]
fn machines_do_not_know_each_other() {
    assert!(!built_from("passmuster-cuda").iter().any(|name| name == "passmuster-emulator" || name == "passmuster-harness"));
    assert!(!built_from("passmuster-harness").iter().any(|name| name == "cudarc"));
}

/// If this fails, who wants plans or kernels must compile plots, property tests or an emulator.
#[test]
fn plans_and_kernels_come_without_what_only_the_harness_needs() {
    for package in ["passmuster-plan", "passmuster-kernels"] {
        let names = built_from(package);
        assert!(names.iter().any(|name| name == "serde"), "{names:?}");
        for unwanted in ["proptest", "plotters", "maud", "csv", "clap", "cudarc", "passmuster-emulator", "passmuster-harness"] {
            assert!(!names.iter().any(|name| name == unwanted), "{package} takes {unwanted}");
        }
    }
}
