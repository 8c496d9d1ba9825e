//! The schedule of a run: what advances next, and when nothing does any more.
//!
//! One thing advances at a time: a rank's host by a step, a stream by starting its first command, or a running kernel by a turn of one of its
//! warps. A [`Picker`] picks among all that can, by a strategy and a seed, which together are the schedule.
//!
//! # Time
//! Emulated time goes on by a nanosecond for every 32 warp instructions of the whole machine: it orders, it does not measure. It jumps when nothing
//! happens but waiting. Where no host and no stream can do anything and turn after turn writes nothing that other blocks could see, every warp of
//! every kernel gets one more, long enough to look at what it waits for. Where each of them then polls, has read the clock or waits at a barrier,
//! nothing will change but the clock: where a host sleeps or a warp reads the clock it jumps, at most to where the first host wakes up,
//! by a millisecond or an eighth of the time that was waited so.
//!
//! # Deadlock
//! As long as nobody writes memory that other blocks can see, a cluster of blocks depends on nothing but itself: its warps, their registers, where
//! their lanes are, its barriers, its shared and its local memory. If that comes again after each warp had a turn, it can come again for
//! ever. Where that is so of every cluster since something was written last, nobody sleeps and nobody reads the clock, the run need never
//! end though each warp gets its turns: a deadlock, proved, also of kernels that poll through a barrier of their block.
//!
//! # What else is a hang, and what is not
//! | what happens | is |
//! |---|---|
//! | all streams wait for words or for library calls, and no host is left to do anything | a hang: a deadlock, proved |
//! | the state of every cluster comes again | a hang: a deadlock, proved |
//! | lanes are in a loop without a way out, and the limit of steps or of wall time is reached | a hang, proved from the program |
//! | a wait of a kernel gives up by itself and says so | a hang: the kernel's own bound, in emulated time |
//! | the same, and of a launch not all blocks have started | the same hang, which says how many blocks fit and why: those that run may wait for the others |
//! | all warps poll or wait and nobody writes: for an hour of emulated time of a wait that reads the clock, for 2^32 thread instructions of one that counts its looks | a hang, though not proved: nobody is left who would end it |
//! | steps or wall time run out | inconclusive, never a hang: what runs may be working, or the machine be loaded |
//!
//! # Ranks in processes of their own
//! There, only one rank has anything to do here ([`peers`]). Where nothing comes of what it does, it waits until another process makes progress.

mod library_calls;
mod peers;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::{
    actions::{Command, Kernel, Wait},
    choice::Choice,
    execution::{Arithmetic, Fault, Grid, Turn, WarpState},
    hang::Scene,
    memory::{AccessError, Address, Memory},
    races::{Races, Report},
    strategy::{Candidate, Interleaving, Picker, Strategy},
    streams::{Head, Meeting, Rank, Running, Stream},
    trace::Trace,
};
use passmuster_plan::{collective::Product, machine::Fetched};

pub(super) use library_calls::LibraryCall;
pub(super) use peers::Peers;

/// Thread instructions in a nanosecond of emulated time: 32 of full warps.
const INSTRUCTIONS_IN_A_NANOSECOND: u64 = 1024;

/// Turns in a row without effect, for each thing that can advance, after which somebody is released or everybody is asked.
const PATIENCE: usize = 8;

/// Warp instructions in which a polling warp surely looks at its word, when it is to be known whether looking helps.
const LOOK: u32 = 4096;

/// Thread instructions of nothing but waiting, and emulated nanoseconds of waiting that looks at a clock, after which a run is given up.
const MOST_VAIN_INSTRUCTIONS: u64 = 1 << 32;
const LONGEST_WAIT: u64 = 3_600_000_000_000;

/// Looks around in a row that find somebody at work before such a look gives everybody a turn all the same: who is at work may never be done.
const SHORT_LOOKS: u32 = 4;

/// Turns of every warp in one look around: kernels that poll through barriers come to where they were after a few.
const ROUNDS: u32 = 8;

/// Whether a wait that looks at a clock is given up after `waited` emulated nanoseconds.
fn lasts_too_long(waited: u64) -> bool {
    waited > LONGEST_WAIT
}

/// Whether waits that look at no clock are given up after `instructions` thread instructions in which nobody wrote.
fn is_in_vain(instructions: u64) -> bool {
    instructions > MOST_VAIN_INSTRUCTIONS
}

