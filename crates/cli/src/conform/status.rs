//! The exit status of a run.

use std::process::ExitCode;

use passmuster_harness::conformance::{
    Case, Fault, Status, Verdict,
    report::{Record, Summary},
    supervisor::StartError,
};

use super::{arguments::Cases, waivers::is_waived};
use crate::{CANNOT_RUN, FINDING, exit};

impl Cases {
    /// What the verdicts of cases make of the run.
    pub(super) fn status(&self, cases: &[Case], record: &Record) -> ExitCode {
        let mut status = if self.fail_on_waived && is_waived(record) { FINDING.into() } else { exit_status(&record.summary) };
        if status == ExitCode::SUCCESS
            && let Some(verdict) = unjudged_absences(cases, &record.cases)
        {
            eprintln!("no rank that stays away was judged; {}: {}", verdict.case, verdict.reason);
            status = ExitCode::from(CANNOT_RUN);
        }
        self.require.exit_of_record(status, record)
    }
}

/// What an error makes of the run that it ended.
///
/// # Errors
/// The same, unless it says that this machine cannot run cases.
pub(super) fn of_error(command: &str, error: anyhow::Error) -> anyhow::Result<ExitCode> {
    match error.downcast_ref::<StartError>() {
        Some(StartError::CannotRun { reason }) => {
            eprintln!("{command} cannot run on this machine: {reason}");
            Ok(ExitCode::from(CANNOT_RUN))
        }
        _ => Err(error),
    }
}

/// What the counts make of the run.
pub(super) fn exit_status(summary: &Summary) -> ExitCode {
    exit::status(|status| summary.by_status.get(&status).is_some_and(|&cases| cases > 0)).into()
}

/// The first case of a rank that stays away, if there are such cases and none could run: beside others that passed nobody would miss them.
fn unjudged_absences<'v>(cases: &[Case], verdicts: &'v [Verdict]) -> Option<&'v Verdict> {
    let absences =
        || cases.iter().zip(verdicts).filter(|(case, _)| matches!(case.fault(), Some(Fault::Absent(_)))).map(|(_, verdict)| verdict);
    let ran = |verdict: &Verdict| !matches!(verdict.status, Status::NotSupported | Status::NotRun);
    absences().next().filter(|_| !absences().any(ran))
}
