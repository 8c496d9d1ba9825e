//! What each rank of a run has: a host that goes through its actions, and streams, which carry out commands in order.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::{
    actions::{Action, Command},
    execution::{Grid, Program},
    memory::Address,
    races::Known,
};
use passmuster_collectives::machine::{Awaited, Fetched, validation::side_stream};

/// A call of the library: which group, and the number of the call on it.
pub(super) type Meeting = (usize, usize);

/// One rank: its host and its streams.
pub(super) struct Rank {
    actions: VecDeque<Action>,
    /// When the host goes on, in emulated nanoseconds.
    wakes: u64,
    pub(super) streams: Vec<Stream>,
    /// Streams that the script names, and side streams of each.
    numbers: (usize, usize),
    /// Library calls that the host has enqueued, by group: ranks meet in this order.
    called: BTreeMap<usize, usize>,
    /// When its marks were passed, in emulated nanoseconds, in the order in which the host enqueued them.
    pub(super) marks: Vec<u64>,
    /// What it fetches, in the order in which the host enqueued that.
    fetches: Vec<Fetch>,
    /// What the host has learnt from what it waited for: all that it enqueues comes after that.
    known: Vec<Known>,
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
}

/// Commands that were enqueued together.
#[derive(Default)]
struct Enqueued {
    commands: Arc<[Command]>,
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
    /// With so many streams, and side streams of each.
    pub(super) fn new(actions: Vec<Action>, (streams, sides): (usize, usize)) -> Rank {
        Rank {
            actions: actions.into(),
            wakes: 0,
            streams: (0..streams * (1 + sides)).map(|_| Stream::default()).collect(),
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
            Some(Action::Enqueue { stream, commands }) => self.enqueue(stream, commands),
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
                let plans = graph.plans.iter().rev().map(|commands| Action::Enqueue { stream, commands: commands.clone() });
                plans.for_each(|action| self.actions.push_front(action));
                self.host_step(now);
            }
            Some(Action::Mark) => self.enqueue(0, [Command::Mark].into()),
            Some(Action::Sleep(time)) => self.wakes = now.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
            None => {}
        }
    }

    fn enqueue(&mut self, stream: usize, commands: Arc<[Command]>) {
        let enqueued = Enqueued { known: self.known.clone(), ..self.enqueued(stream, commands) };
        self.streams[stream].queue.push_back(enqueued);
    }

    /// Commands with what the order of enqueuing says about them.
    fn enqueued(&mut self, stream: usize, commands: Arc<[Command]>) -> Enqueued {
        let mut enqueued = Enqueued { commands: commands.clone(), ..Enqueued::default() };
        for command in commands.iter() {
            match command {
                Command::Reduce { group, .. } => {
                    let called = self.called.entry(*group).or_default();
                    enqueued.meetings.push_back((*group, *called));
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
        self.actions.is_empty() && self.streams.iter().all(|stream| stream.queue.is_empty())
    }
}

impl Stream {
    /// What whoever forked or enqueued what comes first knew then, once.
    pub(super) fn told(&mut self) -> Vec<Known> {
        self.queue.front_mut().map(|enqueued| std::mem::take(&mut enqueued.known)).unwrap_or_default()
    }

    /// Whether nothing is left on it.
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether its first command can start.
    pub(super) fn can_start(&self) -> bool {
        matches!(self.head, Head::Waiting) && !self.queue.is_empty()
    }

    /// The first command: the commands it was enqueued with and its index among them, and for a library call its meeting.
    ///
    /// # Panics
    /// When nothing is enqueued.
    pub(super) fn first(&self) -> (Arc<[Command]>, usize, Option<Meeting>) {
        let enqueued = self.queue.front().expect("something is enqueued");
        (enqueued.commands.clone(), enqueued.next, enqueued.meetings.front().copied())
    }

    /// The first command is done.
    pub(super) fn finish(&mut self) {
        let Some(enqueued) = self.queue.front_mut() else { return };
        if matches!(enqueued.commands[enqueued.next], Command::Reduce { .. }) {
            enqueued.meetings.pop_front();
        }
        enqueued.next += 1;
        if enqueued.next == enqueued.commands.len() {
            self.queue.pop_front();
        }
        self.head = Head::Waiting;
    }
}