/// How far the clock jumps at least.
const JUMP: u64 = 1_000_000;

/// How many things advance between two looks at the host's clock.
const WALL_CLOCK_PERIOD: u64 = 1024;

/// Undefined values that a run keeps.
const MOST_UNDEFINED: usize = 4;

/// Texts that kernels print which a run keeps.
const MOST_PRINTED: usize = 8;

/// Why a run is a hang whose lanes are in a loop that no branch leads out of.
const NEVER_ENDS: &str = "a loop without end: from where lanes of a kernel are, no branch leads out of it";

/// What a run may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Wall time.
    pub(super) deadline: Duration,
    /// Thread instructions.
    pub(super) instructions: u64,
}

/// Sets the choices of what the ISA leaves open apart from those of the schedule: with them or without, a seed is the same schedule.
const OPEN: u64 = 0x6d75_6c74_696d_656d;

/// Why a run did not get to its end.
pub(super) enum Stopped {
    /// Ranks do not finish: why, and where their warps and streams stand.
    Hang { cause: String, standing: Vec<String> },
    /// A limit was reached before the end: which, and where the warps and streams stand.
    Limit { limit: String, standing: Vec<String> },
    /// A kernel did what it must not.
    Fault { rank: usize, entry: String, fault: Fault },
    /// An operation of a stream did.
    Misuse { rank: usize, what: String, error: AccessError },
    /// Ranks pass different arguments to one library call.
    Disagreement(String),
    /// Another rank's process has given up.
    Peer { standing: Vec<String> },
    /// Other ranks' processes had not done by the deadline what this one waits for.
    Late { standing: Vec<String> },
}

/// What is known of a cluster of blocks since something was written that others than itself can see.
#[derive(Default)]
struct Cluster {
    /// One of its warps polled or read the clock.
    waits: bool,
    /// One read the clock.
    reads_clock: bool,
    /// Digests of its states after each of its warps had a turn, since one read the clock.
    states: BTreeSet<u128>,
    /// One of these came again.
    repeats: bool,
}

/// What every warp did in one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Round {
    /// One wrote or ended.
    Progress,
    /// One was at work.
    Work,
    /// All waited.
    Waiting,
}

/// A run that goes on.
pub(super) struct Schedule<'a> {
    memory: &'a mut Memory,
    races: Option<Races>,
    /// World size of each group, and ranks of one of its nodes.
    worlds: Vec<(usize, usize)>,
    ranks: Vec<Rank>,
    picker: Picker,
    arithmetic: Arithmetic,
    /// What of that is the same in all launches.
    chip: u64,
    /// What each launch draws from for what the ISA leaves open: how sums are added, and how copies go.
    open: Choice,
    limits: Limits,
    begin: Instant,
    /// Emulated nanoseconds.
    now: u64,
    /// Thread instructions since the start.
    instructions: u64,
    /// Turns in a row that wrote nothing.
    idle: u32,
    /// Looks around since something was written.
    looks: u32,
    /// What is known of clusters since something was written, by rank, stream and number.
    clusters: BTreeMap<(usize, usize, u32), Cluster>,
    /// Since when, in emulated nanoseconds and in thread instructions, nothing happened but waiting and jumps of the clock.
    waiting_since: Option<(u64, u64)>,
    /// Ranks that have come to a library call that is not complete, each with its stream.
    meetings: BTreeMap<Meeting, BTreeMap<usize, usize>>,
    /// What happened, if that is to be kept.
    trace: Option<Trace>,
    /// The processes of the other ranks, where they have some.
    peers: Option<Peers<'a>>,
    /// Undefined values that kernels took, for people.
    undefined: Vec<String>,
    /// What kernels that have ended printed.
    printed: Vec<String>,
}

