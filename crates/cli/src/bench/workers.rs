//! The workers of `bench`: one live process for each place that contenders run in, of which one works at a time. Those of PyTorch's operations are
//! ranks of a script of ours (`ranks.py`), which speaks as the others do.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    env, fs,
    path::PathBuf,
    process::{self, Command},
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use passmuster_bench::{ProcessKind, WITHOUT_MULTICAST};
use passmuster_harness::conformance::process::{CANNOT_RUN, End, Process};
use passmuster_plan::machine::{MachineError, MachineInfo, UNCHECKED_PATH};

use super::worker::{Answer, Request};
use crate::gpus::Gpus;

/// After how long without an answer a worker is killed: NCCL's start included.
const SILENCE: Duration = Duration::from_secs(90);

/// The script of PyTorch's ranks.
const RANKS: &str = include_str!("ranks.py");

/// Processes that judge and time.
pub(crate) struct Workers<'a> {
    /// What starts the worker of a place, for which of several starts.
    command: Box<dyn Fn(ProcessKind, u32) -> anyhow::Result<Command> + 'a>,
    silence: Duration,
    start: u32,
    live: BTreeMap<ProcessKind, Worker>,
}

struct Worker {
    process: Process<Answer>,
    /// After how long without an answer it is lost.
    silence: Duration,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Silence {
    /// This machine cannot run it at all.
    CannotRun,
    /// There is no Python here that could be started, for people.
    NoPython(String),
    /// The worker died or said what is no answer, for people.
    Lost(String),
    /// The worker said nothing for so long that it was killed, for people: nothing is known to be wrong.
    Silent(String),
}

impl<'a> Workers<'a> {
    /// None is started yet. `elsewhere` are the options that name kernels from elsewhere. A rehearsal is on the emulator.
    pub(crate) fn new(gpus: &'a Gpus, elsewhere: Vec<String>, rehearse: bool) -> Workers<'a> {
        let command = move |place, start| command(gpus, &elsewhere, rehearse, place, start);
        Workers { command: Box::new(command), silence: SILENCE, start: 0, live: BTreeMap::new() }
    }

    /// The machine, as a worker without an environment of its own knows it. `None` where this machine cannot run any.
    ///
    /// # Errors
    /// Where the worker ends in another way.
    pub(crate) fn machine(&mut self) -> anyhow::Result<Option<MachineInfo>> {
        match self.ask(ProcessKind::Machine(&[]), &Request::Machine)? {
            Ok(Answer::Machine(info)) => Ok(Some(info)),
            Err(Silence::CannotRun) => Ok(None),
            Ok(_) => bail!("the bench worker answered something else"),
            Err(Silence::Lost(how) | Silence::Silent(how) | Silence::NoPython(how)) => bail!("the bench worker did not start: {how}"),
        }
    }

    /// Lets all go: the next ones that are asked are fresh ones, whose buffers lie elsewhere.
    pub(super) fn restart(&mut self) {
        self.live.clear();
        self.start += 1;
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
            if !known.notes.iter().any(|(name, _)| name == UNCHECKED_PATH) {
                known.notes.extend(info.notes.iter().filter(|(name, _)| name == UNCHECKED_PATH).cloned());
            }
            let news = |(name, _): &(String, String)| match place {
                ProcessKind::Machine(_) | ProcessKind::Beside => false,
                ProcessKind::Ranks(..) => ["processes", "memory_shared_by"].contains(&name.as_str()),
                ProcessKind::Python(_) => true,
            };
            let news: Vec<_> = info.notes.into_iter().filter(|note| news(note) && !known.notes.contains(note)).collect();
            known.notes.extend(news);
        }
        together.unwrap_or_default()
    }

