//! What each rank of a run has: a host that goes through its actions, and streams, which carry out commands in order.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    actions::{Action, Among, Command},
    execution::{Grid, Program},
    memory::Address,
    races::Known,
};
use passmuster_plan::machine::{Awaited, Fetched, depart, validation::side_stream};

/// A call of the library: among whom, and the number of the call among these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Meeting {
    pub(super) among: Among,
    pub(super) number: usize,
}

/// One rank: its host and its streams.
pub(super) struct Rank {
    actions: VecDeque<Action>,
    /// When the host goes on, in emulated nanoseconds.
    wakes: u64,
    pub(super) streams: Vec<Stream>,
    /// Streams that the script names, and side streams of each.
    numbers: (usize, usize),
    /// Library calls that the host has enqueued, by whom they are among: ranks meet in this order.
    called: BTreeMap<Among, usize>,
    /// When its marks were passed, in emulated nanoseconds, in the order in which the host enqueued them.
    pub(super) marks: Vec<u64>,
    /// What it fetches, in the order in which the host enqueued that.
    fetches: Vec<Fetch>,
    /// What the host has learnt from what it waited for: all that it enqueues comes after that.
    known: Vec<Known>,
}

/// Streams of each rank: `streams` that the script names and `sides` side streams of each. Beside each of them there is one for programmatic launches,
/// if there are such launches.
pub(super) fn all_streams((streams, sides): (usize, usize), programmatic: bool) -> usize {
    streams * (1 + sides) * if programmatic { 2 } else { 1 }
}

/// What the last command of a stream was that has started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Last {
    /// None, or one that nothing starts before the end of.
    #[default]
    Complete,
    /// A launch, and whether it let launches that depend on it start.
    Launch { ahead: bool, lets_start: bool },
    /// What stands for a kernel of the caller's, if a call starts with a programmatic launch: a copy, a fill, a library call.
    Other,
    /// An operation of the caller's, which is one kernel with those of the caller's before it.
    Caller,
}

/// Something on its way to the host.
#[derive(Default)]
struct Fetch {
    /// What has come, and what its stream knew then.
    there: Option<(Vec<u8>, Option<Known>)>,
    /// Whether it was there when the host first looked, and when that was.
    looked: Option<(bool, u64)>,
    /// Emulated nanoseconds for which the host waited.
    blocked: u64,
}

/// One stream: what is enqueued on it, and how far the first of that is.
#[derive(Default)]
pub(super) struct Stream {
    queue: VecDeque<Enqueued>,
    pub(super) head: Head,
    last: Last,
    /// The command after the first has been started, on the stream beside.
    second_started: bool,
    /// What ran on the stream beside is not known here.
    owes: bool,
}

/// Commands that were enqueued together.
#[derive(Default)]
struct Enqueued {
    commands: Arc<[Command]>,
    /// They stand for one kernel of the caller's.
    of_caller: bool,
    next: usize,
    /// The library calls among those that are left.
    meetings: VecDeque<Meeting>,
    /// The numbers of the marks among them.
    marks: VecDeque<usize>,
    /// The numbers of the fetches among them.
    fetches: VecDeque<usize>,
    /// What those hand to side streams, with the stream.
    forks: VecDeque<(usize, Enqueued)>,
    /// What the stream knew that forked them, or the host that enqueued them, until they start.
    known: Vec<Known>,
}

/// How far a stream's first command is.
#[derive(Default)]
pub(super) enum Head {
    /// It has not started, if there is one.
    #[default]
    Waiting,
    /// A kernel runs.
    Running(Box<Running>),
    /// It waits for a word to have a value.
    Word(Address, u32),
    /// It waits for the other ranks of a library call.
    Meeting(Meeting),
    /// A library call is done, and what it gives this rank is on its way: where that goes, and what it is.
    Returning(Address, Vec<u8>),
    /// It waits for all that was handed to another stream of the rank.
    Join(usize),
}

/// A kernel that runs.
pub(super) struct Running {
    pub(super) entry: String,
    pub(super) program: Arc<Program>,
    pub(super) grid: Grid,
}

impl Rank {
    /// With `streams` streams and `sides` side streams of each. `programmatic` says whether launches may start before the one before them is done.
    pub(super) fn new(actions: Vec<Action>, (streams, sides): (usize, usize), programmatic: bool) -> Rank {
        Rank {
            actions: actions.into(),
            wakes: 0,
            streams: (0..all_streams((streams, sides), programmatic)).map(|_| Stream::default()).collect(),
            numbers: (streams, sides),
            called: BTreeMap::new(),
            marks: Vec::new(),
            fetches: Vec::new(),
            known: Vec::new(),
        }
    }

