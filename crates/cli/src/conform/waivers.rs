//! Waivers: those that a user brings, those of this build, and what they cover.

use std::{fs, sync::Arc};

use passmuster_harness::conformance::{
    Case, List, Status, Verdict,
    report::{Record, Selection, Summary},
    waivers::{self, Waiver},
};

/// Waivers from a file.
pub(super) type Waivers = Arc<[Waiver]>;

pub(super) fn own_waivers(path: &str) -> Result<Waivers, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    waivers::parse(path, &text).map(Waivers::from)
}

/// Whether a case passed, or is none of the findings, only because an assumption or a waiver covers something.
pub(super) fn is_waived(record: &Record) -> bool {
    !record.assumed.is_empty() || record.cases.iter().any(|verdict| verdict.status == Status::Waived)
}

/// Applies the waivers of a day to a record of verdicts, those that this build carries and `own`, and counts the verdicts.
pub(super) fn apply_waivers(record: &mut Record, own: Option<&Waivers>, day: &str) {
    let all = waivers::built_in().into_iter().chain(own.into_iter().flat_map(|own| own.iter().cloned()));
    let waivers: Vec<Waiver> = all.filter(|waiver| waiver.holds(&record.machine, day)).collect();
    let of_list = |selection: &Selection| {
        let Selection { query, except, limit, part, .. } = selection;
        query == List::Merge.name() && except.is_none() && limit.is_none() && part.is_none()
    };
    let whole = record.selection.as_ref().is_some_and(of_list);
    // What no longer is a case has no waiver either.
    let (cases, mut verdicts): (Vec<Case>, Vec<&mut Verdict>) =
        record.cases.iter_mut().filter_map(|verdict| Some((verdict.case.parse().ok()?, verdict))).unzip();
    waivers::apply(&waivers, &cases, &mut verdicts, whole);
    record.summary = Summary::of(record.cases.iter().map(|verdict| verdict.status));
}
