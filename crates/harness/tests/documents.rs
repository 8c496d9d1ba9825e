//! Documents that repeat what stands in the code.

use std::{fs, path::Path};

fn text(path: &str) -> String {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path);
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
