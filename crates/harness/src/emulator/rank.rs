//! The machine with each rank in a process of its own.
//!
//! Every process has a [`RankEmulator`] and asks the same of it in the same order. They meet by a [`Bootstrap`] where a group is opened and where a run
//! begins and ends. In between, each goes through its own rank's part of the script, on memory that all of them map, and tells the others what the
//! [board](super::board) has.

use std::{
    hash::{DefaultHasher, Hasher},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    board::{Board, End, MOST_CALLS, Watch, exchange},
    group::{Bytes, segment_bytes},
    machine::{Emulator, EmulatorOptions, Ended, of_stopped, so_far},
    memory::{Segment, SegmentId},
    races::Profile,
    schedule::{LibraryCall, Peers, Stopped},
    strategy::Interleaving,
};
use passmuster_bootstrap::{Bootstrap, BootstrapError, Loss};
use passmuster_plan::{
    machine::{Elapsed, How, Machine, MachineError, MachineInfo, Run, Stuck, intervals},
    plan::{BufferSpec, MAX_RANKS, Region, Script},
};

/// Places of warps and streams that a rank tells the others at most.
const TOLD_PLACES: usize = 32;

/// How long after the deadline of a run a rank that is done waits for others before it asks who is missing, and for how long it asks then.
const GRACE: Duration = Duration::from_millis(100);
const LAST_LIMIT: Duration = Duration::from_millis(1500);

/// One rank of an emulator whose ranks are processes, each of which runs the PTX of its own kernels.
///
/// All processes open it with the same options, and then call [`open_group`](Machine::open_group), [`close_groups`](Machine::close_groups) and [`run`](Machine::run) alike,
/// with the same arguments and in the same order. A group of fewer ranks than there are processes has the first ranks. Reads and writes are a process's own affair: of
/// any rank's buffers, which all are in memory that everybody maps, while nobody runs anything.
///
/// Atomics, fences, and what is released and acquired are the processor's, so a run is no function of its seed, though what a correct kernel computes is. Races are not looked
/// for. What else is not checked, and what is: `docs/emulator/processes.md`.
///
/// An error of a run is the same on all ranks. Marks and fetches of a [`Run`] are those of this rank; others' are NaN and none.
pub struct RankEmulator {
    emulator: Emulator,
    bootstrap: Box<dyn Bootstrap>,
    board: Board,
    /// Why it must not be used again.
    broken: Option<MachineError>,
}

/// What a rank says where a group is opened.
#[derive(Serialize, Deserialize)]
struct Opening {
    /// Windows of addresses that its memory has given out.
    windows: usize,
    /// A digest of what was asked for.
    asked: u64,
    /// Why it cannot.
    refused: Option<MachineError>,
}

/// What a rank says before a run.
#[derive(Serialize, Deserialize)]
struct Beginning {
    /// Why it cannot.
    error: Option<MachineError>,
    /// What it is going to call the library for.
    calls: Vec<LibraryCall>,
}

/// What became of one rank's part of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Outcome {
    ending: Ending,
    /// Emulated nanoseconds.
    after_ns: u64,
    stuck: Vec<Stuck>,
    standing: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
enum Ending {
    Done,
    /// It does not finish, and why.
    Hang(String),
    /// A limit was reached while it was at work.
    Limit(String),
    /// What ended it otherwise.
    Error(MachineError),
    /// Another rank had given up.
    Peer,
    /// It waited for others until the deadline.
    Late,
}

impl RankEmulator {
    /// This process's rank, without groups. All processes must call it. Races are not looked for, whatever the options say.
    ///
    /// # Errors
    /// `NotSupported` for more processes than there are ranks at most; `Fault` where another process is lost or has given up.
    pub fn new(options: EmulatorOptions, mut bootstrap: Box<dyn Bootstrap>) -> Result<RankEmulator, MachineError> {
        let processes = bootstrap.world();
        if processes > MAX_RANKS {
            return Err(MachineError::NotSupported {
                reason: format!("{processes} processes: the emulator has {MAX_RANKS} ranks at most"),
            });
        }
        let rank = bootstrap.rank();
        let board = Board::open(&mut *bootstrap).map_err(|error| of_exchange(rank, error))?;
        let emulator = Emulator::new(EmulatorOptions { profile: Profile::Off, ..options });
        Ok(RankEmulator { emulator, bootstrap, board, broken: None })
    }

