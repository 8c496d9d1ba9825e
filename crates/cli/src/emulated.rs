//! Cases on the emulator: in this process, as many at once as there are processors. Nothing that a kernel does there can hang or crash it.

use std::{
    collections::BTreeSet,
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use passmuster_harness::{
    conformance::{Case, Status, Verdict, faults, report, runner::Settings, supervisor::StartError, worker},
    emulator::{Emulator, EmulatorOptions, Interleaving, parsed},
    ledger,
};
use passmuster_plan::{
    algorithms::{Registry, Target},
    machine::{Machine, MachineInfo, Waived},
};

use crate::{
    costs::Costs,
    judging::{Judged, Judging},
    progress::Progress,
};

/// Wall time of one run by default. It is no measure of a kernel: the machine may be loaded, so it is long, and what exceeds it is inconclusive.
pub(crate) const DEADLINE: Duration = Duration::from_secs(600);

/// Judges cases on emulators of its own, each under every schedule until one finds something; where some run out of time or steps, under the others too.
pub(crate) struct Emulated {
    how: JudgeConfig,
    /// For cases that come one by one.
    machine: Emulator,
}

/// How cases are judged.
pub(crate) struct JudgeConfig {
    registry: Registry,
    options: EmulatorOptions,
    /// At least one; that of the options is not used.
    schedules: Vec<Interleaving>,
    /// Of one schedule, in wall time.
    deadline: Duration,
    /// Where the trace of the last run goes.
    trace: Option<Arc<Trace>>,
    /// How many cases are judged at once.
    threads: usize,
}

impl JudgeConfig {
    /// How many cases are judged at once.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// A judge of one case after the other, for one of these threads.
    pub(crate) fn one_by_one(&self) -> OneByOne<'_> {
        OneByOne { machine: Emulator::new(self.options.clone()), how: self }
    }
}

/// Judges one case after the other, on an emulator of its own.
pub(crate) struct OneByOne<'a> {
    machine: Emulator,
    how: &'a JudgeConfig,
}

impl OneByOne<'_> {
    /// Judges a case under every schedule.
    pub(crate) fn judge(&mut self, case: &Case) -> Verdict {
        judge_under_all(case, &mut self.machine, self.how)
    }
}

/// The trace of a run, as the text of a file, once it has ended.
pub(crate) type Trace = Mutex<Option<serde_json::Result<String>>>;

impl Emulated {
    /// Judges under all of `schedules`, of which there is at least one. `deadline` is the wall time of one.
    pub(crate) fn new(registry: Registry, options: EmulatorOptions, schedules: Vec<Interleaving>, deadline: Duration) -> Emulated {
        let how = JudgeConfig { registry, options, schedules, deadline, trace: None, threads: processors() };
        Emulated { machine: Emulator::new(how.options.clone()), how }
    }

    /// Judges `threads` cases at once.
    pub(crate) fn with_threads(mut self, threads: usize) -> Emulated {
        self.how.threads = threads;
        self
    }

    /// Leaves the trace of the last schedule of the one case that is judged.
    pub(crate) fn traced(mut self, to: Arc<Trace>) -> Emulated {
        self.how.options.trace = true;
        self.how.trace = Some(to);
        self.machine = Emulator::new(self.how.options.clone());
        self
    }

    /// How cases are judged, without the machine for those that come one by one.
    pub(crate) fn config(self) -> JudgeConfig {
        self.how
    }
}

impl Judging for Emulated {
    fn machine(&mut self, _cases: &[Case]) -> Result<MachineInfo, StartError> {
        Ok(self.machine.info())
    }

    fn all(&mut self, cases: &[Case], judged: &Judged<'_>) -> Result<(MachineInfo, Vec<Verdict>), StartError> {
        let numbered: Vec<(usize, &Case)> = cases.iter().enumerate().collect();
        let how = &self.how;
        let recorded = if cases.len() > 1 { Costs::recorded() } else { Costs::default() };
        let costs: Vec<f64> = cases.iter().map(|case| recorded.of(case)).collect();
        let verdicts = in_threads(
            how.threads,
            (&numbered, &costs),
            || how.one_by_one(),
            |judge, &(index, case), progress| {
                let verdict = judge.judge(case);
                if verdict.status.is_finding() {
                    progress.found();
                }
                judged((index, &verdict));
                verdict
            },
        );
        Ok((self.machine.info(), verdicts))
    }

