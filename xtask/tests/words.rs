//! Plain English: words that documents do not use, and how long a document may be.

use std::{fs, path::Path, process::Command};

/// Words that send a reader back to the start of the sentence, and what to say.
const BANNED: [(&str, &str); 12] = [
    ("mend", "fix"),
    ("mends", "fixes"),
    ("mended", "fixed"),
    ("anew", "again"),
    ("so many", "the number, or N"),
    ("whoever", "who it is"),
    ("is told", "sees, is reported or prints"),
    ("are told", "see, are reported or print"),
    ("held against", "compared with"),
    ("that there is none", "that it is missing"),
    ("made anew", "rebuilt"),
    ("is meant to be", "must be"),
];

/// What is still to be rewritten: a change of the first (the heads of litmus tests) and of the last three goes with another run on a GPU, or of the judge, the
/// mutants or the museum.
const WAITING: [&str; 5] =
    ["docs/emulator/litmus.md", "xtask/tests/words.rs", "crates/harness/src/conformance/scenario.rs", "fixtures/", "museum/"];

/// The most words of a document.
const MOST: usize = 3000;

/// Tracked files of these kinds: paths from the root, and their text.
fn tracked(kinds: &[&str]) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new("git").args(["ls-files", "-z"]).args(kinds).current_dir(&root).output().unwrap();
    let paths = String::from_utf8(output.stdout).unwrap();
    let paths = paths.split('\0').filter(|path| !path.is_empty());
    paths.filter_map(|path| Some((path.to_owned(), fs::read_to_string(root.join(path)).ok()?))).collect()
}

/// Where files have banned words, but for those that wait to be rewritten.
fn banned(files: &[(String, String)]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| !WAITING.iter().any(|waiting| path.starts_with(waiting))) {
        for (number, line) in (1..).zip(text.lines()) {
            let banned = BANNED.iter().filter(|(words, _)| has(line, words));
            found.extend(banned.map(|(words, instead)| format!("{path}:{number}: `{words}`: say {instead}")));
        }
    }
    found
}

/// Whether a line has these words, as whole words.
fn has(line: &str, words: &str) -> bool {
    let line = line.to_lowercase();
    let is_letter = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    line.match_indices(words)
        .any(|(at, _)| !is_letter(line[..at].chars().next_back()) && !is_letter(line[at + words.len()..].chars().next()))
}

/// If this fails, the next test finds nothing.
#[test]
fn banned_words_are_found() {
    assert!(has("It was Mended.", "mended") && has("so many, or more", "so many"));
    assert!(!has("amended", "mended") && !has("recommended", "mend"));
}

/// If this fails, a document has a word that makes people read a sentence twice.
#[test]
fn documents_use_plain_words() {
    let documents = tracked(&["*.md"]);
    assert!(documents.len() > 30, "{} documents", documents.len());
    let found = banned(&documents);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// If this fails, a docstring, a message, a comment or a name in code has such a word.
#[test]
fn sources_use_plain_words() {
    let sources = tracked(&["*.rs", "*.cu", "*.cuh"]);
    assert!(sources.len() > 400, "{} sources", sources.len());
    let found = banned(&sources);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Words of a text. The bars of tables are none.
fn words(text: &str) -> usize {
    text.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count()
}

/// If this fails, a document is longer than anybody reads.
#[test]
fn documents_are_short() {
    for (path, text) in tracked(&["*.md"]) {
        assert!(words(&text) <= MOST, "{path} has {} words, it may have {MOST}", words(&text));
        if path == "README.md" {
            assert!(text.lines().count() <= 200 && words(&text) <= 1500, "{} lines, {} words", text.lines().count(), words(&text));
        }
    }
}