    /// This process's rank.
    pub fn rank(&self) -> usize {
        self.bootstrap.rank()
    }

    /// Runs scripts under this schedule from now on: in it, this rank's streams and warps take turns.
    pub fn set_interleaving(&mut self, interleaving: Interleaving) {
        self.emulator.set_interleaving(interleaving);
    }

    /// Meets the other ranks: who reads next what they have written in their buffers finds it there. `what` names it in errors.
    ///
    /// # Errors
    /// `Fault` where another process is lost or has given up.
    pub fn barrier(&mut self, what: &str) -> Result<(), MachineError> {
        self.usable()?;
        self.bootstrap.barrier(what).map_err(|error| self.lost(error))
    }

    fn usable(&self) -> Result<(), MachineError> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// The error for an exchange that did not come to its end. Nothing is done any more after it.
    fn lost(&mut self, error: BootstrapError) -> MachineError {
        self.broken.insert(of_exchange(self.bootstrap.rank(), error)).clone()
    }

    /// Reports to the others an error that this process alone has.
    fn give_up(&mut self, error: MachineError) -> MachineError {
        self.bootstrap.give_up(&error.to_string());
        self.broken.insert(error).clone()
    }

    /// Gives every rank what all say.
    fn gather<T: Serialize + DeserializeOwned>(&mut self, what: &str, own: &T) -> Result<Vec<T>, MachineError> {
        let bytes = serde_json::to_vec(own).map_err(|error| MachineError::Invalid { reason: format!("{what}: {error}") })?;
        let all = self.bootstrap.all_gather(what, &bytes).map_err(|error| self.lost(error))?;
        let understood = |(rank, bytes): (usize, &Vec<u8>)| {
            serde_json::from_slice(bytes).map_err(|error| BootstrapError::SetUp(format!("rank {rank} in {what}: {error}")))
        };
        all.iter().enumerate().map(understood).collect::<Result<_, _>>().map_err(|error| self.lost(error))
    }
}

impl Machine for RankEmulator {
    fn info(&self) -> MachineInfo {
        let mut info = self.emulator.info();
        let processes = format!("{} ranks, each in a process of its own: atomics are the processor's", self.bootstrap.world());
        info.notes.push(("processes".into(), processes));
        info
    }

    fn max_world(&self) -> usize {
        self.bootstrap.world()
    }

    fn waiting_blocks(&self, world: usize, groups: usize) -> u32 {
        self.emulator.waiting_blocks(world, groups)
    }

    fn most_waiting_blocks(&self, world: usize, groups: usize) -> u32 {
        self.emulator.most_waiting_blocks(world, groups)
    }

    fn rendezvous(&self) -> u64 {
        self.emulator.rendezvous()
    }

    fn check_budget(&self, elements: u64) -> Result<(), MachineError> {
        self.emulator.check_budget(elements)
    }

    fn check_multiplications(&self, multiplications: u64) -> Result<(), MachineError> {
        self.emulator.check_multiplications(multiplications)
    }

    /// Of the first `world` ranks. All processes must ask for the same.
    fn open_group(&mut self, world: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        self.open_nodes(world, 1, buffers)
    }

