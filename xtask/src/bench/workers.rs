//! The workers of `bench`: one live process for each environment that contenders need, of which one works at a time.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use passmuster::{
    bench::Environment,
    conformance::worker::{CANNOT_RUN, FAREWELL, PREFIX},
    machine::{MachineError, MachineInfo},
};

use super::worker::{Answer, Request};
use crate::worker::Machine;

/// After how long without an answer a worker is killed: NCCL's start included.
const SILENCE: Duration = Duration::from_secs(90);

/// Processes that judge and time.
pub(crate) struct Workers<'a> {
    machine: &'a Machine,
    /// On the emulator.
    rehearse: bool,
    live: BTreeMap<Environment, Worker>,
}

struct Worker {
    child: Child,
    /// None once it is told to go.
    requests: Option<ChildStdin>,
    answers: Receiver<Answer>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Silence {
    /// This machine cannot run it at all.
    CannotRun,
    /// The worker died or was killed, for people.
    Lost(String),
}

impl<'a> Workers<'a> {
    /// None is started yet. A rehearsal is on the emulator.
    pub(crate) fn new(machine: &'a Machine, rehearse: bool) -> Workers<'a> {
        Workers { machine, rehearse, live: BTreeMap::new() }
    }

    /// The machine, as the worker of an environment knows it. `None` where this machine cannot run any.
    ///
    /// # Errors
    /// Where the worker ends in another way.
    pub(crate) fn machine(&mut self, environment: Environment) -> anyhow::Result<Option<MachineInfo>> {
        match self.ask(environment, &Request::Machine)? {
            Ok(Answer::Machine(info)) => Ok(Some(info)),
            Err(Silence::CannotRun) => Ok(None),
            Ok(_) => bail!("the bench worker answered something else"),
            Err(Silence::Lost(how)) => bail!("the bench worker did not start: {how}"),
        }
    }

    /// The machine, as all that live know it together: NCCL is known to those that have used it.
    pub(crate) fn together(&mut self) -> MachineInfo {
        let mut together: Option<MachineInfo> = None;
        for worker in self.live.values_mut() {
            let Ok(Answer::Machine(info)) = worker.ask(&Request::Machine) else { continue };
            let known = together.get_or_insert_with(|| info.clone());
            if known.nccl.is_empty() && !info.nccl.is_empty() {
                known.nccl = info.nccl;
                known.notes.extend(info.notes.into_iter().filter(|(name, _)| name == "nccl_library"));
            }
        }
        together.unwrap_or_default()
    }

    /// Asks the worker with an environment, which is started where there is none.
    ///
    /// # Errors
    /// Where no process can be started. One that gives no answer is no error of ours.
    pub(super) fn ask(&mut self, environment: Environment, request: &Request) -> anyhow::Result<Result<Answer, Silence>> {
        if !self.live.contains_key(environment) {
            self.live.insert(environment, Worker::start(self.machine, self.rehearse, environment)?);
        }
        let worker = self.live.get_mut(environment).expect("it is there");
        let answer = worker.ask(request);
        let lost = match &answer {
            Ok(Answer::Round(Err(error)) | Answer::Spans(Err(error)) | Answer::Checked(Err(error))) => {
                matches!(error, MachineError::Hang { .. } | MachineError::Fault { .. })
            }
            Ok(Answer::Verdict(verdict)) => verdict.status.voids_device(),
            Ok(_) => false,
            Err(_) => true,
        };
        if lost {
            self.live.remove(environment);
        }
        Ok(answer)
    }
}

impl Worker {
    fn start(machine: &Machine, rehearse: bool, environment: Environment) -> anyhow::Result<Worker> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("bench-worker")
            .args(rehearse.then_some("--rehearse"))
            .args(machine.arguments())
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the bench worker")?;
        let requests = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, answers) = mpsc::channel();
        // Libraries print on standard output too.
        let parsed = |line: String| serde_json::from_str(line.split_once(PREFIX)?.1).ok();
        thread::spawn(move || output.lines().map_while(Result::ok).filter_map(parsed).try_for_each(|answer| sender.send(answer).ok()));
        Ok(Worker { child, requests, answers })
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, Silence> {
        let line = serde_json::to_string(request).expect("a request is plain data");
        // One that has died closes the pipe: its answer does not come, which says how.
        let _ = self.requests.as_mut().map(|requests| writeln!(requests, "{line}").and_then(|()| requests.flush()));
        self.answers.recv_timeout(SILENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => Silence::Lost(format!("no answer for {} s", SILENCE.as_secs())),
            RecvTimeoutError::Disconnected => match self.child.wait() {
                Ok(status) if status.code() == Some(CANNOT_RUN) => Silence::CannotRun,
                Ok(status) => Silence::Lost(status.to_string()),
                Err(error) => Silence::Lost(error.to_string()),
            },
        })
    }
}

impl Drop for Worker {
    /// Lets it go by itself, and by force where it does not.
    fn drop(&mut self) {
        drop(self.requests.take());
        let told = Instant::now();
        while told.elapsed() < FAREWELL && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
