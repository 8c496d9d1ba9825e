//! What people see of a run: progress, findings, what was waived.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use passmuster::{conformance::Verdict, emulator::Interleaving};

/// Schedules, for people.
pub(super) fn named_schedules(schedules: &[Interleaving]) -> String {
    match schedules {
        [only] => format!("one schedule, {only}"),
        [first, .., last] => format!("{} schedules, {first} to {last}", schedules.len()),
        [] => "no schedule".into(),
    }
}

/// An option as a shell takes it.
pub(super) fn quoted(option: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:@".contains(c);
    if option.chars().all(plain) { option.to_owned() } else { format!("'{}'", option.replace('\'', "'\\''")) }
}

/// A finding for people.
pub(super) fn explain(command: &str, verdict: &Verdict, smaller: Option<&str>) -> String {
    let mut text = format!("{} {}\n", verdict.status.name().to_uppercase(), verdict.case);
    if verdict.findings.is_empty() {
        text += &format!("  {}\n", verdict.reason);
    }
    for finding in verdict.findings.iter().take(4) {
        let call = finding.call.map(|call| format!(" call {call}")).unwrap_or_default();
        text += &format!("  {}{call}: {}\n", finding.property, finding.summary);
        for line in finding.details.lines() {
            text += &format!("    {line}\n");
        }
    }
    if verdict.findings.len() > 4 {
        text += &format!("  and {} more findings\n", verdict.findings.len() - 4);
    }
    if let Some(smaller) = smaller {
        text += &format!("  shrunk to  {smaller}\n");
    }
    let schedule = verdict.schedule.as_ref().map(|schedule| format!("@{schedule}")).unwrap_or_default();
    text += &format!("  repro      {command} --replay '{}{schedule}'\n\n", verdict.case);
    text
}

pub(crate) fn progress_bar(cases: usize) -> ProgressBar {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(cases as u64) } else { ProgressBar::hidden() };
    bar.set_style(ProgressStyle::with_template("{elapsed_precise} {bar:40} {pos}/{len} {eta} left {msg}").expect("a valid template"));
    bar
}