    /// Whether the host has something to do at this time.
    pub(super) fn host_is_ready(&self, now: u64) -> bool {
        let waits = match self.actions.front() {
            Some(Action::Await(number)) => self.fetches[*number].looked.is_some() && self.fetches[*number].there.is_none(),
            _ => false,
        };
        !self.actions.is_empty() && !waits && self.wakes <= now
    }

    /// When the host wakes up, where it sleeps and has something to do then.
    pub(super) fn sleeps_until(&self, now: u64) -> Option<u64> {
        (!self.actions.is_empty() && self.wakes > now).then_some(self.wakes)
    }

    /// The host's next step.
    pub(super) fn host_step(&mut self, now: u64) {
        match self.actions.pop_front() {
            Some(Action::Enqueue { stream, commands, of_caller }) => self.enqueue(stream, commands, of_caller),
            Some(Action::Await(number)) => {
                let fetch = &mut self.fetches[number];
                let (_, since) = *fetch.looked.get_or_insert((fetch.there.is_some(), now));
                match &fetch.there {
                    Some((_, known)) => {
                        fetch.blocked = now - since;
                        self.known.extend(known.clone());
                    }
                    None => self.actions.push_front(Action::Await(number)),
                }
            }
            // Its plans, one step each.
            Some(Action::Replay { stream, graph }) => {
                let plans =
                    graph.plans.iter().rev().map(|commands| Action::Enqueue { stream, commands: commands.clone(), of_caller: false });
                plans.for_each(|action| self.actions.push_front(action));
                self.host_step(now);
            }
            Some(Action::Mark) => self.enqueue(0, [Command::Mark].into(), false),
            Some(Action::Sleep(time)) => self.wakes = now.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            Some(Action::Depart(how)) => depart(how),
            None => {}
        }
    }

    fn enqueue(&mut self, stream: usize, commands: Arc<[Command]>, of_caller: bool) {
        let enqueued = Enqueued { known: self.known.clone(), of_caller, ..self.enqueued(stream, commands) };
        self.streams[stream].queue.push_back(enqueued);
    }

    /// Commands with what the order of enqueuing says about them.
    fn enqueued(&mut self, stream: usize, commands: Arc<[Command]>) -> Enqueued {
        let mut enqueued = Enqueued { commands: commands.clone(), ..Enqueued::default() };
        for command in commands.iter() {
            match command {
                Command::Reduce { among, .. } => {
                    let called = self.called.entry(*among).or_default();
                    enqueued.meetings.push_back(Meeting { among: *among, number: *called });
                    *called += 1;
                }
                Command::Mark => {
                    enqueued.marks.push_back(self.marks.len());
                    self.marks.push(0);
                }
                Command::Fetch { .. } => {
                    enqueued.fetches.push_back(self.fetches.len());
                    self.fetches.push(Fetch::default());
                }
                Command::Fork { side, commands } => {
                    let forked = self.enqueued(stream, commands.clone());
                    enqueued.forks.push_back((side_stream(self.numbers, stream, *side), forked));
                }
                _ => {}
            }
        }
        enqueued
    }

    /// What the first command of a stream forks goes to its side stream, with what the stream knows.
    pub(super) fn fork(&mut self, stream: usize, known: Option<Known>) {
        let known = known.into_iter().collect();
        let forked = self.streams[stream].queue.front_mut().and_then(|enqueued| enqueued.forks.pop_front());
        let (side, forked) = forked.expect("a fork has what it forks");
        self.streams[side].queue.push_back(Enqueued { known, ..forked });
    }

    /// Number of a side stream of a stream.
    pub(super) fn side(&self, stream: usize, side: usize) -> usize {
        side_stream(self.numbers, stream, side)
    }

    /// The first command of a stream is a mark, passed now.
    pub(super) fn mark(&mut self, stream: usize, now: u64) {
        let number = self.streams[stream].queue.front_mut().and_then(|enqueued| enqueued.marks.pop_front());
        self.marks[number.expect("a mark has a number")] = now;
    }

