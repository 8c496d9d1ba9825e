//! `ledger --orders`: what the ends of kernels and `griddepcontrol.wait` order towards other ranks, on GPUs.

use std::{process::ExitCode, time::Duration};

use anyhow::bail;
use passmuster_harness::{
    conformance::{
        Status,
        report::{Record, Source, Summary, table},
    },
    ledger::orders::{Extent, MODULE, OrderRow, ROWS, Row},
};
use passmuster_plan::{algorithms::Registry, machine::MachineError};
use xshell::Shell;

use super::ledger;
use crate::{FINDING, INCONCLUSIVE, gpus::Gpus, progress::progress_bar, project, result_file::ResultFile, worker::MachineKind};

/// The time that one row may take on a machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// Runs the rows whose names contain a text, for each number of ranks, and writes the record.
///
/// # Errors
/// If no row has such a name, a machine refuses one, or the record cannot be written.
pub(crate) fn measure(
    registry: &Registry,
    on: MachineKind,
    (only, worlds, turns): (&str, &[u32], u32),
    gpus: &Gpus,
    file: Option<&ResultFile>,
    sh: &Shell,
) -> anyhow::Result<ExitCode> {
    let chosen: Vec<&Row> = ROWS.iter().filter(|row| row.name.contains(only)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        bail!("`{only}` is in the name of no row; the rows are:\n  {}", names.join("\n  "));
    }
    let mut machine = match ledger::open(on, gpus, registry.library(), 0) {
        Ok(machine) => machine,
        Err(error) => return Ok(ledger::cannot_run(&error)),
    };
    let bar = progress_bar(chosen.len() * worlds.len());
    let mut rows = Vec::new();
    'all: for &world in worlds {
        let extent = match on {
            MachineKind::Cuda => Extent::of_gpus(world, turns),
            MachineKind::Emulator => Extent::of_emulator(world),
        };
        for row in &chosen {
            match row.run(&mut *machine, extent, DEADLINE) {
                Ok(counted) => rows.push(row.judged(world, &counted)),
                Err(error @ (MachineError::Hang { .. } | MachineError::Fault { .. })) => {
                    eprintln!("`{}` among {world} ranks: {error}; the rows after it were not run", row.name);
                    rows.push(OrderRow { status: Status::of(&error), ..row.judged(world, &Default::default()) });
                    break 'all;
                }
                Err(error) => bail!("`{}` among {world} ranks: {error}", row.name),
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    println!("{}", table_of(&rows));
    let summary = Summary::of(rows.iter().map(|row| row.status));
    let reads: u64 = rows.iter().filter(|row| row.assumption.is_some()).map(|row| row.reads).sum();
    let totals = format!("{reads} words read in rows that rest on an assumption; {summary}");
    println!("{totals}");
    let (findings, inconclusive) = (summary.has_findings(), summary.by_status.contains_key(&Status::Inconclusive));
    let modules = registry.library().hashes(&[(MODULE.to_owned())].into());
    let mut record = Record::new("orders", machine.info(), Source { modules, ..project::source(sh, &registry.library()) }, summary, rows);
    record.notes.push(totals);
    if let Some(file) = file {
        file.write(&record.to_json())?;
    }
    Ok(match (findings, inconclusive && on == MachineKind::Cuda) {
        (true, _) => ExitCode::from(FINDING),
        (false, true) => ExitCode::from(INCONCLUSIVE),
        (false, false) => ExitCode::SUCCESS,
    })
}

fn table_of(rows: &[OrderRow]) -> String {
    let line = |row: &OrderRow| {
        vec![
            row.row.clone(),
            row.assumption.clone().unwrap_or_else(|| "none".into()),
            row.status.to_string(),
            row.world.to_string(),
            format!("{:.2e}", row.reads as f64),
            row.stale.to_string(),
        ]
    };
    let lines: Vec<Vec<String>> = rows.iter().map(line).collect();
    table::aligned(&["what orders the words", "assumption", "status", "ranks", "words read", "late words"], 3, &lines)
}