    fn open_nodes(&mut self, world: usize, nodes: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        self.usable()?;
        let processes = self.bootstrap.world();
        let (rank, what) = (self.bootstrap.rank(), format!("opening of group {}", self.emulator.groups.len()));
        let asked = digest(&(world, nodes, buffers));
        // What one rank has no memory for, all do without.
        let made = self.emulator.admit((world, nodes), buffers).and_then(|admitted| {
            let bytes = segment_bytes(&admitted.0);
            let (own, file) = Segment::create(bytes).map_err(|error| MachineError::Unshared {
                rank,
                reason: format!("{what}: {bytes} bytes of memory that rank {rank} shares: {error}"),
            })?;
            Ok((admitted, bytes, own, file))
        });
        let opening = Opening { windows: self.emulator.memory.windows(), asked, refused: made.as_ref().err().cloned() };
        let openings = self.gather(&what, &opening)?;
        if let Some(other) = openings.iter().position(|opening| opening.asked != openings[0].asked) {
            let reason =
                format!("{what}: rank {other} asks for other buffers or another world size than rank 0: all must ask for the same");
            return Err(MachineError::Invalid { reason });
        }
        if world > processes {
            return Err(MachineError::NotSupported { reason: format!("world size {world}: there are {processes} processes") });
        }
        if let Some(refused) = openings.iter().find_map(|opening| opening.refused.clone()) {
            return Err(refused);
        }
        let (admitted, bytes, own, file) = made?;
        // Memory of their own, such as kernels' parameters, is not the same in all of them.
        let windows = openings.iter().map(|opening| opening.windows).max().unwrap_or(0);
        self.emulator.memory.leave_out_windows(windows);
        let segments = exchange(&mut *self.bootstrap, &what, own, file, bytes).map_err(|error| self.lost(error))?;
        let segments: Vec<SegmentId> = segments.into_iter().map(|segment| self.emulator.memory.take_in(segment)).collect();
        let opened = self.emulator.add_group((world, nodes), admitted, Bytes::Shared { segments: &segments, own: rank });
        let group = opened.map_err(|error| self.give_up(error))?;
        self.barrier(&what)?;
        Ok(group)
    }

    fn close_groups(&mut self) {
        self.emulator.close_groups();
    }

    /// Of any rank. What others have written since the last [run](Machine::run) or [barrier](RankEmulator::barrier) may be there or not.
    fn read(&mut self, group: usize, rank: usize, region: &Region) -> Result<Vec<u8>, MachineError> {
        self.emulator.read(group, rank, region)
    }

    /// Of any rank; before the next run, all processes wait for each other.
    fn write(&mut self, group: usize, rank: usize, region: &Region, bytes: &[u8]) -> Result<(), MachineError> {
        self.emulator.write(group, rank, region, bytes)
    }

    fn broken_canary(&mut self, group: usize) -> Result<Option<(usize, String, i64)>, MachineError> {
        self.emulator.broken_canary(group)
    }

