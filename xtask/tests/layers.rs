//! The order of the crates, asked of cargo.

use std::{path::Path, process::Command};

use serde_json::Value;

/// Each crate takes only from those before it.
const LAYERS: [&str; 10] = [
    "passmuster-bootstrap",
    "passmuster-ptx",
    "passmuster-emulator",
    "passmuster-collectives",
    "passmuster-cuda",
    "passmuster",
    "passmuster-bench",
    "passmuster-cli",
    "own_kernel",
    "xtask",
];

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
            // Tests of the machine with GPUs judge by the harness.
            let of_tests = dependency["kind"] == "dev" && name == "passmuster-cuda";
            if let Some(other) = layer(dependency["name"].as_str().unwrap()) {
                assert!(other < own || of_tests, "{name} takes from {}", LAYERS[other]);
            }
        }
    }
    let of = |name: &str| -> Vec<&str> {
        let package = packages.iter().find(|package| package["name"] == name).unwrap();
        package["dependencies"].as_array().unwrap().iter().filter(|d| d["kind"].is_null()).map(|d| d["name"].as_str().unwrap()).collect()
    };
    assert!(
        !of("passmuster").contains(&"passmuster-cuda") && !of("passmuster-cuda").contains(&"passmuster-emulator"),
        "machines know each other"
    );
}

/// If this fails, who wants the collectives must compile plots, property tests or an emulator.
#[test]
fn collectives_come_without_what_only_the_harness_needs() {
    let tree = cargo(&["tree", "--package", "passmuster-collectives", "--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    let names: Vec<&str> = tree.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.contains(&"serde"), "{names:?}");
    for unwanted in ["proptest", "plotters", "maud", "csv", "clap", "cudarc", "passmuster-emulator", "passmuster"] {
        assert!(!names.contains(&unwanted), "passmuster-collectives takes {unwanted}");
    }
}
