//! Prints what was found: verdicts, tables, what was waived and executed, and what GitHub shows.

use passmuster_harness::conformance::{
    Status, Verdict, causes, coverage,
    report::{Assumed, Record, is_not_compared, table},
};

use super::{
    github,
    presentation::{MOST_PLACES, UNCOUNTED, by_cause, concluded, rests_on},
    session::Session,
    shrinking::Smaller,
    suspicion::{suspicion, undecided},
};
use crate::print;

impl Session<'_> {
    /// Prints what was found.
    pub(super) fn print(&self, record: &Record, smaller: &Smaller) {
        let command = self.asked.command(self.run);
        if record.cases.iter().all(|v| v.status == Status::NotSupported)
            && let Some(first) = record.cases.first()
        {
            println!("no case could run; {}: {}\n", first.case, first.reason);
        }
        // The specification of a callable is nobody's but ours.
        let suspicion = if self.run.callable.is_some() { Vec::new() } else { suspicion(record, self.run) };
        suspicion.iter().for_each(|line| println!("{line}"));
        if suspicion.is_empty() {
            self.run.known.iter().flat_map(undecided).for_each(|line| eprintln!("{line}"));
        } else {
            println!();
        }
        let shrunk = |verdict: &Verdict| smaller.iter().find(|(id, _)| *id == verdict.case).and_then(|(_, text)| text.as_deref());
        if self.asked.verbose {
            shown(record).for_each(|verdict| print!("{}", verdict.explained(&command, None, shrunk(verdict))));
        } else {
            print!("{}", by_cause(&causes(shown(record)), &command, suspicion.len(), shrunk));
        }
        if self.asked.list_waived {
            Assumed::by_assumption(&record.assumed).iter().flat_map(Assumed::lines).for_each(|line| println!("{line}"));
            let waived = record.cases.iter().filter(|verdict| verdict.status == Status::Waived);
            waived.for_each(|verdict| println!("waived {}: {}", verdict.case, verdict.reason));
        }
        println!("{}", table::outcomes(record.cases.iter().filter_map(table::Outcome::of)));
        table::unchecked_paths(&record.cases).iter().for_each(|line| println!("{line}"));
        record.notes.iter().filter(|note| is_not_compared(note) || note.starts_with(UNCOUNTED)).for_each(|note| println!("{note}"));
        let most = if self.asked.list_waived { usize::MAX } else { MOST_PLACES };
        rests_on(record, most).iter().for_each(|line| println!("{line}"));
        if !record.coverage.is_empty() {
            println!("\n{}\n", coverage::text(&record.coverage));
        }
        let verdict = concluded(&record.summary, record.seconds.unwrap_or_default());
        if github::listens() {
            let causes = causes(record.cases.iter().filter(|of| of.status.is_finding() || of.status == Status::InfraError));
            let is_shown = |verdict: &Verdict| causes.iter().any(|cause| std::ptr::eq(cause.shown, verdict));
            let found: Vec<_> = self.cases.iter().zip(&record.cases).filter(|(_, verdict)| is_shown(verdict)).collect();
            github::annotations(&self.run.registry, &command, &found, self.run.known.first().map(|known| &*known.ptx))
                .iter()
                .for_each(|line| print::command(line));
            github::summarise(self.run.kind, &verdict, &command, &found);
        }
        println!("{verdict}");
    }
}

/// The verdicts that are shown, each for itself or by cause.
fn shown(record: &Record) -> impl Iterator<Item = &Verdict> {
    record.cases.iter().filter(|v| v.status.is_finding() || matches!(v.status, Status::InfraError | Status::Inconclusive))
}
