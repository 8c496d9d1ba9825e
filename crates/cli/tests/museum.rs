//! Real bugs of other people's kernels, on the emulator.
//!
//! If this fails, a bug that people had is not found any more, or a kernel that was mended is blamed.

use std::process::Command;

#[test]
fn every_bug_of_the_museum_is_found_and_every_mend_is_clean() {
    let run = Command::new(env!("CARGO_BIN_EXE_passmuster")).args(["museum", "--schedules", "1"]).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{text}{errors}");
    let score = text.lines().last().unwrap();
    let entries = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../museum")).unwrap();
    let entries = entries.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().join("entry.toml").is_file())).count();
    assert!(entries >= 20 && score.starts_with(&format!("{entries} of {entries} real bugs found, ")), "{score}");
    assert!(score.ends_with(&format!("; {entries} of {entries} mends clean")), "{score}");
}
