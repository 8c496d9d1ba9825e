//! What the processes of a run tell each other while it goes on, without meeting: words in memory that all of them map.
//!
//! Each process writes words of its own only: how often it has made progress, whether it waits in vain and at what time of its clock, how it has ended, and
//! how far it is in each library call.
//!
//! # Waiting in vain
//! A process that can do nothing but wait says so, with the sum of everybody's progress that it read before it looked at what it waits for. As long as
//! that sum stays, nobody has written, and it would look in vain again. If all processes that are not done say so of the same sum, and the sum is still
//! that, nobody will ever write again: the first one to write would have no reason. This proves a deadlock, unless time alone ends a wait. Of the
//! processes whose clock may go on, the one that is behind then lets it jump, so that no wait gives up because another process is slow.
//!
//! For that, a process counts progress after it can be seen and before it waits. A process that goes on takes its word back first. One that asks reads
//! the words before the sum.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::memory::Segment;
use passmuster_bootstrap::{Bootstrap, BootstrapError};

/// Offsets of a process's words: how often it made progress, how its run ended, in which sum it waits, and at what time.
const PROGRESS: u64 = 0;
const STATE: u64 = 8;
const VAIN: u64 = 16;
const CLOCK: u64 = 24;
/// Of the first library call's word, on a line of the processor's cache of its own.
const CALLS: u64 = 128;

/// Bytes of a process's words. Those that nobody writes take no memory.
const BYTES: u64 = 1 << 20;

/// Library calls that a rank may make in one run.
pub(super) const MOST_CALLS: usize = ((BYTES - CALLS) / 8) as usize;

/// How a process's part of a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// At its end.
    Done = 1,
    /// Before it: the others are not to go on.
    Stopped = 2,
    /// At the deadline, which the others come to by themselves.
    Late = 3,
}

/// Looks at the words before the process sleeps between two, and for how long then, at first and at most.
const LOOKS: u32 = 64;
const FIRST_NAP: Duration = Duration::from_micros(20);
const LONGEST_NAP: Duration = Duration::from_micros(500);

/// How often a process looks whether another is lost.
const WATCH_PERIOD: Duration = Duration::from_millis(5);

/// The words of all processes.
pub(super) struct Board {
    rank: usize,
    segments: Vec<Segment>,
    progress: u64,
    /// Number of the run, from 1 on.
    run: u64,
}

/// Looks now and then whether the job has failed: who is lost writes no word.
pub(super) struct Watch<'a> {
    bootstrap: &'a mut (dyn Bootstrap + 'static),
    next: Instant,
    failed: bool,
}

impl<'a> Watch<'a> {
    pub(super) fn new(bootstrap: &'a mut (dyn Bootstrap + 'static)) -> Watch<'a> {
        Watch { bootstrap, next: Instant::now() + WATCH_PERIOD, failed: false }
    }

    fn has_failed(&mut self) -> bool {
        let now = Instant::now();
        if !self.failed && now >= self.next {
            self.failed = self.bootstrap.failure().is_some();
            self.next = now + WATCH_PERIOD;
        }
        self.failed
    }
}

/// Why a process that waited goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Woken {
    /// Another one has made progress.
    Progress,
    /// All wait, and time alone ends this one's wait.
    Alone,
    /// All wait, and nothing ends it.
    Deadlock,
    /// Another process has given up, or is lost.
    Stopped,
    /// It is as late as was said.
    Late,
}

impl Board {
    /// Meets the others, so that each has everybody's words.
    ///
    /// # Errors
    /// Of the exchange, and `SetUp` where there is no memory.
    pub(super) fn open(bootstrap: &mut dyn Bootstrap) -> Result<Board, BootstrapError> {
        let (own, file) = Segment::create(BYTES).map_err(|error| BootstrapError::SetUp(format!("shared words: {error}")))?;
        let segments = exchange(bootstrap, "shared words", own, file, BYTES)?;
        Ok(Board { rank: bootstrap.rank(), segments, progress: 0, run: 0 })
    }

    fn get(&self, rank: usize, word: u64) -> u64 {
        u64::from_le_bytes(self.segments[rank].load(word))
    }

    fn set(&self, word: u64, value: u64) {
        self.segments[self.rank].store(word, value.to_le_bytes());
    }

    fn others(&self) -> impl Iterator<Item = usize> {
        (0..self.segments.len()).filter(|&rank| rank != self.rank)
    }

    /// A run is about to begin; to be said before ranks meet for it.
    pub(super) fn begin_run(&mut self) {
        self.run += 1;
        self.set(VAIN, 0);
    }

    /// Number of the run.
    pub(super) fn run(&self) -> u64 {
        self.run
    }

    /// This process's part of the run has ended.
    pub(super) fn end_run(&self, end: End) {
        self.set(VAIN, 0);
        // The number of the run stands above how it ended.
        self.set(STATE, self.run << 2 | end as u64);
    }

