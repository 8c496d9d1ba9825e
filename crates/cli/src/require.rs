//! `--require FILE`: whether what had to run did, and passed.

use std::{path::Path, process::ExitCode};

use passmuster_harness::conformance::{
    Case, CaseId, Verdict,
    manifest::{Manifest, Outcome},
};
use passmuster_plan::machine::MachineInfo;

use crate::{FINDING, USAGE, input, print};

/// What a run must have passed.
#[derive(Clone, clap::Args)]
pub(crate) struct Require {
    /// Exit 1 if fewer cases passed than this manifest requires (fixtures/manifests/), and name them.
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

    /// The same of verdicts.
    pub(crate) fn exit_of_verdicts(&self, code: ExitCode, machine: &MachineInfo, verdicts: &[Verdict]) -> ExitCode {
        let Some(manifest) = &self.manifest else { return code };
        unmet_by_verdicts(manifest, machine, verdicts).map_or(code, ExitCode::from)
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

/// As [`unmet`]. A verdict whose id is no case of this build is of no query.
pub(crate) fn unmet_by_verdicts(manifest: &Manifest, machine: &MachineInfo, verdicts: &[Verdict]) -> Option<u8> {
    let cases: Vec<(Case, &Verdict)> = verdicts.iter().filter_map(|verdict| Some((verdict.case.parse().ok()?, verdict))).collect();
    let run: Vec<Outcome<'_>> = cases
        .iter()
        .map(|(case, verdict)| Outcome { case, name: &verdict.case, status: verdict.status, reason: &verdict.reason })
        .collect();
    unmet(manifest, machine, &run)
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
