//! Cases shared out among processes: one coordinates and hands them out, the others judge them, each on emulators of its own. The verdicts do not depend on who
//! judged what.

mod handout;

use std::{
    collections::BTreeMap,
    panic::resume_unwind,
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::anyhow;
use passmuster_bootstrap::{Bootstrap, BootstrapError, Event, Rank};
use passmuster_harness::conformance::{Case, Status, Verdict, supervisor::StartError};
use passmuster_plan::machine::MachineInfo;
use serde::{Deserialize, Serialize};

use self::handout::Handout;
use crate::{
    costs::Costs,
    emulated::{Emulated, JudgeConfig},
    judging::{Judged, Judging},
    launch::Job,
    progress::Progress,
};

/// How often those that say nothing are looked for.
const LOOK: Duration = Duration::from_millis(200);

/// How often a process says that it is there, while cases take long.
const ALIVE: Duration = Duration::from_secs(5);

/// After how long without a word a process is lost, stopped or its host gone.
const SILENT: Duration = Duration::from_secs(60);

/// How long processes may take to leave.
const FAREWELL: Duration = Duration::from_secs(5);

/// What a process is asked.
#[derive(Serialize, Deserialize)]
enum Request {
    /// To judge a case.
    Judge {
        /// Its place in the list.
        index: usize,
        /// Its id.
        case: String,
    },
    /// Nothing any more.
    Enough,
}

/// What a process says.
#[derive(Serialize, Deserialize)]
enum Answer {
    /// It judges `threads` cases of this run at once.
    Ready { threads: usize, run: String },
    /// What became of a case.
    Verdict { index: usize, verdict: Box<Verdict> },
    /// It is there.
    Alive,
}

/// Judges cases by other processes.
pub(crate) struct Spread {
    job: Option<Job>,
    /// Judges what nobody else is left for, and smaller cases.
    local: Emulated,
    /// What all must be asked for: see [`Answer::Ready`].
    run: String,
    /// The process's own rank, at work.
    own: Option<thread::JoinHandle<anyhow::Result<()>>>,
}

/// A process that judges.
struct Process {
    /// How many cases it judges at once; none until it has said so.
    threads: usize,
    heard: Instant,
}

impl Spread {
    /// `own` is the rank of this process, if it is one; `judging` is then what it judges with.
    pub(crate) fn new(job: Job, run: String, local: Emulated, own: Option<(Rank, JudgeConfig)>) -> Spread {
        let of_rank = run.clone();
        let own = own.map(|(rank, judging)| {
            thread::spawn(move || serve(&rank, &judging, of_rank).inspect_err(|error| rank.clone().give_up(&format!("{error:#}"))))
        });
        Spread { job: Some(job), local, run, own }
    }
}

impl Judging for Spread {
    fn machine(&mut self, cases: &[Case]) -> Result<MachineInfo, StartError> {
        self.local.machine(cases)
    }

    fn all(&mut self, cases: &[Case], judged: &Judged<'_>) -> Result<(MachineInfo, Vec<Verdict>), StartError> {
        let machine = self.local.machine(cases)?;
        let Some(job) = self.job.take() else { return self.local.all(cases, judged) };
        let recorded = Costs::recorded();
        let costs: Vec<f64> = cases.iter().map(|case| recorded.of(case)).collect();
        let progress = Progress::of(&costs);
        let mut verdicts: Vec<Option<Verdict>> = vec![None; cases.len()];
        let mut keep = |index: usize, verdict: Verdict| {
            if verdict.status.is_finding() {
                progress.found();
            }
            progress.done(index);
            judged((index, &verdict));
            verdicts[index] = Some(verdict);
        };
        hand_out(&job, &self.run, cases, &costs, &mut keep, &|line| progress.suspend(|| eprintln!("{line}")))?;
        progress.finish();
        drop(job);
        if let Some(own) = self.own.take() {
            // What went wrong there was told as the loss of its rank.
            own.join().unwrap_or_else(|panic| resume_unwind(panic)).map_err(|error| StartError::Failed { reason: error.to_string() })?;
        }
        // What is left has lost all processes that could have judged it.
        let left: Vec<usize> = (0..cases.len()).filter(|&index| verdicts[index].is_none()).collect();
        if !left.is_empty() {
            eprintln!("no process is left: this one judges the {} cases that are", left.len());
            let rest: Vec<Case> = left.iter().map(|&index| cases[index].clone()).collect();
            let (_, judged) = self.local.all(&rest, &|(at, verdict)| judged((left[at], verdict)))?;
            left.iter().zip(judged).for_each(|(&index, verdict)| verdicts[index] = Some(verdict));
        }
        Ok((machine, verdicts.into_iter().flatten().collect()))
    }

    fn one(&mut self, case: &Case) -> Result<Verdict, StartError> {
        self.local.one(case)
    }
}

/// Has the job's processes judge all cases, as long as there are processes.
fn hand_out(
    job: &Job,
    run: &str,
    cases: &[Case],
    costs: &[f64],
    keep: &mut dyn FnMut(usize, Verdict),
    say: &dyn Fn(String),
) -> Result<(), StartError> {
    let hub = job.as_ref();
    let mut handout = Handout::new(costs);
    let mut processes: BTreeMap<usize, Process> =
        (0..hub.world()).map(|rank| (rank, Process { threads: 0, heard: Instant::now() })).collect();
    while !handout.is_done() && !processes.is_empty() {
        let mut lost: Vec<(usize, String)> = Vec::new();
        match hub.next(Instant::now() + LOOK) {
            Some(Event::Mail { rank, bytes }) => {
                let process = processes.get_mut(&rank);
                match serde_json::from_slice(&bytes) {
                    // What comes of one that was taken for lost is as good as any.
                    Ok(Answer::Verdict { index, verdict }) if cases.get(index).is_some_and(|case| case.to_string() == verdict.case) => {
                        if handout.judged(rank, index) {
                            keep(index, *verdict);
                        }
                    }
                    Ok(Answer::Verdict { verdict, .. }) => {
                        lost.push((rank, format!("it judged {}, which nobody asked it for", verdict.case)))
                    }
                    Ok(Answer::Ready { run: its, .. }) if its != run => {
                        let reason = format!("rank {rank} was started for another run: {its}, here {run}");
                        hub.fail(BootstrapError::SetUp(reason.clone()));
                        return Err(StartError::Failed { reason });
                    }
                    Ok(Answer::Ready { threads, .. }) => process.into_iter().for_each(|process| process.threads = threads),
                    Ok(Answer::Alive) => {}
                    Err(error) => lost.push((rank, format!("it said what is not understood: {error}"))),
                }
                processes.entry(rank).and_modify(|process| process.heard = Instant::now());
            }
            Some(Event::Lost { rank, reason }) => lost.push((rank, reason)),
            Some(Event::Left { rank }) => lost.push((rank, "it left".into())),
            Some(Event::Refused { reason }) => say(format!("a connection was refused: {reason}")),
            Some(Event::Failed(error)) => return Err(StartError::Failed { reason: error.to_string() }),
            None => {}
        }
        let silent = processes.iter().filter(|(_, process)| process.threads > 0 && process.heard.elapsed() > SILENT);
        lost.extend(silent.map(|(&rank, _)| (rank, format!("it said nothing for {} s", SILENT.as_secs()))));
        for (rank, reason) in lost {
            if processes.remove(&rank).is_none() {
                continue;
            }
            let had = handout.held_by(rank);
            say(format!("rank {rank} of {} is lost: {reason}; {had} cases are judged again", hub.world()));
            for index in handout.lost(rank) {
                let reason = format!("two processes were lost while they judged it; the last one was rank {rank}: {reason}");
                keep(index, Verdict::without_checks(cases[index].to_string(), Status::InfraError, reason));
            }
        }
        for (&rank, process) in &processes {
            while handout.held_by(rank) < process.threads
                && let Some(index) = handout.next(rank)
            {
                hub.send(rank, encoded(&Request::Judge { index, case: cases[index].to_string() }));
            }
        }
    }
    let deadline = Instant::now() + FAREWELL;
    processes.keys().for_each(|&rank| hub.send(rank, encoded(&Request::Enough)));
    while !processes.is_empty()
        && let Some(event) = hub.next(deadline)
    {
        if let Event::Left { rank } | Event::Lost { rank, .. } = event {
            processes.remove(&rank);
        }
    }
    Ok(())
}

/// Judges what the coordinator asks for, until it has enough.
///
/// # Errors
/// Where the coordinator is lost, or asks for what is no case.
pub(crate) fn serve(rank: &Rank, judging: &JudgeConfig, run: String) -> anyhow::Result<()> {
    let threads = judging.threads();
    rank.send(encoded(&Answer::Ready { threads, run }))?;
    let (work, to_do) = mpsc::channel::<(usize, Case)>();
    let to_do = Mutex::new(to_do);
    let next = || to_do.lock().unwrap_or_else(PoisonError::into_inner).recv();
    let judge = || {
        let mut judge = judging.one_by_one();
        while let Ok((index, case)) = next() {
            let verdict = Box::new(judge.judge(&case));
            // Where nobody hears it, the process is about to end.
            let _ = rank.send(encoded(&Answer::Verdict { index, verdict }));
        }
    };
    let (over, is_over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        (0..threads).for_each(|_| drop(scope.spawn(judge)));
        scope.spawn(move || {
            while is_over.recv_timeout(ALIVE) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = rank.send(encoded(&Answer::Alive));
            }
        });
        let served = loop {
            match rank.receive().map(|bytes| serde_json::from_slice(&bytes)) {
                Ok(Ok(Request::Judge { index, case })) => match case.parse() {
                    Ok(case) => _ = work.send((index, case)),
                    Err(error) => break Err(anyhow!("asked for {case}: {error}")),
                },
                Ok(Ok(Request::Enough)) => break Ok(()),
                Ok(Err(error)) => break Err(anyhow!("asked for what is not understood: {error}")),
                Err(error) => break Err(error.into()),
            }
        };
        drop((work, over));
        served
    })
}

fn encoded(message: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("a message is plain data")
}