    /// The first command of a stream is a fetch, which has brought this; `known` is what the stream knows with it.
    pub(super) fn fetched(&mut self, stream: usize, bytes: Vec<u8>, known: Option<Known>) {
        let number = self.streams[stream].queue.front_mut().and_then(|enqueued| enqueued.fetches.pop_front());
        self.fetches[number.expect("a fetch has a number")].there = Some((bytes, known));
    }

    /// What was fetched, when all of it has come.
    pub(super) fn take_fetched(&mut self) -> Vec<Fetched> {
        let of = |Fetch { there, looked, blocked }: Fetch| {
            let awaited = looked.map(|(was_there, _)| Awaited { was_there, blocked: blocked as f64 / 1e3 });
            Fetched { bytes: there.map(|(bytes, _)| bytes).unwrap_or_default(), awaited }
        };
        std::mem::take(&mut self.fetches).into_iter().map(of).collect()
    }

    /// Whether host and streams are at their end.
    pub(super) fn is_done(&self) -> bool {
        self.actions.is_empty() && (0..self.streams.len()).all(|stream| self.is_idle(stream))
    }

    /// Streams that are not beside another one.
    fn own_streams(&self) -> usize {
        all_streams(self.numbers, false)
    }

    /// The stream beside a stream, where launches run that have not waited for the one before them.
    pub(super) fn ahead_of(&self, stream: usize) -> Option<usize> {
        Some(stream + self.own_streams()).filter(|&ahead| ahead < self.streams.len())
    }

    /// The stream that a stream is beside.
    pub(super) fn runs_ahead_of(&self, stream: usize) -> Option<usize> {
        stream.checked_sub(self.own_streams())
    }

    /// What runs beside a stream.
    fn runs_ahead(&self, stream: usize) -> Option<&Grid> {
        self.streams[self.ahead_of(stream)?].grid()
    }

    /// Whether nothing is left on a stream, nor beside it.
    pub(super) fn is_idle(&self, stream: usize) -> bool {
        self.streams[stream].queue.is_empty() && self.streams[stream].grid().is_none() && self.runs_ahead(stream).is_none()
    }

    /// Whether a stream, which does nothing, can start something: its first command, or of one beside another, the second command of that one.
    pub(super) fn can_start(&self, stream: usize) -> bool {
        if let Some(before) = self.runs_ahead_of(stream) {
            let Stream { second_started, ref queue, .. } = self.streams[before];
            let second = second(queue).is_some_and(|(enqueued, index)| is_programmatic(&enqueued.commands[index]));
            return second && !second_started && self.streams[before].grid().is_some_and(Grid::lets_dependents_start);
        }
        let Some(enqueued) = self.streams[stream].queue.front() else { return false };
        self.runs_ahead(stream).is_none_or(|grid| is_programmatic(&enqueued.commands[enqueued.next]) && grid.lets_dependents_start())
    }

    /// The second command of a stream starts beside it: the commands it was enqueued with, its index among them, and what was known at its enqueue.
    pub(super) fn start_ahead(&mut self, stream: usize) -> (Arc<[Command]>, usize, Vec<Known>) {
        let Stream { queue, second_started, last, owes, .. } = &mut self.streams[stream];
        (*second_started, *last, *owes) = (true, Last::Launch { ahead: true, lets_start: false }, true);
        let first = &queue[0];
        let at = usize::from(first.next + 1 == first.commands.len());
        let known = if at == 1 { std::mem::take(&mut queue[1].known) } else { Vec::new() };
        let (enqueued, index) = second(queue).expect("a second command is enqueued");
        (enqueued.commands.clone(), index, known)
    }

    /// The stream of the operation that the launch which starts on a stream has not waited for.
    fn prerequisite(&self, stream: usize) -> Option<usize> {
        let (commands, index, _) = self.streams[stream].first();
        match self.streams[stream].last {
            _ if !is_programmatic(&commands[index]) => None,
            Last::Launch { ahead: true, lets_start } => self.ahead_of(stream).filter(|_| lets_start || self.runs_ahead(stream).is_some()),
            Last::Launch { ahead: false, lets_start } => lets_start.then_some(stream),
            Last::Other | Last::Caller => (index == 0).then_some(stream),
            Last::Complete => None,
        }
    }