    /// Asks the worker of a place, which is started where there is none.
    ///
    /// # Errors
    /// Where no process can be started. One that gives no answer is no error of ours.
    pub(super) fn ask(&mut self, place: ProcessKind, request: &Request) -> anyhow::Result<Result<Answer, Silence>> {
        let worker = match self.live.entry(place) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => match (Worker::start((self.command)(place, self.start)?, self.silence), place) {
                (Ok(worker), _) => entry.insert(worker),
                (Err(error), ProcessKind::Python(_)) => return Ok(Err(Silence::NoPython(format!("{error:#}")))),
                (Err(error), ProcessKind::Machine(_) | ProcessKind::Ranks(..) | ProcessKind::Beside) => return Err(error),
            },
        };
        let answer = worker.ask(request);
        let lost = match &answer {
            Ok(
                Answer::Done(Err(error))
                | Answer::Round(Err(error))
                | Answer::Spans(Err(error))
                | Answer::Checked(Err(error))
                | Answer::SmFreeCheck(Err(error)),
            ) => {
                matches!(error, MachineError::Hang { .. } | MachineError::Fault { .. } | MachineError::Inconclusive { .. })
            }
            Ok(Answer::Verdict(verdict)) => verdict.voids_device() || verdict.was_given_up(),
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
fn command(gpus: &Gpus, elsewhere: &[String], rehearse: bool, place: ProcessKind, start: u32) -> anyhow::Result<Command> {
    Ok(match place {
        ProcessKind::Machine(_) | ProcessKind::Ranks(..) | ProcessKind::Beside => {
            let mut command = Command::new(env::current_exe()?);
            command.arg("bench-worker").args(rehearse.then_some("--rehearse")).args(elsewhere).args(gpus.arguments());
            command.args((start > 0).then(|| format!("--start={start}")));
            if let ProcessKind::Ranks(_, world) = place {
                command.arg(format!("--processes={world}"));
            }
            if let ProcessKind::Machine(environment) | ProcessKind::Ranks(environment, _) = place {
                command.envs(environment.iter().copied());
            }
            command
        }
        ProcessKind::Python(world) => {
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
    fn start(mut command: Command, silence: Duration) -> anyhow::Result<Worker> {
        let process = Process::start(&mut command).context("cannot start the bench worker")?;
        Ok(Worker { process, silence })
    }

    fn ask(&mut self, request: &Request) -> Result<Answer, Silence> {
        // One that has died closes the pipe: its answer does not come, which says how.
        let _ = self.process.ask(request);
        self.process.next(Instant::now() + self.silence).map_err(|end| match end {
            End::Timeout => Silence::Silent(format!("no answer for {} s", self.silence.as_secs_f64())),
            End::Nonsense(reason) => Silence::Lost(reason),
            End::Death => match self.process.after_death() {
                Some(status) if status.code() == Some(CANNOT_RUN) => Silence::CannotRun,
                Some(status) => Silence::Lost(status.to_string()),
                None => Silence::Lost("it closed its output but did not end".into()),
            },
        })
    }
}

impl Drop for Worker {
    /// Lets it go by itself; by force where it does not, as its process is dropped.
    fn drop(&mut self) {
        self.process.farewell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::turns::take;
    use indicatif::ProgressBar;
    use passmuster_bench::{CollectiveWorkload, Contender, Method, Round, Timing, Workload};
    use passmuster_harness::conformance::{Status, Verdict, process::PREFIX};
    use passmuster_plan::collective::{Collective, DType, ReduceOp};
    use std::cell::Cell;

    /// Workers that are scripts, of which `script` says what the n-th does.
    fn scripted<'a>(silence: Duration, started: &'a Cell<usize>, script: impl Fn(usize) -> String + 'a) -> Workers<'a> {
        let command = move |_: ProcessKind, _: u32| {
            let mut command = Command::new("sh");
            command.arg("-c").arg(script(started.replace(started.get() + 1)));
            Ok(command)
        };
        Workers { command: Box::new(command), silence, start: 0, live: BTreeMap::new() }
    }

    /// Answers one request.
    fn say(answer: &Answer) -> String {
        format!("read request; {}", answered(answer))
    }

    fn answered(answer: &Answer) -> String {
        format!("echo 'a library prints'; echo '{PREFIX}{}'; ", serde_json::to_string(answer).unwrap())
    }

    fn lost(workers: &mut Workers<'_>) -> String {
        match workers.ask(ProcessKind::Machine(&[]), &Request::Machine).unwrap() {
            Err(Silence::Lost(how) | Silence::Silent(how)) => how,
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("it answered"),
        }
    }

    /// If this fails, a worker that died or says nothing more holds up the bench, or is asked again.
    #[test]
    fn the_dead_and_the_silent_are_lost_and_the_next_is_a_fresh_one() {
        let started = Cell::new(0);
        let answers = say(&Answer::Machine(MachineInfo::default()));
        let mut workers = scripted(Duration::from_secs(60), &started, |number| match number {
            0 => "read request; exit 7".into(),
            1 => "read request; kill -9 $$".into(),
            2 => "exit 3".into(),
            3 => format!("read request; echo '{PREFIX}no JSON'; read request"),
            _ => format!("{answers}{answers}"),
        });
        assert_eq!(lost(&mut workers), "exit status: 7");
        assert_eq!(lost(&mut workers), "signal: 9 (SIGKILL)");
        assert!(matches!(workers.ask(ProcessKind::Machine(&[]), &Request::Machine), Ok(Err(Silence::CannotRun))));
        let how = lost(&mut workers);
        assert!(how.starts_with("the worker's answer is not understood") && how.ends_with("no JSON"), "{how}");
        for _ in 0..2 {
            assert!(matches!(workers.ask(ProcessKind::Machine(&[]), &Request::Machine), Ok(Ok(Answer::Machine(_)))));
        }
        assert_eq!(started.get(), 5, "one that answers is asked again");
        drop(workers);

        let started = Cell::new(0);
        let mut workers = scripted(Duration::from_millis(200), &started, |_| "exec sleep 600".into());
        assert_eq!(lost(&mut workers), "no answer for 0.2 s");
        assert!(workers.live.is_empty());
    }

    /// Two contenders at two sizes. The worker of the first ends so when it is first timed.
    fn timings(end: &str) -> (Vec<Timing>, usize) {
        let started = Cell::new(0);
        let judged = say(&Answer::Verdict(Verdict::without_checks("a case", Status::Pass, "")));
        let (graph, eager) = (vec![4.0], vec![5.0]);
        let (products, conditions, rendezvous) = (Vec::new(), Vec::new(), 1);
        let timed = say(&Answer::Round(Ok(Round { graph, eager, products, conditions, rendezvous, hosts: None })));
        let mut workers = scripted(Duration::from_millis(1500), &started, |number| match number {
            0 => format!("{judged}{judged}read request; {end}"),
            // The other's rounds, its case at the next size, and its rounds there.
            _ => format!("{timed}{timed}{judged}{timed}{timed}"),
        });
        let contenders =
            ["one_shot", "two_shot"].map(|name| Contender::Algorithm(crate::built_in().find(Collective::AllReduce, name).unwrap()));
        let (collective, dtype, op) = (Collective::AllReduce, DType::BF16, ReduceOp::Sum);
        let method = Method {
            calls: 1,
            replays: 1,
            warm_up: 0,
            rounds: 2,
            beside: false,
            copies: 1,
            flush: 0,
            gated: false,
            ..Method::for_bytes(8192)
        };
        let workloads = [8192, 65536]
            .map(|bytes| (Workload::Collective(CollectiveWorkload { collective, dtype, op, world: 2, bytes, in_place: false }), method));
        let timings = take(&mut workers, &contenders, &workloads, &ProgressBar::hidden(), &|_, _| ()).unwrap();
        drop(workers);
        (timings, started.get())
    }

    /// If this fails, the buffers of later starts lie where those of the first do.
    #[test]
    fn workers_are_told_of_which_start_they_are() {
        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            gpus: Gpus,
        }
        let Only { gpus } = clap::Parser::parse_from(["bench"]);
        let told = |start| command(&gpus, &[], true, ProcessKind::Machine(&[]), start).unwrap().get_args().any(|of| of == "--start=1");
        assert_eq!([0, 1].map(told), [false, true]);
    }

    /// If this fails, small calls take longer where nothing else runs on the GPUs, or rounds that are to be of several processes are of one.
    #[rstest::rstest]
    #[case::alone(1, false, &["judge round round"])]
    #[case::beside_another(1, true, &["judge get_ready round get_ready round", "run_beside run_beside"])]
    #[case::restarted(2, false, &["judge round", "round"])]
    fn rounds_are_of_so_many_processes_and_another_runs_before_each(#[case] starts: u32, #[case] beside: bool, #[case] asked: &[&str]) {
        let started = Cell::new(0);
        let answer = |request: &str| match request {
            "judge" => Answer::Verdict(Verdict::without_checks("a case", Status::Pass, "")),
            "round" => Answer::Round(Ok(Round { graph: vec![4.0], eager: vec![5.0], rendezvous: 1, ..Round::default() })),
            _ => Answer::Done(Ok(())),
        };
        // One that is asked something else ends.
        let told =
            |request: &str| format!("read request; case $request in *{request}*) ;; *) exit 9;; esac; {}", answered(&answer(request)));
        let mut workers = scripted(SILENCE, &started, |number| asked[number].split(' ').map(told).chain(["read request".into()]).collect());
        let (collective, dtype, op) = (Collective::AllReduce, DType::BF16, ReduceOp::Sum);
        let method = Method { rounds: 2, starts, beside, ..Method::for_bytes(8192) };
        let workload = Workload::Collective(CollectiveWorkload { collective, dtype, op, world: 2, bytes: 8192, in_place: false });
        let contender = Contender::Algorithm(crate::built_in().find(collective, "one_shot").unwrap());
        let timings = take(&mut workers, &[contender], &[(workload, method)], &ProgressBar::hidden(), &|_, _| ()).unwrap();
        assert_eq!(workers.start, starts - 1);
        drop(workers);
        assert_eq!((timings[0].status, &*timings[0].reason), (Status::Pass, ""));
        assert_eq!(timings[0].microseconds.as_ref().unwrap().rounds, [4.0, 4.0]);
        assert_eq!(started.get(), asked.len());
    }

    /// If this fails, a contender whose worker died is timed on, or takes another with it that has the same worker.
    #[test]
    fn a_contender_whose_worker_died_is_not_timed_again() {
        is_not_timed_again("exit 9", Status::Crash, "the bench worker was lost: exit status: 9");
    }

    #[test]
    fn a_contender_whose_worker_is_silent_is_not_timed_again() {
        is_not_timed_again("exec sleep 600", Status::Inconclusive, "the bench worker was killed: no answer for 1.5 s");
    }

    #[track_caller]
    fn is_not_timed_again(end: &str, status: Status, how: &str) {
        let (timings, started) = timings(end);
        let told: Vec<_> = timings.iter().map(|timing| (timing.contender.as_str(), timing.status, timing.reason.as_str())).collect();
        let after = format!("not timed after a verdict of {status} at all_reduce bf16 sum, w=2 8 KiB");
        let other = ("two_shot", Status::Pass, "");
        assert_eq!(told, [("one_shot", status, how), other, ("one_shot", Status::NotRun, &after), other]);
        let timed = timings.iter().map(|timing| timing.microseconds.is_some());
        assert_eq!(timed.collect::<Vec<_>>(), [false, true, false, true]);
        assert_eq!(started, 2);
    }
}