    /// `deadline` is wall time. A rank that waits until then for others, while none is at work, is a hang; a rank that is at work then makes the run inconclusive.
    fn run(&mut self, script: &Script, deadline: Duration) -> Result<Run, MachineError> {
        self.usable()?;
        let needs = self.emulator.validate(script)?;
        let rank = self.bootstrap.rank();
        self.board.begin_run();
        let number = self.board.run();
        let compiled = self.emulator.compile(script, &needs, Some(rank));
        let calls =
            compiled.as_ref().ok().and_then(|actions| actions.get(rank)).map(|actions| LibraryCall::of(actions)).unwrap_or_default();
        let many = (calls.len() > MOST_CALLS).then(|| MachineError::NotSupported {
            reason: format!("{} library calls of rank {rank} in one run: at most {MOST_CALLS} between processes", calls.len()),
        });
        let beginning = match &many {
            None => Beginning { error: compiled.as_ref().err().cloned(), calls },
            Some(many) => Beginning { error: Some(many.clone()), calls: Vec::new() },
        };
        let beginnings = self.gather(&format!("start of run {number}"), &beginning)?;
        if let Some(error) = beginnings.iter().find_map(|beginning| beginning.error.clone()) {
            self.board.end_run(End::Done);
            return Err(error);
        }
        let actions = compiled?;
        let begin = Instant::now();
        let peers = Peers::new(
            &mut self.board,
            Watch::new(&mut *self.bootstrap),
            rank,
            beginnings.into_iter().map(|beginning| beginning.calls).collect(),
        );
        let ended = self.emulator.carry_out(actions, &needs, deadline, Some(peers)).map_err(|error| self.give_up(error))?;
        self.board.end_run(match &ended.stopped {
            None => End::Done,
            Some(Stopped::Late { .. } | Stopped::Limit { .. }) => End::Late,
            Some(_) => End::Stopped,
        });
        if let Some(until) = begin.checked_add(deadline.saturating_add(GRACE)) {
            self.board.wait_for_all(&mut Watch::new(&mut *self.bootstrap), until);
        }
        let undefined = ended.undefined.clone();
        let (own, marks, fetched) = outcome(ended);
        let limit = self.bootstrap.set_limit(LAST_LIMIT);
        let outcomes = self.gather(&format!("end of run {number}"), &own);
        self.bootstrap.set_limit(limit);
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(error) => return Err(self.broken.insert(with_standing(error, &own)).clone()),
        };
        match merged(&outcomes, deadline) {
            Some(error) => Err(error),
            None => Ok(Run { marks: intervals(&marks), fetched, undefined, ..Run::default() }),
        }
    }
}

/// A digest of what is asked of a machine.
fn digest(asked: &impl Serialize) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(&serde_json::to_vec(asked).unwrap_or_default());
    hasher.finish()
}

/// The error for an exchange that `rank` took part in.
fn of_exchange(rank: usize, error: BootstrapError) -> MachineError {
    let (rank, how) = error.lost().map_or((rank, How::Failed), |(rank, loss)| (rank, how_of_loss(loss)));
    MachineError::fault_of(vec![rank], how, "an exchange between the ranks' processes", error.to_string())
}

/// What a rank did that was lost so.
pub(crate) fn how_of_loss(loss: Loss) -> How {
    match loss {
        Loss::Killed { signal } => How::Killed { signal },
        Loss::Stopped { signal } => How::Stopped { signal },
        Loss::Exited { status } => How::Exited { status },
        Loss::Late => How::Late,
        Loss::Garbage => How::Garbage,
        Loss::Left | Loss::Disconnected => How::Lost,
        Loss::GaveUp => How::GaveUp,
        Loss::Panicked => How::Panicked,
    }
}

/// The same with where this rank stood.
fn with_standing(error: MachineError, own: &Outcome) -> MachineError {
    match (error, own.standing.first()) {
        (MachineError::Fault { ranks, what, code, blamed }, Some(standing)) => {
            MachineError::Fault { ranks, what, code: format!("{code}; {standing}"), blamed }
        }
        (error, _) => error,
    }
}

/// What the others learn about how a run ended here, and what stays here: marks and fetches.
fn outcome(ended: Ended) -> (Outcome, Vec<Vec<f64>>, Vec<Vec<passmuster_plan::machine::Fetched>>) {
    let Ended { stopped, now, instructions, unfinished, marks, fetched, stuck, .. } = ended;
    let (ending, mut standing) = match stopped {
        None => (Ending::Done, Vec::new()),
        Some(Stopped::Hang { cause, standing }) => (Ending::Hang(cause), standing),
        Some(Stopped::Limit { limit, standing }) => (Ending::Limit(so_far(&limit, now, instructions, &unfinished, &standing)), standing),
        Some(Stopped::Peer { standing }) => (Ending::Peer, standing),
        Some(Stopped::Late { standing }) => (Ending::Late, standing),
        Some(stopped) => (Ending::Error(of_stopped(stopped)), Vec::new()),
    };
    standing.truncate(TOLD_PLACES);
    (Outcome { ending, after_ns: now, stuck, standing }, marks, fetched)
}

