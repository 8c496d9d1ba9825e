//! The supervisor: runs cases in a worker process, in bounded time. A hang or a crash is a verdict with a name, and the next case runs in a
//! fresh process.
//!
//! ```no_run
//! use passmuster::conformance::{supervisor::{Supervisor, WorkerCommand}, worker::Request};
//! use std::time::Duration;
//!
//! let mut supervisor = Supervisor::new(WorkerCommand::of_this_program(["worker"])?);
//! let verdict = supervisor.judge(&Request::new("all_reduce/two_shot:bf16,sum:w=8:n=1040", Duration::from_secs(5)));
//! println!("{}: {}", verdict.case, verdict.status);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::{
    collections::VecDeque,
    env,
    ffi::OsString,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::{
    Finding, Status, Verdict, children,
    worker::{Answer, CANNOT_RUN, FAREWELL, PREFIX, Request},
};
use passmuster_collectives::machine::MachineInfo;

/// Lines of a worker's other output that are kept for its report.
const LOG_LINES: usize = 200;

/// Bytes of one such line that are kept: a kernel that prints without end must not fill this process's memory.
const LOG_LINE_BYTES: u64 = 1 << 20;

/// How long a worker that was killed may take to be gone. One in an uninterruptible driver call may take for ever.
const REAP: Duration = Duration::from_secs(10);

/// How long the last words of a worker that has ended may be on their way.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How often the end of a worker is looked for: something that it started may hold its output open.
const LOOK: Duration = Duration::from_millis(100);

/// Times that one case is asked for where workers die before they take it up.
const ASKED: u32 = 2;