impl<'a> Schedule<'a> {
    /// A run of these ranks, before its start.
    pub(super) fn new(
        memory: &'a mut Memory,
        races: Option<Races>,
        worlds: Vec<(usize, usize)>,
        ranks: Vec<Rank>,
        (interleaving, arithmetic): (Interleaving, Arithmetic),
        limits: Limits,
        peers: Option<Peers<'a>>,
    ) -> Schedule<'a> {
        let picker = Picker::new(interleaving, ranks.len());
        memory.delay_stores((interleaving.strategy == Strategy::Late && peers.is_none()).then_some(interleaving.seed));
        Schedule {
            memory,
            races,
            worlds,
            ranks,
            picker,
            arithmetic,
            chip: interleaving.seed,
            open: Choice::of_seed(interleaving.seed ^ OPEN),
            limits,
            begin: Instant::now(),
            now: 0,
            instructions: 0,
            idle: 0,
            looks: 0,
            clusters: BTreeMap::new(),
            waiting_since: None,
            meetings: BTreeMap::new(),
            trace: None,
            peers,
            undefined: Vec::new(),
            printed: Vec::new(),
        }
    }

    /// Keeps what happens from now on.
    pub(super) fn keep_trace(&mut self) {
        self.trace = Some(Trace::default());
    }

    /// What happened, if it was kept.
    pub(super) fn take_trace(&mut self) -> Option<Trace> {
        let now = self.microseconds();
        let mut trace = self.trace.take();
        trace.iter_mut().for_each(|trace| trace.finish(now));
        trace
    }

    /// Emulated microseconds, finer than [`Schedule::now`].
    fn microseconds(&self) -> f64 {
        let fraction = (self.instructions % INSTRUCTIONS_IN_A_NANOSECOND) as f64 / INSTRUCTIONS_IN_A_NANOSECOND as f64;
        (self.now as f64 + fraction) / 1e3
    }

    /// Emulated nanoseconds since the start.
    pub(super) fn now(&self) -> u64 {
        self.now
    }

    /// Thread instructions since the start.
    pub(super) fn instructions(&self) -> u64 {
        self.instructions
    }

    /// What the race check has found so far.
    pub(super) fn races(&self) -> Vec<Report> {
        self.races.as_ref().map_or_else(Vec::new, |races| races.reports(self.memory))
    }

    /// Ranks that are not done.
    pub(super) fn unfinished(&self) -> Vec<usize> {
        self.ranks.iter().enumerate().filter(|(_, rank)| !rank.is_done()).map(|(rank, _)| rank).collect()
    }

    /// Microseconds between the marks of each rank; of one that was not passed nothing.
    pub(super) fn marks(&self) -> Vec<Vec<f64>> {
        let between = |rank: &Rank| rank.marks.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) as f64 / 1e3).collect();
        self.ranks.iter().map(between).collect()
    }

    /// Undefined values that kernels took, once.
    pub(super) fn take_undefined(&mut self) -> Vec<String> {
        std::mem::take(&mut self.undefined)
    }

    /// What kernels printed, those that have ended first.
    pub(super) fn printed(&self) -> Vec<String> {
        let running = self.streams().filter_map(|(rank, _, stream)| match &stream.head {
            Head::Running(running) => Some((rank, running)),
            _ => None,
        });
        let of_running = running.flat_map(|(rank, running)| {
            running.grid.printed().iter().map(move |text| format!("rank {rank} `{}` printed: {text}", running.entry))
        });
        self.printed.iter().cloned().chain(of_running).take(MOST_PRINTED).collect()
    }

    /// What each rank fetched, once.
    pub(super) fn take_fetched(&mut self) -> Vec<Vec<Fetched>> {
        self.ranks.iter_mut().map(Rank::take_fetched).collect()
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub(super) fn run(&mut self) -> Result<(), Stopped> {
        let mut candidates = Vec::new();
        for advanced in 1u64.. {
            self.candidates(&mut candidates);
            if candidates.is_empty() && self.peers.is_some() {
                if self.is_at_end()? {
                    return Ok(());
                }
                continue;
            }
            if candidates.is_empty() {
                match self.first_to_wake() {
                    Some(at) => self.now = at,
                    None if self.ranks.iter().all(Rank::is_done) => return Ok(()),
                    None => return Err(self.hang(self.deadlock_of_streams().into())),
                }
                continue;
            }
            let only_turns = candidates.iter().all(|candidate| matches!(candidate, Candidate::Turn(..)));
            match self.picker.pick(&candidates) {
                Candidate::Host(rank) => {
                    self.ranks[rank].host_step(self.now);
                    self.progress();
                }
                Candidate::Start(rank, stream) => {
                    self.start(rank, stream)?;
                    self.progress();
                }
                Candidate::Turn(rank, stream) => self.any_turn(rank, stream)?,
            }
            if self.idle as usize >= PATIENCE * (candidates.len() + 1) {
                if self.picker.in_vain() {
                    self.idle = 0;
                } else if only_turns {
                    self.look_around()?;
                }
            }
            self.check_limits(advanced)?;
        }
        unreachable!("a run ends before 2^64 things have advanced")
    }

    fn candidates(&self, into: &mut Vec<Candidate>) {
        into.clear();
        for (rank, of_rank) in self.ranks.iter().enumerate() {
            if of_rank.host_is_ready(self.now) {
                into.push(Candidate::Host(rank));
            }
            for (stream, of_stream) in of_rank.streams.iter().enumerate() {
                match of_stream.head {
                    Head::Running(_) => into.push(Candidate::Turn(rank, stream)),
                    Head::Waiting if of_rank.can_start(stream) => into.push(Candidate::Start(rank, stream)),
                    Head::Word(at, value) if self.memory.load(at, rank) == Ok(value.to_le_bytes()) => {
                        into.push(Candidate::Start(rank, stream));
                    }
                    Head::Join(side) if of_rank.is_idle(side) => into.push(Candidate::Start(rank, stream)),
                    Head::Meeting(meeting)
                        if self.peers.as_ref().is_some_and(|peers| peers.behind(meeting, self.members(meeting)).is_empty()) =>
                    {
                        into.push(Candidate::Start(rank, stream));
                    }
                    Head::Returning(..) => into.push(Candidate::Start(rank, stream)),
                    Head::Waiting | Head::Word(..) | Head::Meeting(_) | Head::Join(_) => {}
                }
            }
        }
    }

    fn progress(&mut self) {
        self.idle = 0;
        self.looks = 0;
        self.clusters.clear();
        self.waiting_since = None;
        self.peers.iter_mut().for_each(Peers::advanced);
    }

    /// A turn of a warp that the choice picks.
    fn any_turn(&mut self, rank: usize, stream: usize) -> Result<(), Stopped> {
        let quantum = self.picker.turn_length();
        let Head::Running(running) = &self.ranks[rank].streams[stream].head else { unreachable!("only what runs has turns") };
        let able = running.grid.able();
        let chosen = self.picker.warp(rank, stream, able);
        let warp = able.get(chosen).copied();
        let (turn, ended) = self.turn(rank, stream, quantum, &mut |_| chosen)?;
        if turn.polled {
            self.picker.waited(rank, stream, warp);
        }
        // What only waits is not told from what computes by a short turn: that is seen when all are asked.
        if turn.wrote || ended {
            self.progress();
        } else {
            self.idle += 1;
        }
        Ok(())
    }

    /// A turn of a kernel, and whether the kernel ended with it.
    fn turn(&mut self, rank: usize, stream: usize, quantum: u32, pick: &mut dyn FnMut(usize) -> usize) -> Result<(Turn, bool), Stopped> {
        let Head::Running(running) = &mut self.ranks[rank].streams[stream].head else { unreachable!("only what runs has turns") };
        let turn = running
            .grid
            .watched_turn(self.memory, self.races.as_mut(), self.now, quantum, pick)
            .map_err(|fault| Stopped::Fault { rank, entry: running.entry.clone(), fault })?;
        let before = self.instructions;
        self.instructions += turn.instructions;
        self.now += self.instructions / INSTRUCTIONS_IN_A_NANOSECOND - before / INSTRUCTIONS_IN_A_NANOSECOND;
        let ended = running.grid.is_done();
        let standing = self.trace.is_some().then(|| running.grid.standing());
        let at = self.microseconds();
        if let (Some(trace), Some(standing)) = (&mut self.trace, standing) {
            trace.sample(rank, stream, &standing, self.memory, at);
        }
        if ended {
            self.trace.iter_mut().for_each(|trace| trace.end(rank, stream, at));
            let of_stream = &mut self.ranks[rank].streams[stream];
            if let Head::Running(running) = std::mem::take(&mut of_stream.head) {
                if let (Some(races), Some(launch)) = (&mut self.races, running.grid.operation()) {
                    races.end_launch(launch);
                }
                let undefined = running.grid.undefined().iter().take(MOST_UNDEFINED.saturating_sub(self.undefined.len()));
                self.undefined.extend(undefined.map(ToString::to_string));
                let printed = running.grid.printed().iter().take(MOST_PRINTED.saturating_sub(self.printed.len()));
                self.printed.extend(printed.map(|text| format!("rank {rank} `{}` printed: {text}", running.entry)));
                self.ranks[rank].launch_ended(stream, &running.grid);
                running.grid.finish(self.memory);
            }
        }
        Ok((turn, ended))
    }

    /// Gives every warp turns. If nothing comes of them, the clock jumps, or it is a deadlock.
    fn look_around(&mut self) -> Result<(), Stopped> {
        if self.memory.publish_all() {
            self.progress();
            return Ok(());
        }
        let total = self.total_progress();
        self.looks += 1;
        for _ in 0..ROUNDS {
            match self.round()? {
                Round::Progress => return Ok(()),
                Round::Work => {
                    self.idle = 0;
                    self.waiting_since = None;
                    return Ok(());
                }
                Round::Waiting => {}
            }
            let (since, instructions) = *self.waiting_since.get_or_insert((self.now, self.instructions));
            let waited = self.now - since;
            let wakes = self.first_to_wake();
            let reads_clock = self.clusters.values().any(|cluster| cluster.reads_clock);
            let repeats = self.clusters.values().all(|cluster| cluster.repeats);
            if let Some(total) = total
                && (reads_clock || wakes.is_some() || repeats)
            {
                return self.wait_for_peers(total, reads_clock || wakes.is_some());
            }
            if reads_clock {
                if lasts_too_long(waited) {
                    return Err(self.given_up_after(waited));
                }
                self.jump(waited);
                return Ok(());
            }
            if let Some(at) = wakes {
                self.now = at;
                return Ok(());
            }
            if repeats {
                return Err(self.hang(self.deadlock_of_kernels().into()));
            }
            let vain = self.instructions - instructions;
            if is_in_vain(vain) {
                return Err(self.hang(format!("gave up after {vain} thread instructions in which everybody waited and nobody wrote")));
            }
        }
        if let Some(total) = total {
            self.rest(total);
        }
        Ok(())
    }

    /// The clock jumps, after so much that was waited already.
    fn jump(&mut self, waited: u64) {
        let at = self.now + JUMP.max(waited / 8);
        self.now = self.first_to_wake().map_or(at, |wakes| wakes.min(at));
    }

    /// Gives every warp a turn, up to one that writes; in the first looks around, up to one that is at work.
    fn round(&mut self) -> Result<Round, Stopped> {
        let mut at_work = BTreeSet::new();
        let mut reads_clock = BTreeSet::new();
        for (rank, stream) in self.running() {
            let Some(grid) = self.grid_of(rank, stream) else { continue };
            for place in grid.able().to_vec() {
                // It may wait by now for what a warp before it did not do, or have been let go and moved in the list.
                let Some((grid, chosen)) =
                    self.grid_of(rank, stream).and_then(|grid| Some((grid, grid.able().iter().position(|able| *able == place)?)))
                else {
                    continue;
                };
                // What goes on beside warps may do so after its block has ended.
                let cluster = (rank, stream, grid.cluster(place.0).unwrap_or(u32::MAX));
                let (turn, ended) = self.turn(rank, stream, LOOK, &mut |_| chosen)?;
                if turn.wrote || ended {
                    self.progress();
                    return Ok(Round::Progress);
                }
                if turn.read_clock {
                    reads_clock.insert(cluster);
                }
                let of_cluster = self.clusters.entry(cluster).or_default();
                of_cluster.waits |= turn.polled || turn.read_clock;
                let waits = turn.polled || turn.read_clock;
                if !waits && self.looks <= SHORT_LOOKS {
                    return Ok(Round::Work);
                }
                if !waits && !turn.blocked {
                    at_work.insert(cluster);
                }
            }
        }
        let mut state = Round::Waiting;
        let mut resident = BTreeSet::new();
        for (rank, stream) in self.running() {
            let Some(grid) = self.grid_of(rank, stream) else { continue };
            let (digests, none_can_run) = (grid.digests(self.memory), grid.able().is_empty());
            for (number, digest) in digests {
                let key = (rank, stream, number);
                resident.insert(key);
                let cluster = self.clusters.entry(key).or_default();
                if reads_clock.contains(&key) {
                    // What comes again is then not all that decides what happens next.
                    *cluster = Cluster { waits: true, reads_clock: true, ..Cluster::default() };
                } else {
                    cluster.repeats |= !cluster.states.insert(digest);
                }
                if !cluster.repeats && (at_work.contains(&key) || !cluster.waits && !none_can_run) {
                    state = Round::Work;
                }
            }
        }
        self.clusters.retain(|key, _| resident.contains(key));
        Ok(state)
    }

    /// What runs on a stream.
    fn grid_of(&self, rank: usize, stream: usize) -> Option<&Grid> {
        self.ranks[rank].streams[stream].grid()
    }

    /// Why no kernel goes on, where the state of all of them comes again and again.
    fn deadlock_of_kernels(&self) -> &'static str {
        let grids = || self.running().into_iter().filter_map(|(rank, stream)| self.grid_of(rank, stream));
        if grids().all(|grid| grid.standing().iter().all(|warp| warp.what != WarpState::Running)) {
            return "deadlock: every warp that is left stands at a barrier or polls what nobody is left to write";
        }
        if grids().any(Grid::never_ends) {
            return NEVER_ENDS;
        }
        "deadlock: every warp that is left comes again and again to where it was, and nobody is left to write what it looks at"
    }

    fn first_to_wake(&self) -> Option<u64> {
        self.ranks.iter().filter_map(|rank| rank.sleeps_until(self.now)).min()
    }

    fn streams(&self) -> impl Iterator<Item = (usize, usize, &Stream)> {
        let of_rank = |(rank, of_rank): (usize, &'_ Rank)| (rank, of_rank.streams.len());
        let places = self.ranks.iter().enumerate().map(of_rank).flat_map(|(rank, streams)| (0..streams).map(move |stream| (rank, stream)));
        places.map(|(rank, stream)| (rank, stream, &self.ranks[rank].streams[stream]))
    }

    fn running(&self) -> Vec<(usize, usize)> {
        let runs = self.streams().filter(|(_, _, stream)| matches!(stream.head, Head::Running(_)));
        runs.map(|(rank, stream, _)| (rank, stream)).collect()
    }

    fn check_limits(&mut self, advanced: u64) -> Result<(), Stopped> {
        let Limits { instructions, deadline } = self.limits;
        if advanced.is_multiple_of(WALL_CLOCK_PERIOD) && self.peers.as_mut().is_some_and(Peers::has_stopped) {
            return Err(Stopped::Peer { standing: self.standing() });
        }
        let limit = if self.instructions > instructions {
            format!("{instructions} thread instructions were not enough (--steps N allows more)")
        } else if advanced.is_multiple_of(WALL_CLOCK_PERIOD) && self.begin.elapsed() > deadline {
            format!("{} s of wall time were not enough (--deadline SECONDS allows more)", deadline.as_secs_f64())
        } else {
            return Ok(());
        };
        if self.running().into_iter().filter_map(|(rank, stream)| self.grid_of(rank, stream)).any(Grid::never_ends) {
            return Err(self.hang(NEVER_ENDS.into()));
        }
        if self.waits_for_peers()? {
            return Err(Stopped::Late { standing: self.standing() });
        }
        Err(Stopped::Limit { limit, standing: self.standing() })
    }

    /// Starts the first command of a stream, or goes on with it when the word has come that it waits for. All but kernels, library calls and
    /// such waits are done at once.
    fn start(&mut self, rank: usize, stream: usize) -> Result<(), Stopped> {
        if let Some(before) = self.ranks[rank].runs_ahead_of(stream) {
            return self.start_ahead(rank, before, stream);
        }
        if let Head::Meeting(meeting) = self.ranks[rank].streams[stream].head {
            return self.go_on_with_call(rank, stream, meeting);
        }
        if let Head::Returning(..) = self.ranks[rank].streams[stream].head {
            return self.end_call(rank, stream);
        }
        let (commands, index, meeting) = self.ranks[rank].streams[stream].first();
        let misuse = |what: &str, error| Stopped::Misuse { rank, what: what.into(), error };
        let at = self.microseconds();
        let told = self.ranks[rank].streams[stream].told();
        if let Some(races) = &mut self.races {
            // Who forks or enqueues it is waited for in full, also by a launch that has not waited for what runs beside the stream.
            for on in [Some(stream), self.ranks[rank].ahead_of(stream)].into_iter().flatten() {
                told.iter().for_each(|known| races.learn(rank, on, known));
            }
            if let Some(ahead) = self.ranks[rank].catches_up(stream) {
                races.learn(rank, stream, &races.known(rank, ahead));
            }
            if self.ranks[rank].streams[stream].goes_on_as_one() {
                races.go_on_as_one(rank, stream);
            }
        }
        if let Some(trace) = &mut self.trace {
            match &commands[index] {
                Command::Launch(_) => {}
                Command::WaitValue(wait) => trace.begin(rank, stream, &format!("waits for {}", self.memory.describe(wait.at)), at),
                command => trace.begin(rank, stream, command.name(), at),
            }
        }
        match &commands[index] {
            Command::Launch(kernel) => {
                let (on, before) = self.ranks[rank].start_launch(stream);
                return self.launch(rank, on, kernel, before);
            }
            Command::Reduce { .. } => {
                let meeting = meeting.expect("a library call has a meeting");
                return self.arrive(rank, stream, meeting);
            }
            Command::Copy { from, to, bytes } => {
                self.memory.copy(*from, *to, *bytes, rank).map_err(|error| misuse("copy", error))?;
                if let Some(races) = &mut self.races {
                    let place = |address| self.memory.resolve(address, *bytes, rank).map_err(|error| misuse("copy", error));
                    races.copy(rank, stream, place(*from)?, place(*to)?, *bytes);
                }
            }
            Command::Fill { at, byte, bytes } => {
                self.memory.fill(*at, *bytes, rank, *byte).map_err(|error| misuse("fill", error))?;
                if let Some(races) = &mut self.races {
                    let at = self.memory.resolve(*at, *bytes, rank).map_err(|error| misuse("fill", error))?;
                    races.fill(rank, stream, at, *bytes);
                }
            }
            Command::WriteValue { at, value } => {
                self.memory.fence();
                self.memory.store(*at, rank, value.to_le_bytes()).map_err(|error| misuse("write of a word", error))?;
                if let Some(races) = &mut self.races {
                    let at = self.memory.resolve(*at, 4, rank).map_err(|error| misuse("write of a word", error))?;
                    races.write_value(rank, stream, at);
                }
            }
            Command::WaitValue(Wait { at, value, .. }) => {
                let word = self.memory.load(*at, rank).map_err(|error| misuse("wait for a word", error))?;
                if word != value.to_le_bytes() {
                    self.ranks[rank].streams[stream].head = Head::Word(*at, *value);
                    return Ok(());
                }
                if let Some(races) = &mut self.races {
                    let at = self.memory.resolve(*at, 4, rank).map_err(|error| misuse("wait for a word", error))?;
                    races.wait_value(rank, stream, at);
                }
            }
            Command::Matmul { product, a, b, c } => self.multiply(rank, stream, product, [*a, *b, *c])?,
            Command::Fork { .. } => {
                let known = self.races.as_ref().map(|races| races.known(rank, stream));
                self.ranks[rank].fork(stream, known);
            }
            Command::Join { side } => {
                let side = self.ranks[rank].side(stream, *side);
                if !self.ranks[rank].is_idle(side) {
                    self.ranks[rank].streams[stream].head = Head::Join(side);
                    return Ok(());
                }
                if let Some(races) = &mut self.races {
                    let of_side = [Some(side), self.ranks[rank].ahead_of(side)].into_iter().flatten();
                    of_side.for_each(|side| races.learn(rank, stream, &races.known(rank, side)));
                }
            }
            Command::Fetch { from, bytes } => {
                let fetched = self.memory.read_seen(*from, *bytes, rank).map_err(|error| misuse("fetch", error))?;
                if let Some(races) = &mut self.races {
                    let from = self.memory.resolve(*from, *bytes, rank).map_err(|error| misuse("fetch", error))?;
                    races.fetch(rank, stream, from, *bytes);
                }
                let known = self.races.as_ref().map(|races| races.known(rank, stream));
                self.ranks[rank].fetched(stream, fetched.to_vec(), known);
            }
            Command::Mark => self.ranks[rank].mark(stream, self.now),
        }
        self.trace.iter_mut().for_each(|trace| trace.end(rank, stream, at));
        self.ranks[rank].streams[stream].finish();
        Ok(())
    }

    /// Starts the launch that comes second on a stream, while the first still runs, on the stream beside it.
    fn start_ahead(&mut self, rank: usize, before: usize, stream: usize) -> Result<(), Stopped> {
        let (commands, index, told) = self.ranks[rank].start_ahead(before);
        let Command::Launch(kernel) = &commands[index] else { unreachable!("only launches start ahead") };
        if let Some(races) = &mut self.races {
            told.iter().for_each(|known| races.learn(rank, before, known));
        }
        self.launch(rank, stream, kernel, Some(before))
    }

    /// Starts a kernel on a stream. `before` is the stream of the operation that it has not waited for, if there is one.
    fn launch(&mut self, rank: usize, stream: usize, kernel: &Kernel, before: Option<usize>) -> Result<(), Stopped> {
        let mut grid = self.grid(kernel).map_err(|fault| Stopped::Fault { rank, entry: kernel.entry.clone(), fault })?;
        let at = self.microseconds();
        self.trace.iter_mut().for_each(|trace| trace.begin(rank, stream, &kernel.entry, at));
        let module = kernel.program.shared_module();
        if let Some(races) = &mut self.races {
            grid.watch_as(match before {
                Some(before) => races.begin_dependent_launch((rank, stream), before, module, &kernel.module, &kernel.entry),
                None => races.begin_launch(rank, stream, module, &kernel.module, &kernel.entry),
            });
        }
        grid.prerequisite_runs(before.is_some_and(|before| before != stream && self.grid_of(rank, before).is_some()));
        let running = Running { entry: kernel.entry.clone(), program: kernel.program.clone(), grid };
        self.ranks[rank].streams[stream].head = Head::Running(Box::new(running));
        Ok(())
    }

    fn grid(&mut self, kernel: &Kernel) -> Result<Grid, Fault> {
        let grid = Grid::new(kernel.program.clone(), &kernel.entry, kernel.shape, &kernel.parameters, self.memory)?;
        Ok(grid.varied(self.arithmetic, [self.chip, self.open.draw()]))
    }

    /// A product, as the reference does it.
    fn multiply(&mut self, rank: usize, stream: usize, product: &Product, [a, b, c]: [Address; 3]) -> Result<(), Stopped> {
        let misuse = |error| Stopped::Misuse { rank, what: "matmul".into(), error };
        let size = product.dtype.size();
        let inputs = [(a, product.a() * size), (b, product.b() * size)];
        let read = |(at, bytes)| self.memory.read_seen(at, bytes, rank).map_err(misuse);
        let result = product.reference(&read(inputs[0])?, &read(inputs[1])?);
        self.memory.write(c, rank, &result).map_err(misuse)?;
        if let Some(races) = &mut self.races {
            let place = |(at, bytes)| Ok((self.memory.resolve(at, bytes, rank).map_err(misuse)?, bytes));
            races.multiply(rank, stream, [place(inputs[0])?, place(inputs[1])?], place((c, result.len() as u64))?);
        }
        Ok(())
    }

    /// After so much emulated time of nothing but waiting.
    fn given_up_after(&self, waited: u64) -> Stopped {
        self.hang(format!("gave up after {} s of emulated time in which nobody wrote", waited / 1_000_000_000))
    }

    fn hang(&self, cause: String) -> Stopped {
        let crowded: String = self.crowded().map(|crowded| format!("; {crowded}")).collect();
        Stopped::Hang { cause: cause + &crowded, standing: self.standing() }
    }

    /// Launches of which blocks have not started because the device holds no more at once, each once: those that wait may wait for these.
    fn crowded(&self) -> impl Iterator<Item = String> {
        let mut crowded = BTreeSet::new();
        for (rank, _, stream) in self.streams() {
            if let Head::Running(running) = &stream.head
                && let Some(fit) = running.grid.crowded()
            {
                crowded.insert(format!("rank {rank} `{}`: {fit}, the others start only as these end", running.entry));
            }
        }
        crowded.into_iter()
    }

    /// Where warps and streams stand, for people.
    fn standing(&self) -> Vec<String> {
        let absent = |meeting| self.absent(meeting);
        Scene { ranks: &self.ranks, memory: self.memory, races: self.races.as_ref(), absent: &absent }.standing()
    }

    /// Why no stream goes on where none runs a kernel.
    fn deadlock_of_streams(&self) -> &'static str {
        if self.streams().any(|(_, _, stream)| matches!(stream.head, Head::Word(..))) {
            return "deadlock: streams wait for words that nobody is left to write";
        }
        "deadlock: ranks wait in a library call for ranks that do not come"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, waits are given up at another time than the head of this module and docs/emulator say.
    #[test]
    fn waits_end_where_documented() {
        let hour = Duration::from_secs(60 * 60).as_nanos() as u64;
        assert_eq!([hour / 2, hour, hour + 1].map(lasts_too_long), [false, false, true]);
        assert_eq!([1 << 31, 1 << 32, (1 << 32) + 1].map(is_in_vain), [false, false, true]);
    }
}
