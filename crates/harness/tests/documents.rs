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

/// The blocks of code of a language in a document.
fn blocks<'d>(document: &'d str, language: &str) -> Vec<&'d str> {
    let starts = format!("```{language}\n");
    document.split(&starts).skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect()
}

/// If this fails, a tutorial shows other code than what is compiled, or another specification than the one that is tested.
#[test]
fn the_code_of_tutorials_is_what_is_tested() {
    for (document, path, language) in [
        ("docs/tutorial-algorithm.md", "examples/own_kernel/kernels/mine.cu", "cuda"),
        ("docs/tutorial-algorithm.md", "examples/own_kernel/src/lib.rs", "rust"),
        ("docs/tutorial-algorithm.md", "examples/own_kernel/src/main.rs", "rust"),
        ("docs/tutorial-algorithm.md", "examples/own_kernel/tests/conformance.rs", "rust"),
        ("docs/tutorial-foreign-kernel.md", "examples/foreign/one_shot_by_value/spec.toml", "toml"),
    ] {
        let (shown, tested) = (text(document), text(path));
        assert!(blocks(&shown, language).contains(&tested.as_str()), "{document} lacks {path} to the letter:\n{tested}");
    }
}