    fn has_ended(&self, rank: usize) -> bool {
        self.get(rank, STATE) >> 2 == self.run
    }

    fn has_ended_so(&self, rank: usize, end: End) -> bool {
        self.get(rank, STATE) == self.run << 2 | end as u64
    }

    /// Whether a process has given up, or is lost.
    pub(super) fn has_stopped(&self, job: &mut Watch<'_>) -> bool {
        self.others().any(|rank| self.has_ended_so(rank, End::Stopped)) || job.has_failed()
    }

    /// Waits until every process has ended the run, or one is lost, or so long.
    pub(super) fn wait_for_all(&self, job: &mut Watch<'_>, until: Instant) {
        let mut naps = Naps::default();
        while self.others().any(|rank| !self.has_ended(rank)) && !job.has_failed() && Instant::now() < until {
            naps.nap();
        }
    }

    /// This process has written something that others may see, or did what only the next step tells.
    pub(super) fn advanced(&mut self) {
        self.progress += 1;
        self.set(PROGRESS, self.progress);
    }

    /// Everybody's progress. It never falls, and who reads it sees all that it counts.
    pub(super) fn total(&self) -> u64 {
        (0..self.segments.len()).map(|rank| self.get(rank, PROGRESS)).sum()
    }

    /// Waits as one that could do nothing but wait since the sum of progress was `total`, until `until` at most. With the time of its `clock`, where time
    /// alone may end its wait.
    pub(super) fn wait(&self, job: &mut Watch<'_>, total: u64, clock: Option<u64>, until: Instant) -> Woken {
        let vain = |total: u64, clocked: bool| (total + 1) << 1 | u64::from(clocked);
        self.set(CLOCK, clock.unwrap_or(0));
        self.set(VAIN, vain(total, clock.is_some()));
        let mut naps = Naps::default();
        let woken = loop {
            if self.has_stopped(job) {
                break Woken::Stopped;
            }
            let (mut all, mut clocks, mut ahead) = (true, false, false);
            for rank in self.others() {
                let word = self.get(rank, VAIN);
                let clocked = word == vain(total, true);
                all &= clocked || word == vain(total, false) || self.has_ended_so(rank, End::Done);
                clocks |= clocked;
                ahead |= clocked && clock.is_some_and(|own| own > self.get(rank, CLOCK));
            }
            if self.total() != total {
                break Woken::Progress;
            }
            match clock {
                Some(_) if all && !ahead => break Woken::Alone,
                None if all && !clocks => break Woken::Deadlock,
                _ => {}
            }
            if Instant::now() >= until {
                break Woken::Late;
            }
            naps.nap();
        };
        self.set(VAIN, 0);
        woken
    }

    /// Leaves the processor to others, until somebody makes progress or for a short time.
    pub(super) fn rest(&self, total: u64) {
        let mut naps = Naps::default();
        while naps.slept < LONGEST_NAP && self.total() == total {
            naps.nap();
        }
    }

    /// How far a rank is in its library call of this number.
    pub(super) fn phase(&self, rank: usize, call: usize) -> u64 {
        self.get(rank, CALLS + 8 * call as u64).saturating_sub(self.run << 2)
    }

    /// Says how far this rank is in its call of this number: 1 to 3.
    pub(super) fn enter_phase(&self, call: usize, phase: u64) {
        self.set(CALLS + 8 * call as u64, self.run << 2 | phase);
    }
}

/// Gives every process the segments of all, of `bytes` bytes each, in rank order. This one's is there already.
pub(super) fn exchange(
    bootstrap: &mut dyn Bootstrap,
    what: &str,
    own: Segment,
    file: std::os::fd::OwnedFd,
    bytes: u64,
) -> Result<Vec<Segment>, BootstrapError> {
    let rank = bootstrap.rank();
    let files = bootstrap.all_gather_descriptors(what, &[file])?;
    let mut own = Some(own);
    let map = |(of, files): (usize, Vec<std::os::fd::OwnedFd>)| {
        let wrong = |why: String| BootstrapError::SetUp(format!("{what} of rank {of}: {why}"));
        match (own.take_if(|_| of == rank), files.as_slice()) {
            (Some(own), _) => Ok(own),
            (None, [file]) => Segment::map(file, bytes).map_err(|error| wrong(error.to_string())),
            (None, files) => Err(wrong(format!("{} descriptors came: expected 1", files.len()))),
        }
    };
    files.into_iter().enumerate().map(map).collect()
}

/// Naps between looks, which grow longer.
#[derive(Default)]
struct Naps {
    looks: u32,
    next: Option<Duration>,
    slept: Duration,
}

