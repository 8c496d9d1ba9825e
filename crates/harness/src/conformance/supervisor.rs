//! The supervisor: runs cases in a worker process, in bounded time. A hang or a crash is a verdict with a name, and the next case runs in a
//! fresh process.
//!
//! ```no_run
//! use passmuster_harness::{algorithms::Registry, conformance::{supervisor::{Supervisor, WorkerCommand}, worker::Request}};
//! use std::time::Duration;
//!
//! let mut supervisor = Supervisor::new(WorkerCommand::of_this_program(["worker"])?, passmuster_harness::registry(passmuster_kernels::catalogue()));
//! let verdict = supervisor.judge(&Request::new("all_reduce/two_shot:bf16,sum:w=8:n=1040", Duration::from_secs(5)));
//! println!("{}: {}", verdict.case, verdict.status);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::{
    env,
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::{
    Case, Finding, Status, Verdict, faults,
    process::{CANNOT_RUN, End, Process, REAP},
    resources::Resources,
    worker::{Answer, Request},
};
use passmuster_plan::{
    algorithms::Registry,
    machine::{Blamed, How, MachineInfo},
};

/// Times that one case is asked for where workers die before they take it up.
const ASKED: u32 = 2;

/// How many cases of a run are judged a second time because time was up, or ranks that share GPUs hung, unless the caller sets another number.
pub const SECOND_LOOKS: u32 = 3;

/// How many times the deadline a second look has, and no more than this.
const PATIENCE: u32 = 4;
const LONGEST_LOOK: Duration = Duration::from_secs(600);

/// Workers in a row that do not start before no more is tried.
const MAX_FAILED_STARTS: u32 = 3;

/// How a worker is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Environment variables beside this process's own: how NCCL is forced onto one path.
    pub env: Vec<(OsString, OsString)>,
}

impl WorkerCommand {
    /// This same program with other arguments.
    ///
    /// # Errors
    /// Where the system does not tell which program this is.
    pub fn of_this_program(args: impl IntoIterator<Item = impl Into<OsString>>) -> io::Result<WorkerCommand> {
        Ok(WorkerCommand { program: env::current_exe()?, args: args.into_iter().map(Into::into).collect(), env: Vec::new() })
    }

    /// The same with more environment variables.
    pub fn with_environment(mut self, variables: impl IntoIterator<Item = (impl Into<OsString>, impl Into<OsString>)>) -> WorkerCommand {
        self.env.extend(variables.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }
}

/// Why there is no worker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The worker says that this machine cannot run cases. It will not be asked again.
    #[error("this machine cannot run it: {reason}")]
    CannotRun {
        /// What it said on standard error.
        reason: String,
    },
    /// The worker did not get as far as to be ready.
    #[error("the worker did not start: {reason}")]
    Failed {
        /// How it ended, and what it said on standard error.
        reason: String,
    },
}

impl StartError {
    fn status(&self) -> Status {
        match self {
            StartError::CannotRun { .. } => Status::NotRun,
            StartError::Failed { .. } => Status::InfraError,
        }
    }
}

/// Judges cases in a worker process. None is left when it goes.
#[derive(Debug)]
pub struct Supervisor {
    command: WorkerCommand,
    registry: Registry,
    /// How long a worker may take until it is ready. Opening eight GPUs and NCCL takes many seconds. Default: 2 minutes.
    pub start_limit: Duration,
    /// How long after a request's deadline the worker is killed: the time it has to say by itself who is stuck. Default: 5 seconds.
    pub grace: Duration,
    /// How many more cases may be judged a second time, alone and with more time, because nothing that happened was known to be wrong. Default:
    /// [`SECOND_LOOKS`]. A run with several supervisors hands it on from one to the next, so that what time it adds is bounded.
    pub second_looks: u32,
    /// How many times its deadline such a case then has. Default: 4.
    pub patience: u32,
    worker: Option<Worker>,
    failed_starts: u32,
    /// Why no more workers are started.
    given_up: Option<StartError>,
    notes: Vec<String>,
}

impl Supervisor {
    /// A supervisor that has not yet started a worker, of cases of the algorithms of a registry.
    pub fn new(command: WorkerCommand, registry: Registry) -> Supervisor {
        Supervisor {
            command,
            registry,
            start_limit: Duration::from_secs(120),
            grace: Duration::from_secs(5),
            second_looks: SECOND_LOOKS,
            patience: PATIENCE,
            worker: None,
            failed_starts: 0,
            given_up: None,
            notes: Vec::new(),
        }
    }