/// How many cases of a run are judged a second time because time was up, unless the supervisor is told otherwise.
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
    /// How long a worker may take until it is ready. Opening eight GPUs and NCCL takes many seconds. Default: 2 minutes.
    pub start_limit: Duration,
    /// How long after a request's deadline the worker is killed: the time it has to say by itself who is stuck. Default: 5 seconds.
    pub grace: Duration,
    /// How many more cases may be judged a second time, alone and with more time, because time was up and nothing was known to be wrong. Default:
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
    /// A supervisor that has not yet started a worker.
    pub fn new(command: WorkerCommand) -> Supervisor {
        Supervisor {
            command,
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
        self.worker.as_ref().map(|worker| worker.process.child.id())
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
    pub fn judge(&mut self, request: &Request) -> Verdict {
        let start = Instant::now();
        let (mut verdict, time_was_up) = self.judge_once(request);
        if time_was_up && self.second_looks > 0 {
            self.second_looks -= 1;
            self.stop();
            let deadline = (request.deadline() * self.patience).min(LONGEST_LOOK.max(request.deadline()));
            let (second, _) = self.judge_once(&Request::new(&request.case, deadline));
            verdict = second_look(&verdict, second, deadline);
        } else if time_was_up {
            verdict.reason.push_str("; it was not judged a second time, as others of this run were");
        }
        if verdict.milliseconds == 0.0 {
            verdict.milliseconds = start.elapsed().as_secs_f64() * 1e3;
        }
        verdict
    }

    /// Ends the worker: politely, by the end of its input, and after [`FAREWELL`] by force. The next case starts another.
    pub fn stop(&mut self) {
        if let Some(mut worker) = self.worker.take() {
            drop(worker.input.take());
            let gone = worker.process.wait(FAREWELL).is_some();
            if !gone {
                self.kill(worker);
            }
        }
    }

    /// Judges one case, and says whether time was up without more being known.
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
            let _ = worker.ask(request);
            let end = worker.wait_for_verdict(request, asked + limit);

            let Some(mut worker) = self.worker.take() else { unreachable!("a worker was started") };
            if matches!(end, Err(End::Death)) && !worker.began && times < ASKED {
                // It was dying of an earlier case, too late for the look in `started`.
                let how = worker.process.wait(REAP).map_or_else(|| "closed its output".into(), ending);
                self.notes.push(format!("worker {} {how} after its last verdict", worker.process.child.id()));
                self.kill(worker);
                continue;
            }
            let no_answer = matches!(end, Err(End::Timeout));
            let verdict = self.verdict_of(request, asked, worker, end);
            let time_was_up = no_answer || verdict.status == Status::Inconclusive;
            return (verdict, time_was_up);
        }
    }

    /// What the end of a wait says of the case. The worker is kept where nothing has harmed it.
    fn verdict_of(&mut self, request: &Request, asked: Instant, mut worker: Worker, end: Result<Verdict, End>) -> Verdict {
        match end {
            // One that was given up may have left threads in a library.
            Ok(verdict) if !verdict.status.voids_device() && verdict.status != Status::Inconclusive => {
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
                    worker.process.child.id(),
                    worker.last_progress()
                );
                let log = worker.log();
                self.kill(worker);
                let mut verdict = Verdict::without_checks(&request.case, status, reason.clone());
                verdict.findings.push(Finding { property: "finishes".into(), call: None, summary: reason, details: log });
                verdict
            }
            Err(End::Death) => {
                let how = worker.process.wait(REAP).map_or_else(|| "closed its output but did not end".into(), ending);
                worker.drain_log();
                let reason = format!("worker {} {how}; {}", worker.process.child.id(), worker.last_progress());
                let log = worker.log();
                self.kill(worker);
                let mut verdict = Verdict::without_checks(&request.case, Status::Crash, reason.clone());
                verdict.findings.push(Finding { property: "survives".into(), call: None, summary: reason, details: log });
                verdict
            }
        }
    }

    fn started(&mut self) -> Result<&mut Worker, StartError> {
        if let Some(mut worker) = self.worker.take() {
            match worker.process.ended() {
                None => return Ok(self.worker.insert(worker)),
                Some(status) => {
                    self.notes.push(format!("worker {} {} after its last verdict", worker.process.child.id(), ending(status)));
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
            self.notes.push(format!("worker {} was killed but is not gone after {} s", worker.process.child.id(), REAP.as_secs()));
        }
    }
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
    let finding = || Finding { property: property.into(), call: None, summary: "the worker's last output".into(), details: log.into() };
    (!log.is_empty()).then(finding)
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

/// Why the wait for an answer ended without one.
enum End {
    /// The worker said something that it must not say.
    Nonsense(String),
    Timeout,
    /// The worker's output ended.
    Death,
}

/// What comes from a worker.
enum Event {
    Answer(Box<Answer>),
    Log(String),
    Nonsense(String),
    /// Standard output or standard error has ended.
    Closed(Stream),
}

#[derive(Clone, Copy, PartialEq)]
enum Stream {
    Output,
    Error,
}

/// A process that is ready for cases.
#[derive(Debug)]
struct Worker {
    process: Process,
    input: Option<ChildStdin>,
    events: Receiver<Event>,
    machine: MachineInfo,
    /// Whether it has taken up the case that it was asked for last.
    began: bool,
    /// Whether devices were at work when it last spoke of them.
    busy: bool,
    progress: Option<(String, Instant)>,
    log: VecDeque<String>,
    /// Whether more may come on standard output.
    output_open: bool,
    /// Whether more may come on standard error.
    errors_open: bool,
}

impl Worker {
    fn start(command: &WorkerCommand, limit: Duration) -> Result<Worker, StartError> {
        let deadline = Instant::now() + limit;
        let mut process = Command::new(&command.program);
        process
            .args(&command.args)
            .envs(command.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = children::spawn(&mut process)
            .map_err(|error| StartError::Failed { reason: format!("{}: {error}", command.program.display()) })?;
        let input = child.stdin.take();
        let output = child.stdout.take().expect("its output is piped");
        let errors = child.stderr.take().expect("its errors are piped");
        let (sender, events) = mpsc::channel();
        read(output, Stream::Output, sender.clone());
        read(errors, Stream::Error, sender);

        let process = Process { child, status: None };
        let mut worker = Worker {
            process,
            input,
            events,
            machine: MachineInfo::default(),
            began: false,
            busy: false,
            progress: None,
            log: VecDeque::new(),
            output_open: true,
            errors_open: true,
        };
        loop {
            match worker.next(deadline) {
                Ok(Answer::Ready(machine)) => {
                    worker.machine = machine;
                    return Ok(worker);
                }
                Ok(Answer::Progress(line)) => worker.progress = Some((line, Instant::now())),
                Ok(Answer::Busy(busy)) => worker.busy = busy,
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
                    let status = worker.process.wait(REAP);
                    worker.drain_log();
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

    fn ask(&mut self, request: &Request) -> io::Result<()> {
        let Some(input) = &mut self.input else { return Ok(()) };
        let mut line = serde_json::to_string(request).expect("a request is plain data");
        line.push('\n');
        input.write_all(line.as_bytes())
    }

    fn wait_for_verdict(&mut self, request: &Request, deadline: Instant) -> Result<Verdict, End> {
        loop {
            match self.next(deadline) {
                Ok(Answer::Verdict(verdict)) if verdict.case == request.case => return Ok(verdict),
                Ok(Answer::Verdict(verdict)) => {
                    let reason = format!("the worker was asked for {} and judged {}", request.case, verdict.case);
                    return Err(End::Nonsense(reason));
                }
                // A case of another name is told by its verdict.
                Ok(Answer::Began(_)) => self.began = true,
                Ok(Answer::Progress(line)) => self.progress = Some((line, Instant::now())),
                Ok(Answer::Busy(busy)) => self.busy = busy,
                Ok(Answer::Ready(_)) => return Err(End::Nonsense("the worker says a second time that it is ready".into())),
                Err(end) => return Err(end),
            }
        }
    }

    /// Marks in the log where a case begins.
    fn begin(&mut self, case: &str) {
        while let Ok(event) = self.events.try_recv() {
            self.keep(event);
        }
        self.keep(Event::Log(format!("-- asked for {case}")));
        self.progress = None;
        (self.began, self.busy) = (false, false);
    }

    /// The next answer. Log lines on the way are kept.
    fn next(&mut self, mut deadline: Instant) -> Result<Answer, End> {
        while self.output_open {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left.min(LOOK)) {
                Ok(Event::Answer(answer)) => return Ok(*answer),
                Ok(Event::Nonsense(reason)) => return Err(End::Nonsense(reason)),
                Ok(event) => self.keep(event),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) if !left.is_zero() => {
                    if self.process.ended().is_some() {
                        deadline = deadline.min(Instant::now() + LAST_WORDS);
                    }
                }
                Err(RecvTimeoutError::Timeout) if self.process.ended().is_some() => break,
                Err(RecvTimeoutError::Timeout) => return Err(End::Timeout),
            }
        }
        Err(End::Death)
    }

    fn keep(&mut self, event: Event) {
        match event {
            Event::Log(line) => {
                if self.log.len() == LOG_LINES {
                    self.log.pop_front();
                }
                self.log.push_back(line);
            }
            Event::Closed(Stream::Output) => self.output_open = false,
            Event::Closed(Stream::Error) => self.errors_open = false,
            // An answer that comes too late: the verdict has been given.
            Event::Answer(_) | Event::Nonsense(_) => {}
        }
    }

    /// Takes the last words of a worker that has ended.
    fn drain_log(&mut self) {
        let deadline = Instant::now() + LAST_WORDS;
        while self.output_open || self.errors_open {
            match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(event) => self.keep(event),
                Err(_) => return,
            }
        }
    }

    fn last_progress(&self) -> String {
        match &self.progress {
            Some((line, when)) => format!("last progress {:.1} s ago: {line}", when.elapsed().as_secs_f64()),
            None => "it reported no progress".into(),
        }
    }

    fn log(&self) -> String {
        self.log.iter().map(|line| format!("{line}\n")).collect()
    }

    /// The last lines of the log, on one line, with a colon before them.
    fn said(&self) -> String {
        let last: Vec<&str> = self.log.iter().rev().take(5).rev().map(|line| line.trim()).filter(|line| !line.is_empty()).collect();
        if last.is_empty() { String::new() } else { format!(": {}", last.join("; ")) }
    }
}

/// Reads a stream to its end on a thread of its own.
fn read(stream: impl Read + Send + 'static, which: Stream, sender: Sender<Event>) {
    thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            match reader.by_ref().take(LOG_LINE_BYTES).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim_end_matches(['\n', '\r']);
            // A library may have printed the beginning of a line of its own.
            let event = match text.find(PREFIX).filter(|_| which == Stream::Output) {
                None => Event::Log(text.to_owned()),
                Some(at) => {
                    if at > 0 && sender.send(Event::Log(text[..at].to_owned())).is_err() {
                        return;
                    }
                    match serde_json::from_str(&text[at + PREFIX.len()..]) {
                        Ok(answer) => Event::Answer(Box::new(answer)),
                        Err(error) => Event::Nonsense(format!("the worker's answer is not understood: {error}: {text}")),
                    }
                }
            };
            if sender.send(event).is_err() {
                return;
            }
        }
        // The receiver may be gone, and with it who would care.
        let _ = sender.send(Event::Closed(which));
    });
}

/// A child that leads its own process group, and dies with this value.
#[derive(Debug)]
struct Process {
    child: Child,
    status: Option<ExitStatus>,
}

impl Process {
    /// Its status, if it has ended. What it started and left behind is killed.
    fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() && self.is_zombie() {
            self.kill_group();
            self.status = children::reap(&mut self.child).ok().flatten();
        }
        self.status
    }

    /// Whether it has ended. It is not reaped, so that its number, which is its group's, belongs to nobody else yet.
    fn is_zombie(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.id().is_some_and(|id| waitid(WaitId::Pid(id), options).is_ok_and(|status| status.is_some()))
    }

    /// Only for a process that is not reaped.
    fn kill_group(&self) {
        if let Some(group) = self.id() {
            // It fails where nobody is left in the group, which is as well.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    fn id(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Its status, if it ends within `limit`.
    fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        let mut pause = Duration::from_micros(200);
        while self.ended().is_none() && Instant::now() < deadline {
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(20));
        }
        self.status
    }

    /// Kills it and what it started. Returns whether it is gone.
    fn kill(&mut self) -> bool {
        if self.ended().is_none() {
            self.kill_group();
        }
        self.wait(REAP).is_some()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
