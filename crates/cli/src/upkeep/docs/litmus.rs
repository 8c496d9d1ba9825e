//! What docs/emulator/litmus.md says of the litmus tests: what their own first lines say, and what a GPU showed.

use std::{collections::BTreeMap, fmt::Write};

use passmuster_harness::{
    conformance::Status,
    ledger::litmus::{LitmusRow, Test},
};

use super::committed::Committed;
use crate::upkeep::litmus::{FOLDER, tests};

/// The record of a GPU.
const RECORD: &str = "litmus";

/// A row for each: what it shows, where the ISA has it, what is found, and how it ended on the GPU of the record.
pub(super) fn table(committed: &Committed) -> anyhow::Result<String> {
    let tests = tests(&committed.root().join(FOLDER), "")?;
    let record = committed.record::<LitmusRow>(RECORD)?;
    let rows: BTreeMap<&str, &LitmusRow> = record.cases.iter().map(|row| (&*row.test, row)).collect();
    let mut text = String::from("| litmus test | what it does | ISA | found | on a GPU |\n|---|---|---|---|---|\n");
    for test in &tests {
        let (name, litmus) = (&test.name, &test.litmus);
        let found = litmus.expected.iter().chain(&litmus.fault).map(|found| found.trim_end_matches(" is missing between"));
        let found: Vec<&str> = found.collect();
        let found = if found.is_empty() { "nothing".to_owned() } else { found.join("; ") };
        let (shows, sections) = (&litmus.shows, litmus.sections.join(", "));
        let on_gpu = on_gpu(test, rows.get(&**name).copied());
        writeln!(text, "| [{name}](../../{FOLDER}/{name}.ptx) | {shows} | {sections} | {found} | {on_gpu} |")?;
    }
    let (gpu, totals) = (&record.machine.gpu, record.notes.join("; "));
    writeln!(text, "\n{} litmus tests, each under 100 schedules. On one {gpu}: {totals}.", tests.len())?;
    Ok(text)
}

/// How a test ended on the GPU. Of the reason why it did not run, the first clause.
fn on_gpu(test: &Test, row: Option<&LitmusRow>) -> String {
    let clause = |reason: &str| reason.split([',', ':']).next().unwrap_or_default().trim_start_matches("it ").to_owned();
    let not_run = |reason: &str| format!("not run: {}", clause(reason));
    if let Some(reason) = test.excluded() {
        return not_run(reason);
    }
    let Some(row) = row.filter(|row| row.kernel == test.kernel()) else { return "not run as it is now".into() };
    match row {
        LitmusRow { status: Status::NotSupported | Status::Crash | Status::Hang, reason, .. } => not_run(reason),
        LitmusRow { ends: 1, unknown: 0, .. } => "as emulated".into(),
        LitmusRow { ends, unknown: 0, .. } => format!("{ends} ends, as emulated"),
        LitmusRow { ends, unknown, launches, .. } => format!("{ends} ends; {unknown} of {launches} times one that is not emulated"),
    }
}