    fn one(&mut self, case: &Case) -> Result<Verdict, StartError> {
        Ok(judge_under_all(case, &mut self.machine, &self.how))
    }
}

/// One case under every schedule, up to the first that finds something or cannot run it.
fn judge_under_all(case: &Case, machine: &mut Emulator, how: &JudgeConfig) -> Verdict {
    let verdict = under_all(&how.schedules, |schedule| {
        machine.set_interleaving(schedule);
        judge(&how.registry, case, machine, &how.options, how.deadline, false)
    });
    if let Some(to) = &how.trace
        && let Some(trace) = machine.take_trace()
    {
        *to.lock().expect("no thread panics with it") = Some(trace.json());
    }
    verdict.unwrap_or_else(|| Verdict::without_checks(case.to_string(), Status::InfraError, "no schedule was asked for"))
}

/// The worst of what `judge` says under each schedule, up to the first finding or refusal; none where there is no schedule. One that does not come
/// to its end tells nothing of the others: they are tried all the same, and the verdict says how many came to theirs.
fn under_all(schedules: &[Interleaving], mut judge: impl FnMut(Interleaving) -> Verdict) -> Option<Verdict> {
    let (mut milliseconds, mut waived, mut inconclusive) = (0.0, Vec::new(), 0);
    let mut worst: Option<Verdict> = None;
    for &schedule in schedules {
        let mut verdict = judge(schedule);
        milliseconds += verdict.milliseconds;
        Waived::add(&mut waived, std::mem::take(&mut verdict.waived));
        let status = verdict.status;
        inconclusive += usize::from(status == Status::Inconclusive);
        verdict.schedule = (status.is_finding() || status == Status::Inconclusive).then(|| schedule.to_string());
        if worst.as_ref().is_none_or(|worst| status > worst.status) {
            worst = Some(verdict);
        }
        if !matches!(status, Status::Pass | Status::Inconclusive) {
            break;
        }
    }
    let mut verdict = worst?;
    if let (Status::Inconclusive, Some(schedule)) = (verdict.status, &verdict.schedule) {
        let (all, ended) = (schedules.len(), schedules.len() - inconclusive);
        verdict.reason = format!("{ended} of {all} schedules were conclusive and found nothing; {schedule}: {}", verdict.reason);
    }
    Some(Verdict { milliseconds, waived, ..verdict })
}

/// Does something with each item, as many at once as there are processors, with a progress bar. Each thread has a state of its own; the results
/// are in the order of the items.
pub(crate) fn in_parallel<T: Sync, S, R: Send>(
    items: &[T],
    state: impl Fn() -> S + Sync,
    one: impl Fn(&mut S, &T, &Progress<'_>) -> R + Sync,
) -> Vec<R> {
    in_threads(processors(), (items, &vec![1.0; items.len()]), state, one)
}

pub(crate) fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Calls `one` for each item, in `threads` threads, and returns what it gave, in the order of the items. `costs` is what each item is expected to take.
/// Items are started in their order: the largest ones all at once may take more memory than there is.
pub(crate) fn in_threads<T: Sync, S, R: Send>(
    threads: usize,
    (items, costs): (&[T], &[f64]),
    state: impl Fn() -> S + Sync,
    one: impl Fn(&mut S, &T, &Progress<'_>) -> R + Sync,
) -> Vec<R> {
    let progress = Progress::of(costs);
    let results: Mutex<Vec<Option<R>>> = Mutex::new(items.iter().map(|_| None).collect());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut state = state();
        while let Some((index, item)) = Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, items.get(at)?))) {
            let result = one(&mut state, item, &progress);
            progress.done(index);
            results.lock().expect("no thread panics with it")[index] = Some(result);
        }
    };
    thread::scope(|scope| (0..threads.min(items.len())).for_each(|_| drop(scope.spawn(work))));
    progress.finish();
    results.into_inner().expect("no thread panics with it").into_iter().flatten().collect()
}