    /// The launch that comes first on a stream starts: the stream that it runs on, and that of the operation that it has not waited for. These are two: what
    /// is known of the last operation of a stream is known of all before it.
    pub(super) fn start_launch(&mut self, stream: usize) -> (usize, Option<usize>) {
        let prerequisite = self.prerequisite(stream);
        let ahead = self.ahead_of(stream).filter(|_| prerequisite == Some(stream));
        let of_stream = &mut self.streams[stream];
        of_stream.last = Last::Launch { ahead: ahead.is_some(), lets_start: false };
        if ahead.is_some() {
            of_stream.owes = true;
            of_stream.finish();
        }
        (ahead.unwrap_or(stream), prerequisite)
    }

    /// The stream beside a stream, if what ran there becomes known with what starts now: anything but a launch that has not waited for what is before it.
    pub(super) fn catches_up(&mut self, stream: usize) -> Option<usize> {
        if self.prerequisite(stream).is_some() || !std::mem::take(&mut self.streams[stream].owes) {
            return None;
        }
        self.ahead_of(stream)
    }

    /// A launch has ended on a stream, which goes on.
    pub(super) fn launch_ended(&mut self, stream: usize, grid: &Grid) {
        let before = self.runs_ahead_of(stream);
        let lets = grid.let_dependents_start();
        let of_stream = &mut self.streams[before.unwrap_or(stream)];
        if let Last::Launch { ahead, lets_start } = &mut of_stream.last
            && *ahead == before.is_some()
        {
            *lets_start = lets;
        }
        let other = before.or_else(|| self.ahead_of(stream));
        if let Some(Head::Running(other)) = other.map(|other| &mut self.streams[other].head) {
            other.grid.prerequisite_runs(false);
        }
        self.streams[stream].finish();
    }
}

fn is_programmatic(command: &Command) -> bool {
    matches!(command, Command::Launch(kernel) if kernel.programmatic)
}

/// The command after the first: what it was enqueued with, and its index there.
fn second(queue: &VecDeque<Enqueued>) -> Option<(&Enqueued, usize)> {
    let first = queue.front()?;
    match first.next + 1 < first.commands.len() {
        true => Some((first, first.next + 1)),
        false => queue.get(1).map(|enqueued| (enqueued, enqueued.next)),
    }
}

impl Stream {
    /// What was known when the first command was forked or enqueued. Returned only once.
    pub(super) fn told(&mut self) -> Vec<Known> {
        self.queue.front_mut().map(|enqueued| std::mem::take(&mut enqueued.known)).unwrap_or_default()
    }

    /// Whether what comes first is one kernel with what came before it: both are of the caller.
    pub(super) fn goes_on_as_one(&self) -> bool {
        self.last == Last::Caller && self.queue.front().is_some_and(|enqueued| enqueued.of_caller)
    }

    /// What runs on it.
    pub(super) fn grid(&self) -> Option<&Grid> {
        match &self.head {
            Head::Running(running) => Some(&running.grid),
            Head::Waiting | Head::Word(..) | Head::Meeting(_) | Head::Returning(..) | Head::Join(_) => None,
        }
    }

    /// The first command: the commands it was enqueued with and its index among them, and for a library call its meeting.
    ///
    /// # Panics
    /// When nothing is enqueued.
    pub(super) fn first(&self) -> (Arc<[Command]>, usize, Option<Meeting>) {
        let enqueued = self.queue.front().expect("something is enqueued");
        (enqueued.commands.clone(), enqueued.next, enqueued.meetings.front().copied())
    }

    /// The first command is done, and so is the second to this stream where it has been started.
    pub(super) fn finish(&mut self) {
        self.advance();
        if std::mem::take(&mut self.second_started) {
            self.advance();
        }
        self.head = Head::Waiting;
    }

    fn advance(&mut self) {
        let Some(enqueued) = self.queue.front_mut() else { return };
        let command = &enqueued.commands[enqueued.next];
        if matches!(command, Command::Reduce { .. }) {
            enqueued.meetings.pop_front();
        }
        match command {
            _ if enqueued.of_caller => self.last = Last::Caller,
            Command::Launch(_) | Command::Mark => {}
            Command::Copy { .. } | Command::Fill { .. } | Command::Reduce { .. } | Command::Matmul { .. } => self.last = Last::Other,
            Command::WriteValue { .. } | Command::WaitValue(_) | Command::Fork { .. } | Command::Join { .. } | Command::Fetch { .. } => {
                self.last = Last::Complete;
            }
        }
        enqueued.next += 1;
        if enqueued.next == enqueued.commands.len() {
            self.queue.pop_front();
        }
    }
}
