//! Real bugs of other people's kernels, on the emulator, each entry of the museum a test.
//!
//! If one fails, a bug that people had is not found any more, or a kernel without it is blamed.

use std::{collections::BTreeSet, fs, process::Command};

use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let entries = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/museum")).unwrap().map(|entry| entry.unwrap());
    let entries = entries.filter(|entry| entry.path().join("entry.toml").is_file());
    let names: BTreeSet<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    assert!(names.len() >= 20, "{names:?}");
    let trial = |name: &String| {
        // An entry's name may be the beginning of another's.
        let count = names.iter().filter(|other| other.contains(name.as_str())).count();
        let name = name.clone();
        Trial::test(format!("entry::{name}"), move || is_found(&name, count))
    };
    libtest_mimic::run(&Arguments::from_args(), names.iter().map(trial).collect()).exit();
}

/// Whether the bugs of the entries with this in their names are found, and their fixed kernels pass.
fn is_found(name: &str, count: usize) -> Result<(), Failed> {
    let run = Command::new(env!("CARGO_BIN_EXE_passmuster")).args(["museum", "--schedules", "1", "--only", name]).output()?;
    let (text, errors) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    let score = text.lines().last().unwrap_or_default();
    let found = score.starts_with(&format!("{count} of {count} real bugs found, "));
    let clean = score.ends_with(&format!("; {count} of {count} fixed versions pass"));
    if run.status.success() && found && clean { Ok(()) } else { Err(format!("{text}{errors}").into()) }
}