    /// The machine that cases run on; starts a worker where there is none.
    ///
    /// # Errors
    /// [`StartError::CannotRun`] where the worker exits with [`CANNOT_RUN`], [`StartError::Failed`] where it ends otherwise or is
    /// not ready within [`Supervisor::start_limit`].
    pub fn machine(&mut self) -> Result<MachineInfo, StartError> {
        self.started().map(|worker| worker.machine.clone())
    }

    /// Process id of the worker, where there is one.
    pub fn worker_id(&self) -> Option<u32> {
        self.worker.as_ref().map(|worker| worker.process.id())
    }

    /// What the worker said last that it holds, where there is one that has said so.
    pub fn holds(&self) -> Option<Resources> {
        self.worker.as_ref()?.holds
    }

    /// What happened beside the cases, for the record: workers that died between two of them, or could not be killed.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Judges one case. Never fails: a hang is [`Status::Hang`], a death of the worker [`Status::Crash`], both with the worker's last
    /// lines of output; a worker that does not start is [`Status::NotRun`] or [`Status::InfraError`], as [`Supervisor::machine`]
    /// tells apart.
    ///
    /// That time is up is no finding. Where the worker gave no answer, or says that it is [`Status::Inconclusive`], the case is judged once more, in a worker of
    /// its own and with several times its deadline, and the verdict says so. If that does not end either, it is a hang where devices were last known to be at
    /// work, and inconclusive otherwise.
    ///
    /// Nor is it one that ranks which share a GPU hang once: CUDA does not promise to start all kernels that wait for each other, and now and then a device
    /// does not (docs/performance/sharing.md). Such a case is judged again, too; of a kernel that does hang, the second look says so.
    pub fn judge(&mut self, request: &Request) -> Verdict {
        let start = Instant::now();
        let (mut verdict, is_doubtful) = self.judge_once(request);
        if is_doubtful && self.second_looks > 0 {
            self.second_looks -= 1;
            self.stop();
            let deadline = (request.deadline() * self.patience).min(LONGEST_LOOK.max(request.deadline()));
            let (second, _) = self.judge_once(&Request::new(&request.case, deadline));
            verdict = second_look(&verdict, second, deadline);
        } else if is_doubtful {
            verdict.reason.push_str("; it was not judged a second time, as others of this run were");
        }
        if let Ok(case) = request.case.parse::<Case>() {
            // Of one that the worker could not judge to its end.
            verdict = faults::named(&self.registry, &case, verdict);
        }
        if verdict.milliseconds == 0.0 {
            verdict.milliseconds = start.elapsed().as_secs_f64() * 1e3;
        }
        verdict
    }

    /// Ends the worker: politely, by the end of its input, and after [`FAREWELL`](super::process::FAREWELL) by force. The next case starts another.
    pub fn stop(&mut self) {
        if let Some(mut worker) = self.worker.take()
            && !worker.process.farewell()
        {
            self.kill(worker);
        }
    }

    /// Judges one case, and says whether what came of it may be no fault of the case: time was up, or a device did not start what others waited for.
    fn judge_once(&mut self, request: &Request) -> (Verdict, bool) {
        let limit = request.deadline() + self.grace;
        let mut times = 0;
        loop {
            times += 1;
            let worker = match self.started() {
                Ok(worker) => worker,
                Err(error) => return (Verdict::without_checks(&request.case, error.status(), error.to_string()), false),
            };
            worker.begin(&request.case);
            let asked = Instant::now();
            // A worker that dies just now closes the pipe: the wait below sees its end and says how.
            let _ = worker.process.ask(request);
            let end = worker.wait_for_verdict(request, asked + limit);

            let Some(mut worker) = self.worker.take() else { unreachable!("a worker was started") };
            if matches!(end, Err(End::Death)) && !worker.began && times < ASKED {
                // It was dying of an earlier case, too late for the look in `started`.
                let how = worker.process.after_death().map_or_else(|| "closed its output".into(), ending);
                self.notes.push(format!("worker {} {how} after its last verdict", worker.process.id()));
                self.kill(worker);
                continue;
            }
            let no_answer = matches!(end, Err(End::Timeout));
            let gpus = worker.machine.gpus;
            let verdict = self.verdict_of(request, asked, worker, end);
            let may_not_have_started = verdict.status == Status::Hang && shares_gpus(&request.case, gpus);
            let is_doubtful = no_answer || verdict.status == Status::Inconclusive || may_not_have_started;
            return (verdict, is_doubtful);
        }
    }

