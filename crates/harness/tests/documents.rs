//! Documents that repeat what stands in the code.

use std::{fs, path::Path};

fn text(path: &str) -> String {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// If this fails, docs/isa-readings.md says of a module what its head no longer says.
#[test]
fn readings_of_the_isa_are_those_at_the_heads_of_modules() {
    let document = text("docs/isa-readings.md");
    for module in ["numerics/mod.rs", "execution/multimem.rs", "races/mod.rs"] {
        let source = text(&format!("crates/emulator/src/{module}"));
        let head = source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
        let rows: Vec<&str> = head.filter(|line| line.starts_with('|')).collect();
        assert!(rows.len() > 5, "{module} has no table");
        let missing: Vec<&&str> = rows.iter().filter(|row| !document.lines().any(|line| line == **row)).collect();
        assert!(missing.is_empty(), "docs/isa-readings.md lacks these rows of {module}:\n{missing:#?}");
    }
}

/// The blocks of code of a language in a document.
fn blocks<'d>(document: &'d str, language: &str) -> Vec<&'d str> {
    let starts = format!("```{language}\n");
    document.split(&starts).skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect()
}

/// If this fails, the tutorial shows other code than what is compiled: examples/tutorial has it.
#[test]
fn the_tutorial_s_code_is_what_is_compiled() {
    let tutorial = text("docs/tutorial-algorithm.md");
    for (path, language) in [("examples/tutorial/mine.cu", "cuda"), ("examples/tutorial/mine.rs", "rust")] {
        let compiled = text(path);
        assert!(blocks(&tutorial, language).contains(&compiled.as_str()), "docs/tutorial-algorithm.md lacks {path} to the letter:\n{compiled}");
    }
}
