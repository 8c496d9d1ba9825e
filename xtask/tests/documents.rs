//! What documents name is there, and so is each document that is named.

use std::{fs, path::Path, process::Command};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Tracked text that people write: paths from the root, and what stands there.
fn texts() -> Vec<(String, String)> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let generated = ["kernels/ptx/", "fixtures/records/", "fixtures/mutants/ptx/", "docs/report-"];
    let paths = String::from_utf8(output.stdout).unwrap();
    let paths = paths.split('\0').filter(|path| !path.is_empty() && !generated.iter().any(|start| path.starts_with(start)));
    paths.filter_map(|path| Some((path.to_owned(), fs::read_to_string(root().join(path)).ok()?))).collect()
}

/// The documents under docs/ that a line names.
fn named(line: &str) -> impl Iterator<Item = &str> {
    let of_path = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let paths = line.match_indices("docs/").map(move |(at, _)| {
        let rest = &line[at..];
        rest[..rest.find(|c| !of_path(c)).unwrap_or(rest.len())].trim_end_matches('.')
    });
    paths.filter(|path| [".md", ".html", ".svg"].iter().any(|kind| path.ends_with(kind)))
}

/// The links of a line of Markdown that lead to files, as they stand there.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.match_indices("](").filter_map(|(at, _)| line[at + 2..].split(')').next());
    targets.filter(|target| !target.contains("://") && !target.is_empty())
}

/// What GitHub calls the headings of a document.
fn anchors(document: &str) -> Vec<String> {
    let headings = document.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim().to_lowercase());
    let anchor = |heading: String| {
        let kept = heading.chars().filter(|&c| c.is_alphanumeric() || "-_ ".contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// If this fails, a help text, an error, a comment or a document sends its reader to a document that is not there.
#[test]
fn documents_that_are_named_are_there() {
    let texts = texts();
    let mut names = 0;
    let mut missing = Vec::new();
    for (path, text) in &texts {
        for (number, line) in (1..).zip(text.lines()) {
            for name in named(line) {
                names += 1;
                if !root().join(name).is_file() {
                    missing.push(format!("{path}:{number}: {name}"));
                }
            }
        }
    }
    assert!(names > 50, "{names} names");
    assert!(missing.is_empty(), "not there:\n{}", missing.join("\n"));
}

/// If this fails, a document says that something stands in a file that is no longer there.
#[test]
fn sources_that_documents_name_are_there() {
    let mut missing = Vec::new();
    let mut names = 0;
    for (path, text) in texts().iter().filter(|(path, _)| path.ends_with(".md")) {
        for name in text.split(|c: char| !(c.is_ascii_alphanumeric() || "_-./".contains(c))) {
            let is_source = (name.starts_with("crates/") || name.starts_with("xtask/")) && name.ends_with(".rs");
            names += usize::from(is_source);
            if is_source && !root().join(name).is_file() {
                missing.push(format!("{path}: {name}"));
            }
        }
    }
    assert!(names > 20, "{names} names");
    assert!(missing.is_empty(), "not there:\n{}", missing.join("\n"));
}

/// If this fails, a link of a document leads nowhere.
#[test]
fn links_between_documents_lead_somewhere() {
    let mut broken = Vec::new();
    let mut count = 0;
    for (path, text) in texts().iter().filter(|(path, _)| path.ends_with(".md")) {
        let folder = root().join(path);
        let folder = folder.parent().unwrap();
        let mut fenced = false;
        for (number, line) in (1..).zip(text.lines()) {
            fenced ^= line.starts_with("```");
            for link in links(line).filter(|_| !fenced) {
                count += 1;
                let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target = if file.is_empty() { root().join(path) } else { folder.join(file) };
                let leads =
                    target.exists() && (anchor.is_empty() || anchors(&fs::read_to_string(target).unwrap()).iter().any(|a| a == anchor));
                if !leads {
                    broken.push(format!("{path}:{number}: {link}"));
                }
            }
        }
    }
    assert!(count > 30, "{count} links");
    assert!(broken.is_empty(), "lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn names_and_links_are_found() {
    let line = "see `docs/emulator/races.md`, (docs/plots/all_reduce-w4-busbw.svg). docs/x.rs and [a](b.md#c) or [d](https://e.f)";
    assert_eq!(named(line).collect::<Vec<_>>(), ["docs/emulator/races.md", "docs/plots/all_reduce-w4-busbw.svg"]);
    assert_eq!(links(line).collect::<Vec<_>>(), ["b.md#c"]);
    assert_eq!(anchors("# A b\ntext\n### Triton: `one_shot_triton`\n"), ["a-b", "triton-one_shot_triton"]);
}
