//! Baselines: the timings of one run compared with those of an earlier one.

use super::{Estimate, IN_PROCESSES, Launching, Side, Table, Timing, Workload, side};
use passmuster_plan::machine::MachineInfo;

/// What became of one figure since the baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct Change<'a> {
    /// The contender.
    pub contender: &'a str,
    /// What was timed.
    pub workload: Workload,
    /// How it was launched.
    pub launching: Launching,
    /// Its time over the baseline's.
    pub ratio: Estimate,
    /// What that means.
    pub verdict: Drift,
}

/// What a change means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drift {
    /// Slower beyond the noise and the threshold.
    Slower,
    /// Faster beyond the noise and the threshold.
    Faster,
    /// Neither.
    Same,
    /// One of the two runs has too few rounds to say.
    Unknown,
}

/// Where a baseline is of another machine: what differs.
///
/// # Errors
/// Each difference, for people.
pub fn same_machine(now: &MachineInfo, then: &MachineInfo) -> Result<(), String> {
    let differ = now.differences(then);
    if differ.is_empty() { Ok(()) } else { Err(format!("the baseline is of another machine: {}", differ.join("; "))) }
}

/// Every figure that both runs took by the same method, and how many of the present run's have no such counterpart. A change means something
/// where its whole interval is beyond `threshold`, a share: one run does not see how much times move from one process to the next.
pub fn compare<'a>(now: &'a [Timing], then: &[Timing], threshold: f64) -> (Vec<Change<'a>>, usize) {
    let mut changes = Vec::new();
    let mut alone = 0;
    for timing in now {
        let of_same =
            |other: &&Timing| (&other.contender, other.workload, other.method) == (&timing.contender, timing.workload, timing.method);
        let earlier = then.iter().find(of_same);
        for launching in Launching::ALL {
            let Some(times) = launching.of(timing) else { continue };
            let Some(before) = earlier.and_then(|earlier| launching.of(earlier)) else {
                alone += 1;
                continue;
            };
            let ratio = times.change_from(before);
            let verdict = match ratio.interval {
                None => Drift::Unknown,
                Some((low, _)) if low > 1.0 + threshold => Drift::Slower,
                Some((_, high)) if high < 1.0 / (1.0 + threshold) => Drift::Faster,
                Some(_) => Drift::Same,
            };
            changes.push(Change { contender: &timing.contender, workload: timing.workload, launching, ratio, verdict });
        }
    }
    (changes, alone)
}

/// The changes that mean something, and those of which nobody can say.
pub fn changed(changes: &[Change<'_>]) -> Table {
    let row = |change: &Change<'_>| {
        let (world, size) = (change.workload.world(), change.workload.size_name());
        let percent = |ratio: f64| format!("{:+.1} %", 100.0 * (ratio - 1.0));
        let noise =
            change.ratio.interval.map_or_else(|| "too few rounds".into(), |(low, high)| format!("[{}, {}]", percent(low), percent(high)));
        let verdict = match change.verdict {
            Drift::Slower => "SLOWER",
            Drift::Faster => "faster",
            Drift::Same => "same",
            Drift::Unknown => "unknown",
        };
        let of = format!("{}/{}", change.workload.kind(), change.contender);
        vec![of, change.launching.name().into(), world.to_string(), size, percent(change.ratio.value), noise, verdict.into()]
    };
    let rows: Vec<Vec<String>> = changes.iter().filter(|change| change.verdict != Drift::Same).map(row).collect();
    let count = |verdict| changes.iter().filter(|change| change.verdict == verdict).count();
    let title = format!(
        "against the baseline: {} slower, {} faster, {} the same, {} unknown",
        count(Drift::Slower),
        count(Drift::Faster),
        count(Drift::Same),
        count(Drift::Unknown)
    );
    let header = ["algorithm", "launching", "w", "size", "change", "95 %", ""].map(str::to_owned).to_vec();
    Table { title, header, left: 2, rows }
}

/// Whether one of our own algorithms is slower. A peer that is says something of the machine, not of what is under test.
pub fn has_regressed(changes: &[Change<'_>]) -> bool {
    let is_ours = |change: &Change<'_>| {
        let in_threads = change.contender.strip_suffix(IN_PROCESSES).unwrap_or(change.contender);
        side(&change.workload, in_threads) == Side::Ours
    };
    changes.iter().any(|change| change.verdict == Drift::Slower && is_ours(change))
}
