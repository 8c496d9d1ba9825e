//! What the tree says of itself: which crates have no unsafe code, and which files nobody writes by hand.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn git(arguments: &[&str]) -> String {
    let output = Command::new("git").args(arguments).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Tracked files that end so.
fn files(end: &str) -> Vec<String> {
    let all = git(&["ls-files", "-z"]);
    all.split('\0').filter(|path| path.ends_with(end) && root().join(path).is_file()).map(str::to_owned).collect()
}

/// Whether a line that is no comment has the word.
fn has_unsafe_code(text: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split(|c| !is_word(c))).any(|word| word == "unsafe")
}

/// If this fails, a crate gets its first unsafe code and nobody has to decide that it may.
#[test]
fn crates_without_unsafe_forbid_it() {
    let rust = files(".rs");
    let roots: Vec<&String> = rust.iter().filter(|path| path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs")).collect();
    assert!(roots.len() > 10, "{roots:?}");
    let mut forbidding = 0;
    for path in roots {
        let forbids = fs::read_to_string(root().join(path)).unwrap().contains("#![forbid(unsafe_code)]");
        let folder = path.rsplit_once('/').unwrap().0;
        // A binary beside a library is a crate of one file.
        let is_small = path.ends_with("main.rs") && rust.contains(&format!("{folder}/lib.rs"));
        let of_crate = rust.iter().filter(|file| if is_small { file == &path } else { file.starts_with(&format!("{folder}/")) });
        let has_unsafe = of_crate.clone().any(|file| has_unsafe_code(&fs::read_to_string(root().join(file)).unwrap()));
        // The attribute itself says `unsafe_code`, which is another word.
        assert!(forbids || has_unsafe, "{path} has no unsafe code: it needs #![forbid(unsafe_code)]");
        forbidding += usize::from(forbids);
    }
    assert!(forbidding >= 8, "{forbidding} crates forbid unsafe code");
}

/// If this fails, reviews and statistics count files that commands write.
#[test]
fn generated_files_are_marked() {
    let generated: Vec<String> =
        [files(".ptx"), files("abi.cuh"), files("dtypes.cuh"), files("docs/report.html"), files("fixtures/mutants/index.rs")].concat();
    let generated = generated.iter().filter(|path| !WRITTEN.iter().any(|start| path.starts_with(start)));
    let mut count = 0;
    for chunk in generated.collect::<Vec<_>>().chunks(500) {
        let paths: Vec<&str> = chunk.iter().map(|path| path.as_str()).collect();
        for line in git(&[&["check-attr", "linguist-generated", "--"], &paths[..]].concat()).lines() {
            assert!(line.ends_with(": set"), "{line}");
            count += 1;
        }
    }
    assert!(count > 250, "{count} files");
}

/// The most bytes of tracked files in a folder: PTX that the crates embed, records and fixtures, and everything that a clone has.
const WEIGHTS: [(&str, u64); 3] = [("kernels/ptx/", 12 << 20), ("fixtures/", 8 << 20), ("", 30_000_000)];

/// If this fails, clones, builds and packages become heavier. Remove what nothing reads, or pack it.
#[test]
fn the_tree_is_light() {
    let all = files("");
    for (folder, most) in WEIGHTS {
        let of_folder = all.iter().filter(|path| path.starts_with(folder));
        let bytes: u64 = of_folder.map(|path| fs::metadata(root().join(path)).unwrap().len()).sum();
        assert!(bytes > most / 2 && bytes <= most, "tracked files in {folder:?} have {bytes} bytes, of at most {most}");
    }
}

/// PTX that people wrote.
const WRITTEN: [&str; 3] = ["crates/emulator/litmus/", "crates/harness/benches/", "fuzz/"];

#[test]
fn unsafe_words_are_code() {
    assert!(has_unsafe_code("let x = unsafe { y };"));
    assert!(!has_unsafe_code("// unsafe\n#![forbid(unsafe_code)]\n    //! unsafe"));
}
