//! `--require FILE`: whether what had to run did, and passed.

use std::{path::Path, process::ExitCode};

use passmuster_harness::conformance::{
    Case, CaseId, Verdict,
    manifest::{Manifest, Outcome},
    report::Record,
};
use passmuster_plan::machine::MachineInfo;

use crate::{FINDING, USAGE, input, print};

/// What a run must have passed.
#[derive(Clone, clap::Args)]
pub(crate) struct Require {
    /// Exit 1 if fewer cases passed than this manifest requires (fixtures/manifests/), and name them. With --coverage, also if less of a kernel was executed.
    #[arg(long = "require", value_name = "FILE", value_parser = manifest)]
    manifest: Option<Manifest>,
}

pub(crate) fn manifest(path: &str) -> Result<Manifest, String> {
    let text = input::text(Path::new(path), input::MOST_TOML).map_err(|error| format!("{error:#}"))?;
    // The parser of the command line prints it.
    Manifest::read(path, &text).map_err(|error| print::visible(&error.to_string()).into_owned())
}

impl Require {
    /// What the exit status of a run is, which would be `code`: a finding where the run lacks something. Says what.
    pub(crate) fn exit(&self, code: ExitCode, machine: &MachineInfo, run: &[Outcome<'_>]) -> ExitCode {
        let Some(manifest) = &self.manifest else { return code };
        unmet(manifest, machine, run).map_or(code, ExitCode::from)
    }

    /// The same of a record.
    pub(crate) fn exit_of_record(&self, code: ExitCode, record: &Record) -> ExitCode {
        let Some(manifest) = &self.manifest else { return code };
        unmet_by_record(manifest, record).map_or(code, ExitCode::from)
    }
}

/// Says what a run lacks, and the exit status that this makes; none where it lacks nothing.
fn unmet(manifest: &Manifest, machine: &MachineInfo, run: &[Outcome<'_>]) -> Option<u8> {
    match manifest.unmet(machine, run) {
        Ok(lines) if lines.is_empty() => None,
        Ok(lines) => {
            lines.iter().for_each(|line| eprintln!("required: {line}"));
            Some(FINDING)
        }
        Err(reason) => {
            eprintln!("error: {reason}");
            Some(USAGE)
        }
    }
}

/// As [`unmet`], and what its cases did not execute. A verdict whose id is no case of this build is of no query.
pub(crate) fn unmet_by_record(manifest: &Manifest, record: &Record) -> Option<u8> {
    let cases: Vec<(Case, &Verdict)> = record.cases.iter().filter_map(|verdict| Some((verdict.case.parse().ok()?, verdict))).collect();
    let run: Vec<Outcome<'_>> = cases
        .iter()
        .map(|(case, verdict)| Outcome { case, name: &verdict.case, status: verdict.status, reason: &verdict.reason })
        .collect();
    let untouched = manifest.untouched(&record.coverage);
    untouched.iter().for_each(|line| eprintln!("required: {line}"));
    unmet(manifest, &record.machine, &run).max((!untouched.is_empty()).then_some(FINDING))
}

/// A mutant, as queries have it: `sync/*:order,all_reduce/push`. It passed if it was caught.
pub(crate) struct Planted<'m> {
    /// `value` or `sync`.
    pub(crate) kind: &'m str,
    pub(crate) name: &'m str,
    /// What the rule does; `planted` of those that people planted.
    pub(crate) defect: &'m str,
    pub(crate) module: &'m str,
}

impl CaseId for Planted<'_> {
    fn head(&self) -> [&str; 4] {
        [self.kind, self.name, self.defect, self.module]
    }

    fn fields(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    fn default_of(&self, _: &str) -> &'static str {
        ""
    }
}
