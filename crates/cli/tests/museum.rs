//! Real bugs of other people's kernels, on the emulator.
//!
//! If this fails, a bug that people had is not found any more, or a kernel that was mended is blamed.

use std::{collections::BTreeSet, fs, process::Command};

use passmuster::conformance::turn::of_turn;

/// An eighth of the entries for each commit, all of them with `cargo xtask test --all`.
#[test]
fn every_bug_of_the_museum_is_found_and_every_mend_is_clean() {
    let entries = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../museum")).unwrap().map(|entry| entry.unwrap());
    let entries = entries.filter(|entry| entry.path().join("entry.toml").is_file());
    let names: BTreeSet<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    assert!(names.len() >= 20, "{names:?}");
    for name in of_turn(names.iter()) {
        let arguments = ["museum", "--schedules", "1", "--only", name];
        let run = Command::new(env!("CARGO_BIN_EXE_passmuster")).args(arguments).output().unwrap();
        let (text, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert!(run.status.success(), "{name}: {text}{errors}");
        // An entry's name may be the beginning of another's.
        let found = names.iter().filter(|other| other.contains(name.as_str())).count();
        let score = text.lines().last().unwrap();
        assert!(score.starts_with(&format!("{found} of {found} real bugs found, ")), "{name}: {score}");
        assert!(score.ends_with(&format!("; {found} of {found} mends clean")), "{name}: {score}");
    }
}
