//! The worker that judges: the process that cases run in, so that a hang or a crash takes nothing else with it. See [`super::supervisor`] for the
//! other side, and [`super::process`] for how the two speak.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    process,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    Status, Verdict,
    process::{requests, say},
    resources::Resources,
};
use passmuster_plan::machine::MachineInfo;

/// What a worker is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The case's id.
    pub case: String,
    /// Milliseconds after which the worker itself should say that the case hangs.
    pub deadline_ms: u64,
}

impl Request {
    /// A case and the time it has.
    pub fn new(case: impl Into<String>, deadline: Duration) -> Request {
        Request { case: case.into(), deadline_ms: deadline.as_millis() as u64 }
    }

    /// The time that the case has.
    pub fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }
}

/// What a worker says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It has started, on this machine.
    Ready(MachineInfo),
    /// It has taken this case up. A death before that is not the case's.
    Began(String),
    /// How far it is, for the report in case it gets no further.
    Progress(String),
    /// Whether devices are at work, so that they are known to be unfinished if no more comes.
    Busy(bool),
    /// What the process holds, after a round of a soak.
    Holds(Resources),
    /// What became of the case.
    Verdict(Verdict),
}

/// Says how far the worker is. The last line before a hang or a crash is in its report.
pub fn progress(line: impl Into<String>) {
    // Nobody to tell is no reason to stop: the end of standard input ends the worker.
    let _ = say(&Answer::Progress(line.into()));
}

/// Says whether devices are at work.
pub fn busy(busy: bool) {
    // As above.
    let _ = say(&Answer::Busy(busy));
}

/// Says what this process holds.
pub fn holds(resources: Resources) {
    // As above.
    let _ = say(&Answer::Holds(resources));
}

/// Whether this process may be killed.
static EXPENDABLE: AtomicBool = AtomicBool::new(false);

/// Says that the case whose fault it is (`fault=killed`) may kill this process: that it is a worker, whose supervisor names how it ended. In any other
/// process such a case is not supported.
pub fn expendable() {
    EXPENDABLE.store(true, Ordering::Relaxed);
}

/// Whether this process has said that it may be killed.
///
/// # Errors
/// Says so, for a verdict.
pub(super) fn check_expendable() -> Result<(), String> {
    if EXPENDABLE.load(Ordering::Relaxed) {
        return Ok(());
    }
    Err("only a worker is killed: this process has not said that it may be".into())
}

/// The fault of a rank's process dying while its kernels run.
pub(super) fn kill_this_process_soon() {
    thread::spawn(|| {
        thread::sleep(Duration::from_micros(300));
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    });
}

/// Answers requests until standard input ends, then returns. Call it once the machine is open; before that, exit with [`CANNOT_RUN`](super::process::CANNOT_RUN)
/// where this machine cannot run cases.
///
/// A panic of `judge` is a verdict of the harness's own failure, after which the process exits: whatever it held may be broken. A
/// case that is still running [`FAREWELL`](super::process::FAREWELL) after standard input has ended does not outlive it: the supervisor is gone.
pub fn serve(ready: MachineInfo, mut judge: impl FnMut(&Request) -> Verdict) {
    let requests = requests::<Request>();
    if say(&Answer::Ready(ready)).is_err() {
        return;
    }
    for request in requests {
        if say(&Answer::Began(request.case.clone())).is_err() {
            return;
        }
        let judged = catch_unwind(AssertUnwindSafe(|| judge(&request)));
        let broken = judged.is_err();
        let verdict = judged.unwrap_or_else(|panic| panicked(&request.case, panic.as_ref()));
        if say(&Answer::Verdict(verdict)).is_err() {
            return;
        }
        if broken {
            process::exit(101);
        }
    }
}

/// The verdict on a case that made the harness itself panic.
pub fn panicked(case: &str, panic: &(dyn Any + Send)) -> Verdict {
    Verdict::without_checks(case, Status::InfraError, format!("the harness panicked: {}", message(panic)))
}

fn message(panic: &(dyn Any + Send)) -> &str {
    panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