    /// What the end of a wait says of the case. The worker is kept where nothing has harmed it.
    fn verdict_of(&mut self, request: &Request, asked: Instant, mut worker: Worker, end: Result<Verdict, End>) -> Verdict {
        match end {
            // One that was given up may have left threads in a library.
            Ok(verdict) if !verdict.voids_device() && !verdict.was_given_up() => {
                self.worker = Some(worker);
                verdict
            }
            Ok(verdict) => {
                self.kill(worker);
                verdict
            }
            Err(End::Nonsense(reason)) => {
                let log = worker.log();
                self.kill(worker);
                let mut verdict = Verdict::without_checks(&request.case, Status::InfraError, reason);
                verdict.findings.extend(log_finding("worker", &log));
                verdict
            }
            Err(End::Timeout) => {
                let (status, devices) = if worker.busy {
                    (Status::Hang, "devices were at work")
                } else {
                    (Status::Inconclusive, "no device was known to be at work")
                };
                let reason = format!(
                    "no answer after {:.1} s (deadline {:.1} s and {:.1} s of grace), {devices}, worker {} killed; {}",
                    asked.elapsed().as_secs_f64(),
                    request.deadline().as_secs_f64(),
                    self.grace.as_secs_f64(),
                    worker.process.id(),
                    worker.last_progress()
                );
                let log = worker.log();
                self.kill(worker);
                let mut verdict = Verdict::without_checks(&request.case, status, reason.clone());
                verdict.findings.push(Finding {
                    property: "finishes".into(),
                    call: None,
                    summary: reason,
                    details: log,
                    ..Finding::default()
                });
                verdict
            }
            Err(End::Death) => {
                let status = worker.process.after_death();
                let how = status.map_or_else(|| "closed its output but did not end".into(), ending);
                let reason = format!("worker {} {how}; {}", worker.process.id(), worker.last_progress());
                let log = worker.log();
                self.kill(worker);
                let mut verdict = Verdict::without_checks(&request.case, Status::Crash, reason.clone());
                verdict.blamed.extend(status.map(|status| Blamed::process(how_of(status))));
                verdict.findings.push(Finding {
                    property: "survives".into(),
                    call: None,
                    summary: reason,
                    details: log,
                    ..Finding::default()
                });
                verdict
            }
        }
    }

    fn started(&mut self) -> Result<&mut Worker, StartError> {
        if let Some(mut worker) = self.worker.take() {
            match worker.process.ended() {
                None => return Ok(self.worker.insert(worker)),
                Some(status) => {
                    self.notes.push(format!("worker {} {} after its last verdict", worker.process.id(), ending(status)));
                    self.kill(worker);
                }
            }
        }
        if let Some(reason) = &self.given_up {
            return Err(reason.clone());
        }
        match Worker::start(&self.command, self.start_limit) {
            Ok(worker) => {
                self.failed_starts = 0;
                Ok(self.worker.insert(worker))
            }
            Err(error) => {
                self.failed_starts += 1;
                if matches!(error, StartError::CannotRun { .. }) || self.failed_starts == MAX_FAILED_STARTS {
                    self.given_up = Some(error.clone());
                }
                Err(error)
            }
        }
    }

    fn kill(&mut self, mut worker: Worker) {
        if !worker.process.kill() {
            self.notes.push(format!("worker {} was killed but is not gone after {} s", worker.process.id(), REAP.as_secs()));
        }
    }
}

/// Whether ranks of a case that is to end well share one of `gpus` GPUs.
fn shares_gpus(case: &str, gpus: usize) -> bool {
    case.parse::<Case>().is_ok_and(|case| case.fault().is_none() && case.world() as usize > gpus)
}

/// The verdict of a second look, which says so.
fn second_look(first: &Verdict, mut second: Verdict, deadline: Duration) -> Verdict {
    let (separator, seconds) = (if second.reason.is_empty() { "" } else { "; " }, deadline.as_secs_f64());
    second.reason.push_str(&format!("{separator}judged a second time, alone and with {seconds:.1} s: at first {}", first.reason));
    second
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.stop();
    }
}

fn log_finding(property: &str, log: &str) -> Option<Finding> {
    let finding = || Finding {
        property: property.into(),
        call: None,
        summary: "the worker's last output".into(),
        details: log.into(),
        ..Finding::default()
    };
    (!log.is_empty()).then(finding)
}

/// How a process ended, as data.
fn how_of(status: ExitStatus) -> How {
    match (status.code(), status.signal()) {
        (Some(status), _) => How::Exited { status },
        (None, Some(signal)) => How::Killed { signal },
        (None, None) => How::Lost,
    }
}

