//! Cases on the emulator: in this process, as many at once as there are processors. Nothing that a kernel does there can hang or crash it.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use passmuster::{
    algorithms::Target,
    conformance::{
        Case, Fault, Status, Verdict,
        runner::{self, Settings},
        supervisor::StartError,
        worker,
    },
    emulator::{Emulator, EmulatorOptions},
    kernels::Library,
    ledger,
    machine::{Machine, MachineInfo},
};

use crate::conform::{Judging, named, progress_bar};

/// Judges cases on emulators of its own.
pub(crate) struct Emulated {
    options: EmulatorOptions,
    deadline: Duration,
    /// For cases that come one by one.
    machine: Emulator,
}

impl Emulated {
    pub(crate) fn new(options: EmulatorOptions, deadline: Duration) -> Emulated {
        Emulated { machine: Emulator::new(options.clone()), options, deadline }
    }
}

impl Judging for Emulated {
    fn all(&mut self, cases: &[Case]) -> Result<(MachineInfo, Vec<Verdict>), StartError> {
        let bar = progress_bar(cases.len());
        let verdicts = Mutex::new(vec![None; cases.len()]);
        let next = AtomicUsize::new(0);
        let work = || {
            let mut machine = Emulator::new(self.options.clone());
            while let Some((index, case)) = Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, cases.get(at)?))) {
                let verdict = judge(case, &mut machine, &self.options, self.deadline);
                if verdict.status.is_finding() {
                    bar.suspend(|| eprintln!("{} {}: {}", verdict.status, verdict.case, verdict.reason));
                }
                bar.inc(1);
                verdicts.lock().expect("no thread panics with it")[index] = Some(verdict);
            }
        };
        let threads = thread::available_parallelism().map_or(1, |threads| threads.get()).min(cases.len());
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
        bar.finish_and_clear();
        let verdicts = verdicts.into_inner().expect("no thread panics with it");
        Ok((self.machine.info(), verdicts.into_iter().flatten().collect()))
    }

    fn one(&mut self, case: &Case) -> Result<Verdict, StartError> {
        Ok(judge(case, &mut self.machine, &self.options, self.deadline))
    }
}

/// One case; after a panic `machine` is a new one.
fn judge(case: &Case, machine: &mut Emulator, options: &EmulatorOptions, deadline: Duration) -> Verdict {
    if case.fault == Some(Fault::Killed) {
        let reason = "the emulator has no process of its own that could be killed";
        return Verdict::without_checks(case.to_string(), Status::NotSupported, reason);
    }
    let settings = Settings { deadline, shared_pads: false, progress: &|_| {} };
    let judged = catch_unwind(AssertUnwindSafe(|| runner::judge(case, machine, &settings)));
    let verdict = judged.unwrap_or_else(|panic| {
        *machine = Emulator::new(options.clone());
        worker::panicked(&case.to_string(), panic.as_ref())
    });
    match case.fault {
        Some(fault) => named(fault, verdict),
        None => verdict,
    }
}

/// The forms that these cases' kernels have and that were not compared with hardware, in a sentence; none where all were.
pub(crate) fn not_compared(cases: &[Case]) -> Option<String> {
    let library = Library::default();
    let mut forms = BTreeSet::new();
    for (module, build) in runner::modules(cases, Target::default().waiting_blocks) {
        // What the emulator cannot read has not run there, and the cases' verdicts say so.
        forms.extend(library.ptx(&module, build).ok().and_then(|ptx| ledger::not_compared(ptx).ok()).into_iter().flatten());
    }
    let list = forms.into_iter().collect::<Vec<_>>().join(", ");
    (!list.is_empty()).then(|| format!("forms not compared with hardware: {list}"))
}