impl Naps {
    fn nap(&mut self) {
        self.looks += 1;
        if self.looks <= LOOKS {
            return thread::yield_now();
        }
        let nap = self.next.unwrap_or(FIRST_NAP);
        thread::sleep(nap);
        self.slept += nap;
        self.next = Some(LONGEST_NAP.min(nap * 2));
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    /// Boards of processes, as if they had met.
    fn boards(world: usize) -> Vec<Board> {
        let files: Vec<_> = (0..world).map(|_| Segment::create(BYTES).unwrap().1).collect();
        let of_rank =
            |rank| Board { rank, segments: files.iter().map(|file| Segment::map(file, BYTES).unwrap()).collect(), progress: 0, run: 1 };
        (0..world).map(of_rank).collect()
    }

    /// A job of which some rank may be lost.
    struct Job {
        failure: Option<BootstrapError>,
    }

    impl Bootstrap for Job {
        fn rank(&self) -> usize {
            0
        }

        fn world(&self) -> usize {
            2
        }

        fn all_gather(&mut self, _: &str, _: &[u8]) -> Result<Vec<Vec<u8>>, BootstrapError> {
            unreachable!("boards do not meet while they wait")
        }

        fn all_gather_descriptors(&mut self, _: &str, _: &[OwnedFd]) -> Result<Vec<Vec<OwnedFd>>, BootstrapError> {
            unreachable!("boards do not meet while they wait")
        }

        fn set_limit(&mut self, limit: Duration) -> Duration {
            limit
        }

        fn failure(&mut self) -> Option<BootstrapError> {
            self.failure.clone()
        }

        fn give_up(&mut self, _: &str) {}
    }

    /// As a process waits whose job goes on.
    fn wait(board: &Board, total: u64, clock: Option<u64>, until: Instant) -> Woken {
        board.wait(&mut Watch::new(&mut Job { failure: None }), total, clock, until)
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(5)
    }

    fn say_vain(board: &Board, total: u64, clock: Option<u64>) {
        board.set(CLOCK, clock.unwrap_or(0));
        board.set(VAIN, (total + 1) << 1 | u64::from(clock.is_some()));
    }

    /// If this fails, a slow process is taken for a deadlock, or a deadlock lasts until the deadline.
    #[test]
    fn a_deadlock_is_when_all_wait_in_vain_since_the_same_progress() {
        let mut boards = boards(3);
        assert_eq!(wait(&boards[0], 0, None, soon()), Woken::Late, "the others are at work");
        say_vain(&boards[1], 0, None);
        assert_eq!(wait(&boards[0], 0, None, soon()), Woken::Late, "one is at work");
        say_vain(&boards[2], 0, None);
        assert_eq!(wait(&boards[0], 0, None, soon()), Woken::Deadlock);
        boards[2].advanced();
        assert_eq!(wait(&boards[0], 0, None, soon()), Woken::Progress);
        assert_eq!(wait(&boards[0], 1, None, soon()), Woken::Late, "they have not looked since");
        say_vain(&boards[1], 1, None);
        boards[2].end_run(End::Done);
        assert_eq!(wait(&boards[0], 1, None, soon()), Woken::Deadlock, "one is done");
    }

    /// If this fails, a wait gives up though a peer's process is only slow, or one whose clock is behind.
    #[test]
    fn clocks_go_on_where_all_wait_and_the_last_one_first() {
        let boards = boards(2);
        assert_eq!(wait(&boards[0], 0, Some(5), soon()), Woken::Late, "the other is at work");
        say_vain(&boards[1], 0, Some(4));
        assert_eq!(wait(&boards[0], 0, Some(5), soon()), Woken::Late, "the other's clock is behind");
        assert_eq!(wait(&boards[0], 0, None, soon()), Woken::Late, "time may end the other's wait");
        say_vain(&boards[1], 0, Some(5));
        assert_eq!(wait(&boards[0], 0, Some(5), soon()), Woken::Alone);
        say_vain(&boards[1], 0, None);
        assert_eq!(wait(&boards[0], 0, Some(9), soon()), Woken::Alone);
        assert_eq!(wait(&boards[1], 0, None, soon()), Woken::Late, "it has taken its word back");
    }

    #[test]
    fn who_gives_up_is_seen_and_only_in_its_run() {
        let mut boards = boards(2);
        boards[1].end_run(End::Stopped);
        assert_eq!(wait(&boards[0], 0, None, soon()), Woken::Stopped);
        boards[0].begin_run();
        assert_eq!(wait(&boards[0], 0, None, soon()), Woken::Late);
        boards[0].enter_phase(3, 2);
        assert_eq!(boards[0].phase(0, 3), 2);
        boards[0].begin_run();
        assert_eq!(boards[0].phase(0, 3), 0, "of the run before");
    }

    /// If this fails, ranks wait until the deadline for one whose process is gone.
    #[test]
    fn who_is_lost_is_waited_for_no_longer() {
        let boards = boards(2);
        let mut job = Job { failure: Some(BootstrapError::SetUp("rank 1 is gone".into())) };
        let far = Instant::now() + Duration::from_secs(60);
        assert_eq!(boards[0].wait(&mut Watch::new(&mut job), 0, None, far), Woken::Stopped);
        boards[0].wait_for_all(&mut Watch::new(&mut job), far);
        assert!(Instant::now() < far);
    }
}