/// How a process ended, for people.
fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => {
            let name = Signal::from_named_raw(signal).map(|name| format!(" ({name:?})")).unwrap_or_default();
            format!("died of signal {signal}{name}")
        }
        (None, None) => "ended in a way the system does not tell".into(),
    }
}

/// A process that is ready for cases.
#[derive(Debug)]
struct Worker {
    process: Process<Answer>,
    machine: MachineInfo,
    /// Whether it has taken up the case that it was asked for last.
    began: bool,
    /// Whether devices were at work when it last spoke of them.
    busy: bool,
    progress: Option<(String, Instant)>,
    /// What it said last that it holds.
    holds: Option<Resources>,
}

impl Worker {
    fn start(command: &WorkerCommand, limit: Duration) -> Result<Worker, StartError> {
        let deadline = Instant::now() + limit;
        let mut process = Command::new(&command.program);
        process.args(&command.args).envs(command.env.iter().map(|(name, value)| (name, value))).stderr(Stdio::piped());
        let process = Process::start(&mut process)
            .map_err(|error| StartError::Failed { reason: format!("{}: {error}", command.program.display()) })?;
        let mut worker = Worker { process, machine: MachineInfo::default(), began: false, busy: false, progress: None, holds: None };
        loop {
            match worker.process.next(deadline) {
                Ok(Answer::Ready(machine)) => {
                    worker.machine = machine;
                    return Ok(worker);
                }
                Ok(Answer::Progress(line)) => worker.progress = Some((line, Instant::now())),
                Ok(Answer::Busy(busy)) => worker.busy = busy,
                Ok(Answer::Holds(resources)) => worker.holds = Some(resources),
                Ok(Answer::Verdict(verdict)) => {
                    return Err(StartError::Failed { reason: format!("it judged {} before it was ready", verdict.case) });
                }
                Ok(Answer::Began(case)) => {
                    return Err(StartError::Failed { reason: format!("it took up {case} before it was ready") });
                }
                Err(End::Nonsense(reason)) => return Err(StartError::Failed { reason }),
                Err(End::Timeout) => {
                    let reason = format!("not ready after {:.1} s; {}{}", limit.as_secs_f64(), worker.last_progress(), worker.said());
                    return Err(StartError::Failed { reason });
                }
                Err(End::Death) => {
                    let status = worker.process.after_death();
                    let said = worker.said();
                    return Err(match status.map(|status| (status.code(), ending(status))) {
                        Some((Some(CANNOT_RUN), _)) => StartError::CannotRun { reason: said.trim_start_matches(": ").to_owned() },
                        Some((_, how)) => StartError::Failed { reason: how + &said },
                        None => StartError::Failed { reason: format!("it closed its output but did not end{said}") },
                    });
                }
            }
        }
    }

    fn wait_for_verdict(&mut self, request: &Request, deadline: Instant) -> Result<Verdict, End> {
        loop {
            match self.process.next(deadline) {
                Ok(Answer::Verdict(verdict)) if verdict.case == request.case => return Ok(verdict),
                Ok(Answer::Verdict(verdict)) => {
                    let reason = format!("the worker was asked for {} and judged {}", request.case, verdict.case);
                    return Err(End::Nonsense(reason));
                }
                // The verdict shows if this is a case of another name.
                Ok(Answer::Began(_)) => self.began = true,
                Ok(Answer::Progress(line)) => self.progress = Some((line, Instant::now())),
                Ok(Answer::Busy(busy)) => self.busy = busy,
                Ok(Answer::Holds(resources)) => self.holds = Some(resources),
                Ok(Answer::Ready(_)) => return Err(End::Nonsense("the worker says a second time that it is ready".into())),
                Err(end) => return Err(end),
            }
        }
    }

    /// Marks in the log where a case begins.
    fn begin(&mut self, case: &str) {
        self.process.begin(format!("-- asked for {case}"));
        self.progress = None;
        (self.began, self.busy) = (false, false);
    }

    fn last_progress(&self) -> String {
        match &self.progress {
            Some((line, when)) => format!("last progress {:.1} s ago: {line}", when.elapsed().as_secs_f64()),
            None => "it reported no progress".into(),
        }
    }

    fn log(&self) -> String {
        self.process.log().iter().map(|line| format!("{line}\n")).collect()
    }

    /// The last lines of the log, on one line, with a colon before them.
    fn said(&self) -> String {
        let last: Vec<&str> =
            self.process.log().iter().rev().take(5).rev().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
        if last.is_empty() { String::new() } else { format!(": {}", last.join("; ")) }
    }
}
