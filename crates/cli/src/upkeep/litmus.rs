//! `ledger --litmus`: the litmus tests, compared with a GPU.

use std::{fs, path::Path, process::ExitCode, time::Duration};

use anyhow::{Context, anyhow, bail, ensure};
use passmuster_harness::{
    conformance::{
        Status,
        report::{Record, Summary, table},
    },
    ledger::litmus::{AT_ONCE, Ends, LitmusRow, SCHEDULES, Test, library, run},
};
use passmuster_plan::{
    algorithms::Registry,
    machine::{Machine, MachineError},
};
use xshell::Shell;

use super::ledger;
use crate::{FINDING, gpus::Gpus, progress::progress_bar, project, result_file::ResultFile, worker::MachineKind};

/// Where they are.
pub(crate) const FOLDER: &str = "crates/emulator/litmus";

/// The time that one run of a test may take, the driver's compilation of its module included.
const DEADLINE: Duration = Duration::from_secs(10);

/// Looks of one thread in one launch after which it traps on a GPU: a look at an mbarrier may take a millisecond.
const MOST_LOOKS: u32 = 1 << 10;

/// The tests of a folder whose names contain a text, by name.
///
/// # Errors
/// There is none, or one says of itself what cannot be read.
pub(crate) fn tests(folder: &Path, only: &str) -> anyhow::Result<Vec<Test>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect::<anyhow::Result<Vec<String>>>()?;
    names.retain(|name| name.ends_with(".ptx") && name.contains(only));
    names.sort_unstable();
    ensure!(!names.is_empty(), "{} has no litmus test whose name contains `{only}`", folder.display());
    let read = |name: &String| {
        let path = folder.join(name);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Test::new(name.trim_end_matches(".ptx"), &text).map_err(|error| anyhow!(error))
    };
    names.iter().map(read).collect()
}

/// Runs them on a machine, so often at least, and writes the record.
pub(crate) fn held_against(
    registry: &Registry,
    on: MachineKind,
    (tests, skip): (&[Test], &[String]),
    launches: u64,
    gpus: &Gpus,
    file: Option<&ResultFile>,
    sh: &Shell,
) -> anyhow::Result<ExitCode> {
    let rounds = launches.div_ceil(AT_ONCE);
    let bounded = |text: &str| match on {
        MachineKind::Cuda => passmuster_ptx::bound_waits(text, MOST_LOOKS),
        MachineKind::Emulator => text.to_owned(),
    };
    // Other schedules than those that say how a test may end.
    let mut machine = match ledger::open(on, gpus, library(tests, bounded), SCHEDULES) {
        Ok(machine) => machine,
        Err(error) => return Ok(ledger::cannot_run(&error)),
    };
    let rows = rows(tests, skip, &mut *machine, rounds)?;
    println!("{}", table_of(&rows));
    let summary = Summary::of(rows.iter().map(|row| row.status));
    let ran = rows.iter().filter(|row| row.launches > 0);
    let shown = ran.clone().filter(|row| row.wrong && row.ends > 1).count();
    let totals = format!(
        "{} of {} litmus tests, {} launches each: {} ended as the emulator lets nothing end; of {} in which something is missing, {shown} ended in more ways than one",
        ran.clone().count(),
        rows.len(),
        rounds * AT_ONCE,
        ran.clone().filter(|row| row.unknown > 0).count(),
        ran.filter(|row| row.wrong).count(),
    );
    println!("{totals}; {summary}");
    let findings = summary.has_findings();
    let mut record = Record::new("litmus", machine.info(), project::source(sh, &registry.library()), summary, rows);
    record.notes.push(totals);
    if let Some(file) = file {
        file.write(&record.to_json())?;
    }
    Ok(if findings { ExitCode::from(FINDING) } else { ExitCode::SUCCESS })
}

/// A row for each test.
fn rows(tests: &[Test], skip: &[String], machine: &mut dyn Machine, rounds: u64) -> anyhow::Result<Vec<LitmusRow>> {
    let bar = progress_bar(tests.len());
    let mut rows = Vec::new();
    for test in tests {
        let left_out = skip.contains(&test.name).then_some("it was left out: --skip");
        rows.push(match test.excluded().or(left_out) {
            Some(reason) => LitmusRow::ended(test, Status::NotSupported, reason),
            None => match row(test, machine, rounds) {
                Ok(row) => row,
                Err(error @ MachineError::NotSupported { .. }) => LitmusRow::ended(test, Status::NotSupported, error.to_string()),
                Err(error @ (MachineError::Fault { .. } | MachineError::Hang { .. })) => {
                    // The device is lost to this process: what ran before is still reported.
                    let status = if matches!(error, MachineError::Fault { .. }) { Status::Crash } else { Status::Hang };
                    rows.push(LitmusRow::ended(test, status, error.to_string()));
                    eprintln!(
                        "`{}`: {error}; {} tests after it were not tried: --skip {0} leaves it out",
                        test.name,
                        tests.len() - rows.len()
                    );
                    break;
                }
                Err(error) => bail!("`{}`: {error}", test.name),
            },
        });
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn row(test: &Test, machine: &mut dyn Machine, rounds: u64) -> Result<LitmusRow, MachineError> {
    let (mut got, mut emulated) = (Ends::new(), Ends::new());
    let library = library(std::slice::from_ref(test), str::to_owned);
    for seed in 0..SCHEDULES {
        match once(&mut ledger::emulator(library.clone(), seed), test, &mut emulated) {
            Err(MachineError::Hang { .. }) if test.is_wrong() => {
                return Ok(LitmusRow::ended(test, Status::NotSupported, "it may hang"));
            }
            ran => ran?,
        }
    }
    if emulated.is_empty() {
        return Ok(LitmusRow::ended(test, Status::NotSupported, "how it ends is not defined: it reads what was never written"));
    }
    for _ in 0..rounds {
        once(machine, test, &mut got)?;
    }
    Ok(LitmusRow::of(test, &got, &emulated))
}

fn once(machine: &mut dyn Machine, test: &Test, ends: &mut Ends) -> Result<(), MachineError> {
    match run(machine, test, DEADLINE, ends) {
        // It read what was never written, which the emulator ends with.
        Err(MachineError::Finding { .. }) => Ok(()),
        ran => ran,
    }
}

fn table_of(rows: &[LitmusRow]) -> String {
    let line = |row: &LitmusRow| {
        let number = |number: usize| if row.launches > 0 { number.to_string() } else { String::new() };
        let wrong = if row.wrong { "yes" } else { "" };
        vec![
            row.test.clone(),
            row.reason.clone(),
            wrong.to_owned(),
            number(row.launches),
            number(row.emulated),
            number(row.ends),
            number(row.unknown),
        ]
    };
    let lines: Vec<Vec<String>> = rows.iter().map(line).collect();
    table::aligned(&["litmus test", "not run", "found", "launches", "ends emulated", "ends", "unknown"], 3, &lines)
}
