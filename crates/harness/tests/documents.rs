//! Documents that repeat what stands in the code.

use std::{fs, path::Path};

use passmuster_harness::{
    conformance::{
        List,
        manifest::{Manifest, RunsOn, of_list},
        report::{Record, packed},
    },
    emulator::{Emulator, EmulatorOptions},
};
use rstest::rstest;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn text(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// If this fails, docs/emulator/isa-readings.md says of a module what its head no longer says.
#[test]
fn readings_of_the_isa_are_those_at_the_heads_of_modules() {
    let document = text("docs/emulator/isa-readings.md");
    for module in ["numerics/mod.rs", "execution/multimem.rs", "races/mod.rs"] {
        let source = text(&format!("crates/emulator/src/{module}"));
        let head = source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
        let rows: Vec<&str> = head.filter(|line| line.starts_with('|')).collect();
        assert!(rows.len() > 5, "{module} has no table");
        let missing: Vec<&&str> = rows.iter().filter(|row| !document.lines().any(|line| line == **row)).collect();
        assert!(missing.is_empty(), "docs/emulator/isa-readings.md lacks these rows of {module}:\n{missing:#?}");
    }
}

/// If this fails, a list has lost or gained cases: look whether that was meant, then `cargo xtask records --manifests`.
#[rstest]
#[case("emulator-smoke", List::Smoke, None)]
#[case("emulator-merge", List::Merge, None)]
#[case("gpus2-merge", List::Merge, Some(2))]
#[case("gpus4-merge", List::Merge, Some(4))]
fn manifests_are_those_of_the_lists(#[case] name: &str, #[case] list: List, #[case] gpus: Option<usize>) {
    let registry = passmuster_harness::registry(passmuster_kernels::catalogue());
    let emulator = Emulator::new(EmulatorOptions::of(&registry));
    let place = gpus.map_or(RunsOn::Emulator(&emulator), RunsOn::Gpus);
    let committed = text(&format!("fixtures/manifests/{name}.toml"));
    let merge = packed::committed(&root().join("fixtures/records"), "emulator-merge").unwrap();
    let coverage = if name == "emulator-merge" { serde_json::from_str::<Record>(&merge).unwrap().coverage } else { Vec::new() };
    let now = of_list(&registry, list, place, &coverage);
    let differs: Vec<(&str, &str)> = committed.lines().zip(now.lines()).filter(|(then, now)| then != now).collect();
    assert!(committed == now, "{name}: `cargo xtask records --manifests` writes it again; (was, is): {differs:#?}");
    Manifest::read(name, &now).unwrap();
}