/// The error of a run, by what became of each rank's part of it. What a kernel or an operation did wrong comes before that others did not finish for it, and that
/// before limits.
fn merged(outcomes: &[Outcome], deadline: Duration) -> Option<MachineError> {
    let unfinished: Vec<usize> = (0..outcomes.len()).filter(|&rank| !matches!(outcomes[rank].ending, Ending::Done)).collect();
    let stuck: Vec<Stuck> = outcomes.iter().flat_map(|outcome| outcome.stuck.clone()).collect();
    let standing = || outcomes.iter().flat_map(|outcome| outcome.standing.clone()).collect::<Vec<String>>();
    let first = |of: fn(&Ending) -> Option<String>| outcomes.iter().find_map(|outcome| of(&outcome.ending));
    let error = outcomes.iter().find_map(|outcome| match &outcome.ending {
        Ending::Error(error) => Some(error.clone()),
        _ => None,
    });
    let cause = first(|ending| if let Ending::Hang(cause) = ending { Some(cause.clone()) } else { None });
    let limit = first(|ending| if let Ending::Limit(limit) = ending { Some(limit.clone()) } else { None });
    let hang = |cause: String, standing| {
        let after_ns = outcomes.iter().map(|outcome| outcome.after_ns).max().unwrap_or(0);
        MachineError::Hang {
            after: Elapsed::EmulatedNs(after_ns),
            cause,
            stuck: stuck.clone(),
            unfinished: unfinished[..].into(),
            standing,
            blamed: Box::default(),
        }
    };
    match (error, cause, limit) {
        // A kernel whose wait gave up goes on with what is not there: what it does then is no finding of its own.
        (Some(error), _, _) if !stuck.is_empty() => Some(hang(String::new(), vec![error.to_string()])),
        (Some(error), _, _) => Some(error),
        (None, Some(cause), _) => Some(hang(cause, standing())),
        (None, None, limit) if !stuck.is_empty() => Some(hang(String::new(), limit.into_iter().chain(standing()).collect())),
        (None, None, Some(limit)) => Some(MachineError::inconclusive(limit)),
        (None, None, None) if unfinished.is_empty() => None,
        (None, None, None) => {
            let cause =
                format!("ranks {unfinished:?} waited for others for {} s of wall time, and none was at work", deadline.as_secs_f64());
            Some(hang(cause, standing()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ending: Ending, standing: &str) -> Outcome {
        Outcome { ending, after_ns: 3, stuck: Vec::new(), standing: vec![standing.to_owned()] }
    }

    fn told(outcomes: &[Outcome]) -> String {
        merged(outcomes, Duration::from_secs(5)).map_or_else(|| "ok".into(), |error| error.to_string())
    }

    /// If this fails, ranks report the silence that an error has left behind in place of the error, or a slow rank as a hang.
    #[test]
    fn what_went_wrong_first_is_what_all_ranks_report() {
        let done = || Outcome { standing: Vec::new(), ..of(Ending::Done, "") };
        let wrong = || of(Ending::Error(MachineError::Finding { findings: vec!["rank 1 reads astray".into()] }), "");
        let (peer, late) = (|| of(Ending::Peer, "rank 0 polls"), || of(Ending::Late, "rank 2 polls"));
        assert_eq!(told(&[done(), done()]), "ok");
        assert_eq!(told(&[peer(), wrong(), late()]), "rank 1 reads astray");
        assert_eq!(
            told(&[late(), of(Ending::Hang("deadlock: they wait".into()), "rank 1 polls"), done()]),
            "hang after 3 ns of emulated time: deadlock: they wait; ranks [0, 1] did not finish; rank 2 polls; rank 1 polls"
        );
        assert_eq!(told(&[late(), of(Ending::Limit("not enough".into()), "rank 1 runs")]), "inconclusive: not enough");
        assert_eq!(
            told(&[done(), late()]),
            "hang after 3 ns of emulated time: ranks [1] waited for others for 5 s of wall time, and none was at work; ranks [1] did not finish; rank 2 polls"
        );
    }
}
