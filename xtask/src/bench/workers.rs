//! The workers of `bench`: one live process for each place that contenders run in, of which one works at a time. Those of PyTorch's operations are
//! ranks of a script of ours (`ranks.py`), which speaks as the others do.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    env, fs,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{self, Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use passmuster::{
    bench::{Place, WITHOUT_MULTICAST},
    conformance::worker::{CANNOT_RUN, FAREWELL, PREFIX},
    machine::{MachineError, MachineInfo},
};

use super::worker::{Answer, Request};
use crate::worker::Gpus;

/// After how long without an answer a worker is killed: NCCL's start included.
const SILENCE: Duration = Duration::from_secs(90);

/// The script of PyTorch's ranks.
const RANKS: &str = include_str!("ranks.py");

/// Processes that judge and time.
pub(crate) struct Workers<'a> {
    gpus: &'a Gpus,
    /// On the emulator.
    rehearse: bool,
    live: BTreeMap<Place, Worker>,
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
    /// There is no Python here that could be started, for people.
    NoPython(String),
    /// The worker died or was killed, for people.
    Lost(String),
}

impl<'a> Workers<'a> {
    /// None is started yet. A rehearsal is on the emulator.
    pub(crate) fn new(gpus: &'a Gpus, rehearse: bool) -> Workers<'a> {
        Workers { gpus, rehearse, live: BTreeMap::new() }
    }

    /// The machine, as a worker without an environment of its own knows it. `None` where this machine cannot run any.
    ///
    /// # Errors
    /// Where the worker ends in another way.
    pub(crate) fn machine(&mut self) -> anyhow::Result<Option<MachineInfo>> {
        match self.ask(Place::Machine(&[]), &Request::Machine)? {
            Ok(Answer::Machine(info)) => Ok(Some(info)),
            Err(Silence::CannotRun) => Ok(None),
            Ok(_) => bail!("the bench worker answered something else"),
            Err(Silence::Lost(how) | Silence::NoPython(how)) => bail!("the bench worker did not start: {how}"),
        }
    }

    /// The machine, as all that live know it together: NCCL is known to those that have used it.
    pub(crate) fn together(&mut self) -> MachineInfo {
        let mut together: Option<MachineInfo> = None;
        for (place, worker) in &mut self.live {
            let Ok(Answer::Machine(info)) = worker.ask(&Request::Machine) else { continue };
            let known = together.get_or_insert_with(|| info.clone());
            if known.nccl.is_empty() && !info.nccl.is_empty() {
                known.nccl = info.nccl;
                known.notes.extend(info.notes.iter().filter(|(name, _)| name == "nccl_library").cloned());
            }
            if let Place::Python(_) = place {
                let news: Vec<_> = info.notes.into_iter().filter(|note| !known.notes.contains(note)).collect();
                known.notes.extend(news);
            }
        }
        together.unwrap_or_default()
    }

    /// Asks the worker of a place, which is started where there is none.
    ///
    /// # Errors
    /// Where no process can be started. One that gives no answer is no error of ours.
    pub(super) fn ask(&mut self, place: Place, request: &Request) -> anyhow::Result<Result<Answer, Silence>> {
        let worker = match self.live.entry(place) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => match (Worker::start(command(self.gpus, self.rehearse, place)?), place) {
                (Ok(worker), _) => entry.insert(worker),
                (Err(error), Place::Python(_)) => return Ok(Err(Silence::NoPython(format!("{error:#}")))),
                (Err(error), Place::Machine(_)) => return Err(error),
            },
        };
        let answer = worker.ask(request);
        let lost = match &answer {
            Ok(Answer::Round(Err(error)) | Answer::Spans(Err(error)) | Answer::Checked(Err(error)) | Answer::Held(Err(error))) => {
                matches!(error, MachineError::Hang { .. } | MachineError::Fault { .. })
            }
            Ok(Answer::Verdict(verdict)) => verdict.status.voids_device(),
            Ok(_) => false,
            Err(_) => true,
        };
        if lost {
            self.live.remove(&place);
        }
        Ok(answer)
    }
}

/// What starts the worker of a place.
fn command(gpus: &Gpus, rehearse: bool, place: Place) -> anyhow::Result<Command> {
    Ok(match place {
        Place::Machine(environment) => {
            let mut command = Command::new(env::current_exe()?);
            command.arg("bench-worker").args(rehearse.then_some("--rehearse")).args(gpus.arguments());
            command.envs(environment.iter().copied());
            command
        }
        Place::Python(world) => {
            let script = script();
            fs::write(&script, RANKS).with_context(|| format!("cannot write {}", script.display()))?;
            let mut command = Command::new("python3");
            command.arg(script).arg(format!("--world={world}")).envs(WITHOUT_MULTICAST.iter().copied());
            command
        }
    })
}

impl Drop for Workers<'_> {
    fn drop(&mut self) {
        self.live.clear();
        let _ = fs::remove_file(script());
    }
}

/// Where the script of PyTorch's ranks is written.
fn script() -> PathBuf {
    env::temp_dir().join(format!("passmuster-ranks-{}.py", process::id()))
}

impl Worker {
    fn start(mut command: Command) -> anyhow::Result<Worker> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start the bench worker")?;
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
