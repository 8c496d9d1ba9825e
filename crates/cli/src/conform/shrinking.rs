//! Smaller cases that fail as well.

use std::time::{Duration, Instant};

use passmuster_harness::conformance::{Case, Known, Verdict, causes, shrink};
use passmuster_plan::algorithms::Registry;

use crate::judging::Judging;

/// Causes for which a smaller case is looked for.
const SHRUNK_FINDINGS: usize = 3;

/// A smaller case for a case that failed, by its id, where one was found.
pub(super) type Smaller = Vec<(String, Option<String>)>;

/// Smaller cases for the first causes, each looked for as long as `budget`.
pub(super) fn smaller(judge: &mut dyn Judging, registry: &Registry, cases: &[Case], verdicts: &[Verdict], budget: Duration) -> Smaller {
    let found = causes(verdicts.iter().filter(|verdict| verdict.status.is_finding()));
    let case = |verdict: &Verdict| cases.iter().zip(verdicts).find(|(_, of)| of.case == verdict.case).map(|(case, _)| case);
    let shown =
        found.iter().take(SHRUNK_FINDINGS).filter_map(|cause| Some((cause.shown, Known { case: case(cause.shown)?.clone(), registry })));
    shown.map(|(verdict, case)| (verdict.case.clone(), shrink(judge, &case, verdict, budget))).collect()
}

/// Looks for a smaller case that fails too, and says what was found.
fn shrink(judge: &mut dyn Judging, known: &Known<'_>, verdict: &Verdict, budget: Duration) -> Option<String> {
    if budget.is_zero() || known.case.fault().is_some() {
        return None;
    }
    let start = Instant::now();
    let shrunk = shrink::shrink(known, verdict.reason.clone(), budget, |candidate| {
        judge.one(&candidate.case).ok().filter(|v| v.status.is_finding()).map(|v| v.reason)
    });
    let smallest = shrunk.case.case;
    (smallest != known.case)
        .then(|| format!("{smallest}  ({} tried in {:.1} s): {}", shrunk.tried, start.elapsed().as_secs_f64(), shrunk.failure))
}