/// One case, on groups of the same ranks that use one signal pad where `shared_pads` says so. After a panic `machine` is a new one.
pub(crate) fn judge(
    registry: &Registry,
    case: &Case,
    machine: &mut Emulator,
    options: &EmulatorOptions,
    deadline: Duration,
    shared_pads: bool,
) -> Verdict {
    let settings = Settings { registry, deadline, shared_pads, progress: &|_| {} };
    let judged = catch_unwind(AssertUnwindSafe(|| case.judge(machine, &settings)));
    let verdict = judged.unwrap_or_else(|panic| {
        *machine = Emulator::new(options.clone());
        worker::panicked(&case.to_string(), panic.as_ref())
    });
    faults::named(registry, case, verdict)
}

/// The forms that these cases' kernels have and that were not compared with hardware, in a sentence; none where all were.
pub(crate) fn not_compared(registry: &Registry, cases: &[Case]) -> Option<String> {
    let library = registry.library();
    let mut forms = BTreeSet::new();
    let modules: BTreeSet<_> = cases.iter().flat_map(|case| case.modules(registry, Target::default().waiting_blocks)).collect();
    for module in modules {
        // What the emulator cannot read has not run there, and the cases' verdicts say so.
        forms.extend(parsed(&library, &module).ok().map(|module| ledger::not_compared(&module)).into_iter().flatten());
    }
    (!forms.is_empty()).then(|| report::not_compared(forms.iter().map(String::as_str)))
}

#[cfg(test)]
mod tests {
    use passmuster_plan::machine::MachineError;
    use rstest::rstest;

    use super::*;

    const PASS: Status = Status::Pass;
    const INCONCLUSIVE: Status = Status::Inconclusive;

    /// If this fails, a schedule that ran out of time hides what another one finds, or is taken for a pass or for a finding.
    #[rstest]
    #[case::all_pass(&[PASS, PASS, PASS], PASS, 3, None, "")]
    #[case::one_ran_out(&[PASS, INCONCLUSIVE, PASS], INCONCLUSIVE, 3, Some(1), "2 of 3 schedules were conclusive and found nothing; stalled")]
    #[case::all_ran_out(&[INCONCLUSIVE, INCONCLUSIVE], INCONCLUSIVE, 2, Some(0), "0 of 2 schedules were conclusive")]
    #[case::later_finding(&[INCONCLUSIVE, PASS, Status::Hang, PASS], Status::Hang, 3, Some(2), "")]
    #[case::refusal(&[Status::NotSupported, PASS], Status::NotSupported, 1, None, "")]
    fn the_worst_of_all_schedules_counts(
        #[case] statuses: &[Status],
        #[case] expected: Status,
        #[case] tried: usize,
        #[case] of: Option<usize>,
        #[case] reason: &str,
    ) {
        let schedules: Vec<Interleaving> = (0..statuses.len()).map(|n| Interleaving::nth(7, n)).collect();
        let mut judged = 0;
        let verdict = under_all(&schedules, |schedule| {
            assert_eq!(schedule, schedules[judged]);
            judged += 1;
            Verdict { milliseconds: 1.0, ..Verdict::without_checks("case", statuses[judged - 1], "") }
        });
        let verdict = verdict.unwrap();
        assert_eq!((verdict.status, judged, verdict.milliseconds), (expected, tried, tried as f64));
        assert_eq!(verdict.schedule, of.map(|index| schedules[index].to_string()));
        assert!(verdict.reason.starts_with(reason), "{}", verdict.reason);
    }

    /// If this fails, races that were seen before a run was given up are lost.
    #[test]
    fn races_before_a_limit_are_a_finding() {
        let ended = Some(Box::new(MachineError::inconclusive("out of steps")));
        let races = MachineError::Races { findings: vec!["a race".into()], waived: Vec::new(), ended };
        assert_eq!(Status::of(&races), Status::Fail);
        assert_eq!(races.to_string(), "inconclusive: out of steps; besides, a race");
    }
}
