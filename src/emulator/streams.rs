//! What each rank of a run has: a host that goes through its actions, and streams, which carry out commands in order.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use super::{
    actions::{Action, Command},
    execution::Grid,
    memory::Address,
};

/// A call of the library: which group, and the how manieth on it.
pub(super) type Meeting = (usize, usize);

/// One rank: its host and its streams.
pub(super) struct Rank {
    actions: VecDeque<Action>,
    /// When the host goes on, in emulated nanoseconds.
    wakes: u64,
    pub(super) streams: Vec<Stream>,
    /// Library calls that the host has enqueued, by group: ranks meet in this order.
    called: BTreeMap<usize, usize>,
    /// When its marks were passed, in emulated nanoseconds.
    pub(super) marks: Vec<u64>,
}

/// One stream: what is enqueued on it, and how far the first of that is.
#[derive(Default)]
pub(super) struct Stream {
    queue: VecDeque<Enqueued>,
    pub(super) head: Head,
}

/// Commands that were enqueued together.
struct Enqueued {
    commands: Arc<[Command]>,
    next: usize,
    /// The library calls among those that are left.
    meetings: VecDeque<Meeting>,
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
}

/// A kernel that runs.
pub(super) struct Running {
    pub(super) entry: String,
    pub(super) grid: Grid,
}

impl Rank {
    pub(super) fn new(actions: Vec<Action>, streams: usize) -> Rank {
        Rank {
            actions: actions.into(),
            wakes: 0,
            streams: (0..streams).map(|_| Stream::default()).collect(),
            called: BTreeMap::new(),
            marks: Vec::new(),
        }
    }

    /// Whether the host has something to do at this time.
    pub(super) fn host_is_ready(&self, now: u64) -> bool {
        !self.actions.is_empty() && self.wakes <= now
    }

    /// When the host wakes up, where it sleeps and has something to do then.
    pub(super) fn sleeps_until(&self, now: u64) -> Option<u64> {
        (!self.actions.is_empty() && self.wakes > now).then_some(self.wakes)
    }

    /// The host's next step.
    pub(super) fn host_step(&mut self, now: u64) {
        match self.actions.pop_front() {
            Some(Action::Enqueue { stream, commands }) => {
                let meetings = commands.iter().filter_map(|command| match command {
                    Command::Reduce { group, .. } => {
                        let called = self.called.entry(*group).or_default();
                        *called += 1;
                        Some((*group, *called - 1))
                    }
                    _ => None,
                });
                let meetings = meetings.collect();
                self.streams[stream].queue.push_back(Enqueued { commands, next: 0, meetings });
            }
            Some(Action::Sleep(nanoseconds)) => self.wakes = now.saturating_add(nanoseconds),
            None => {}
        }
    }

    /// Whether host and streams are at their end.
    pub(super) fn is_done(&self) -> bool {
        self.actions.is_empty() && self.streams.iter().all(|stream| stream.queue.is_empty())
    }
}

impl Stream {
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
