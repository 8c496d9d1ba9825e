//! `report`: renders records, without a GPU.

use std::{path::PathBuf, process::ExitCode};

use anyhow::bail;
use passmuster_bench::Timing;
use passmuster_harness::conformance::report::{Record, Summary};

use super::output::{AnyRecord, Files, Output, read_any};
use crate::{FINDING, USAGE, conform::merged};

/// Show recorded results as tables, plots, CSV or one HTML page.
///
/// Prints the tables that the recording command prints. Records of bench are shown together, under the machine of the first, unless you pass --separately. Records
/// of any commands make one page (--html). No GPU is needed.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cargo xtask report fixtures/records/h200x4-bench.json --html report.html
  cargo xtask report fixtures/records/h200x2-merge.json
  cargo xtask report fixtures/records/h100x4-bench-all_reduce.json fixtures/records/h200x2-faults.json --html report.html
  cargo xtask report after.json --baseline before.json
  cargo xtask report --separately fixtures/records/h200x2-bench-*.json --html report.html
  cargo xtask report --merge 1of3.json 2of3.json 3of3.json --json merge.json")]
pub(crate) struct Report {
    /// Records, as commands write them with --json.
    #[arg(required = true, value_name = "RECORD")]
    records: Vec<PathBuf>,
    /// Show sizes as rows of N elements.
    #[arg(long, value_name = "ELEMENTS", value_parser = clap::value_parser!(u64).range(1..))]
    hidden: Option<u64>,
    /// Show each record of bench by itself, under its own machine and command line. Two records may have timed the same call.
    #[arg(long, conflicts_with_all = ["json", "csv", "nccl_tests", "plot", "baseline"])]
    separately: bool,
    /// Join the records of all parts of a list (--part K/N of validate and test-gpu) into the file of --json.
    #[arg(long, requires = "json", conflicts_with_all = ["separately", "markdown", "csv", "nccl_tests", "plot", "html", "baseline"])]
    merge: bool,
    #[command(flatten)]
    output: Output,
}

impl Report {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let files = self.output.files()?;
        if let Files { json: Some(file), .. } = &files
            && self.merge
        {
            return merged(&self.records, file);
        }
        let (mut timed, mut judged) = (Vec::new(), Vec::new());
        for path in &self.records {
            match read_any(path)? {
                AnyRecord::Timed(record) => timed.push(*record),
                AnyRecord::Judged(record) => judged.push(*record),
            }
        }
        if timed.is_empty() {
            self.output.without_timings()?;
        }
        judged.iter().for_each(|record| println!("{}", record.text()));
        if self.separately || timed.is_empty() {
            self.output.show_separately(&files, &timed, &judged, self.hidden)?;
            return Ok(ExitCode::SUCCESS);
        }
        let together = self.together(timed)?;
        let baseline = self.output.baseline()?;
        if let Some(baseline) = &baseline {
            self.output.comparable(&together.machine, baseline)?;
        }
        let shown = self.output.compare(&together, self.hidden, baseline.as_ref());
        let written = self.output.write(&files, &together, &judged, self.hidden, &shown);
        shown.print(&together);
        written?;
        Ok(ExitCode::from(if shown.regressed {
            FINDING
        } else if shown.uncompared {
            USAGE
        } else {
            0
        }))
    }

    /// All timings as one record, under the machine of the first.
    fn together(&self, records: Vec<Record<Timing>>) -> anyhow::Result<Record<Timing>> {
        let mut records = records.into_iter();
        let mut together = records.next().expect("there is one");
        for record in records {
            self.output.comparable(&together.machine, &record)?;
            let known = |timing: &&Timing| {
                together.cases.iter().any(|other| (&other.contender, other.workload) == (&timing.contender, timing.workload))
            };
            if let Some(twice) = record.cases.iter().find(known) {
                bail!(
                    "{} of {}, {} is in two of the records: --baseline compares runs",
                    twice.contender,
                    twice.workload.title(),
                    twice.workload.size_name()
                );
            }
            together.cases.extend(record.cases);
            together.notes.extend(record.notes);
        }
        together.summary = Summary::of(together.cases.iter().map(|timing| timing.status));
        Ok(together)
    }
}
