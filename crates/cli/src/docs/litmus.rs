//! What docs/emulator/async-proxy.md says of the litmus tests: what their own first lines say.

use std::{fmt::Write, fs};

use anyhow::{Context, ensure};

use super::committed::Committed;

const FOLDER: &str = "crates/emulator/litmus";

/// A row for each: what it shows, where the ISA has it, and what is found.
pub(super) fn table(committed: &Committed) -> anyhow::Result<String> {
    let folder = committed.root().join(FOLDER);
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {FOLDER}"))?;
    let mut names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect::<anyhow::Result<Vec<String>>>()?;
    names.retain(|name| name.ends_with(".ptx"));
    names.sort_unstable();
    ensure!(!names.is_empty(), "{FOLDER} has no litmus tests");
    let mut text = String::from("| litmus test | what it does | ISA | found |\n|---|---|---|---|\n");
    for name in &names {
        let file = fs::read_to_string(folder.join(name)).with_context(|| format!("cannot read {FOLDER}/{name}"))?;
        let comments: Vec<&str> = file.lines().map_while(|line| line.strip_prefix("// ")).collect();
        let said = |key: &str| comments.iter().filter_map(|line| line.strip_prefix(key)).map(str::trim).collect::<Vec<_>>();
        let shows = comments.first().with_context(|| format!("{FOLDER}/{name} does not say what it shows"))?;
        let mut found = said("expect:");
        found.extend(said("fault:"));
        let found = if found.is_empty() { "nothing".to_owned() } else { found.join("; ") };
        let stem = name.trim_end_matches(".ptx");
        writeln!(text, "| [{stem}](../../{FOLDER}/{name}) | {shows} | {} | {found} |", said("ISA:").join(", "))?;
    }
    writeln!(text, "\n{} litmus tests, each under 100 schedules.", names.len())?;
    Ok(text)
}
