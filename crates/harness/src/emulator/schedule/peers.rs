//! A rank whose peers are in other processes: it waits for them where nothing comes of what it does, and meets them in library calls.
//!
//! Its clock is its own: it goes on with its instructions, and jumps only where every process waits ([`board`](super::super::board)). So a wait that reads the clock
//! never gives up because a peer's process is slow. A host that sleeps wakes then, too, or after as much wall time and a little more.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{LibraryCall, Round, SHORT_LOOKS, Schedule, Stopped, lasts_too_long};
use crate::emulator::{
    board::{Board, Watch, Woken},
    memory::Address,
    streams::{Meeting, Rank},
};

/// How much longer than it says a host sleeps in wall time where others go on and on, as those do that write while they wait.
const OVERSLEEP: Duration = Duration::from_millis(50);

/// The processes of the other ranks.
pub(in crate::emulator) struct Peers<'a> {
    board: &'a mut Board,
    job: Watch<'a>,
    rank: usize,
    /// Library calls of each rank, with their numbers among those of the rank.
    calls: Vec<BTreeMap<Meeting, (usize, LibraryCall)>>,
    /// What is to be written when all have read, and where.
    results: BTreeMap<Meeting, (Address, Vec<u8>)>,
    /// Everybody's progress when kernels were looked at last.
    looked_at: u64,
    /// Until when the host sleeps by the clock, and when it wakes by wall time at the latest.
    sleeps: Option<(u64, Instant)>,
}

impl<'a> Peers<'a> {
    /// For this rank, with what every rank's host will call the library for.
    pub(in crate::emulator) fn new(board: &'a mut Board, job: Watch<'a>, rank: usize, calls: Vec<Vec<LibraryCall>>) -> Peers<'a> {
        let numbered = |calls: Vec<LibraryCall>| calls.into_iter().enumerate().map(|(index, call)| (call.meeting, (index, call))).collect();
        let calls = calls.into_iter().map(numbered).collect();
        Peers { board, job, rank, calls, results: BTreeMap::new(), looked_at: 0, sleeps: None }
    }

    /// The rank that is here.
    pub(in crate::emulator) fn rank(&self) -> usize {
        self.rank
    }

    /// This rank has done something that others may see.
    pub(super) fn advanced(&mut self) {
        self.board.advanced();
    }

    /// Whether another process has given up, or is lost.
    pub(super) fn has_stopped(&mut self) -> bool {
        self.board.has_stopped(&mut self.job)
    }

    fn phase_of(&self, rank: usize, meeting: Meeting) -> u64 {
        self.calls[rank].get(&meeting).map_or(0, |(index, _)| self.board.phase(rank, *index))
    }

    /// How far this rank is in a call.
    pub(super) fn phase(&self, meeting: Meeting) -> u64 {
        self.phase_of(self.rank, meeting)
    }

    pub(super) fn enter_phase(&mut self, meeting: Meeting, phase: u64) {
        self.board.enter_phase(self.calls[self.rank][&meeting].0, phase);
    }

    /// Those of these ranks that are not as far in a call as this one.
    pub(super) fn behind(&self, meeting: Meeting, members: impl Iterator<Item = usize>) -> Vec<usize> {
        let phase = self.phase(meeting);
        members.filter(|&rank| self.phase_of(rank, meeting) < phase).collect()
    }

    /// What each of these ranks passes to a call that all of them have come to.
    pub(super) fn passed(&self, meeting: Meeting, members: impl Iterator<Item = usize>) -> Vec<LibraryCall> {
        members.map(|rank| self.calls[rank][&meeting].1.clone()).collect()
    }

    /// What is to be written in the call's next step, and where.
    pub(super) fn keep_result(&mut self, meeting: Meeting, output: Address, result: Vec<u8>) {
        self.results.insert(meeting, (output, result));
    }

    /// The same, in that step.
    pub(super) fn take_result(&mut self, meeting: Meeting) -> (Address, Vec<u8>) {
        self.results.remove(&meeting).expect("all have read before anybody writes")
    }

    /// The wall time at which a host wakes that sleeps until `at` by the clock, `nanoseconds` from now.
    fn alarm(&mut self, at: u64, nanoseconds: u64) -> Instant {
        match self.sleeps {
            Some((until, alarm)) if until == at => alarm,
            _ => {
                let alarm = Instant::now() + Duration::from_nanos(nanoseconds).saturating_add(OVERSLEEP).min(Duration::from_secs(1 << 20));
                self.sleeps = Some((at, alarm));
                alarm
            }
        }
    }
}

impl Schedule<'_> {
    /// Everybody's progress, to be read before kernels are looked at; nothing where all ranks are here. What is known of clusters holds as long as it stays.
    pub(super) fn total_progress(&mut self) -> Option<u64> {
        let peers = self.peers.as_mut()?;
        let total = peers.board.total();
        if std::mem::replace(&mut peers.looked_at, total) != total {
            self.clusters.clear();
        }
        Some(total)
    }

    /// Nothing can be done in this process: whether that is the end. Otherwise it waits for others, which may have done something by then.
    pub(super) fn is_at_end(&mut self) -> Result<bool, Stopped> {
        if self.ranks.iter().all(Rank::is_done) {
            return Ok(true);
        }
        let Some(total) = self.total_progress() else { return Ok(false) };
        // What others did before that sum was read may be what was waited for.
        let mut candidates = Vec::new();
        self.candidates(&mut candidates);
        if candidates.is_empty() {
            self.wait_for_peers(total, self.first_to_wake().is_some())?;
        }
        Ok(false)
    }

    /// Nothing comes of what this process does since the sum of progress was `total`: it waits until that changes. `clocked` says that time alone may end the wait.
    pub(super) fn wait_for_peers(&mut self, total: u64, clocked: bool) -> Result<(), Stopped> {
        // A deadline that no clock comes to is none.
        let deadline = self.begin.checked_add(self.limits.deadline).unwrap_or_else(|| self.begin + Duration::from_secs(1 << 30));
        let (now, wakes) = (self.now, self.first_to_wake());
        let Some(peers) = &mut self.peers else { return Ok(()) };
        let alarm = wakes.map(|at| peers.alarm(at, at - now));
        let until = alarm.map_or(deadline, |alarm| alarm.min(deadline));
        match peers.board.wait(&mut peers.job, total, clocked.then_some(now), until) {
            Woken::Progress | Woken::Late if Instant::now() >= deadline => return Err(Stopped::Late { standing: self.standing() }),
            Woken::Progress => {
                self.idle = 0;
                self.looks = 0;
                self.clusters.clear();
                self.waiting_since = None;
            }
            Woken::Alone => {
                let (since, _) = *self.waiting_since.get_or_insert((now, self.instructions));
                let waited = now - since;
                if lasts_too_long(waited) {
                    return Err(self.given_up_after(waited));
                }
                self.jump(waited);
            }
            Woken::Deadlock if self.running().is_empty() => return Err(self.hang(self.deadlock_of_streams().into())),
            Woken::Deadlock => return Err(self.hang(self.deadlock_of_kernels().into())),
            Woken::Stopped => return Err(Stopped::Peer { standing: self.standing() }),
            // The host's alarm.
            Woken::Late => self.now = wakes.unwrap_or(now),
        }
        Ok(())
    }

    /// Whether this process does nothing but wait for others: not, where one of its warps is at work.
    pub(super) fn waits_for_peers(&mut self) -> Result<bool, Stopped> {
        if self.peers.is_none() {
            return Ok(false);
        }
        // Every warp is asked, however often it looked busy.
        self.looks = SHORT_LOOKS + 1;
        Ok(self.round()? == Round::Waiting)
    }

    /// Lets other processes go first for a moment.
    pub(super) fn rest(&self, total: u64) {
        self.peers.iter().for_each(|peers| peers.board.rest(total));
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use passmuster_bootstrap::{Bootstrap, BootstrapError};

    use super::*;

    /// A job of one rank.
    struct Alone;

    impl Bootstrap for Alone {
        fn rank(&self) -> usize {
            0
        }

        fn world(&self) -> usize {
            1
        }

        fn all_gather(&mut self, _: &str, own: &[u8]) -> Result<Vec<Vec<u8>>, BootstrapError> {
            Ok(vec![own.to_vec()])
        }

        fn all_gather_descriptors(&mut self, _: &str, _: &[OwnedFd]) -> Result<Vec<Vec<OwnedFd>>, BootstrapError> {
            Ok(vec![Vec::new()])
        }

        fn set_limit(&mut self, limit: Duration) -> Duration {
            limit
        }

        fn failure(&mut self) -> Option<BootstrapError> {
            None
        }

        fn give_up(&mut self, _: &str) {}
    }

    /// If this fails, a host that sleeps wakes early by wall time where others write while they wait, or ever later.
    #[test]
    fn hosts_sleep_a_little_longer_than_they_say() {
        let (mut job, mut meets) = (Alone, Alone);
        let mut board = Board::open(&mut meets).unwrap();
        let mut peers = Peers::new(&mut board, Watch::new(&mut job), 0, Vec::new());
        let minute = 60_000_000_000;
        let start = Instant::now();
        let alarm = peers.alarm(minute, minute);
        let most = Instant::now() + Duration::from_nanos(minute) + OVERSLEEP;
        assert!((start + Duration::from_nanos(minute) + OVERSLEEP..=most).contains(&alarm));
        assert_eq!(peers.alarm(minute, minute / 2), alarm, "it sleeps on");
        assert!(peers.alarm(2 * minute, 2 * minute) > alarm, "it starts a second sleep");
        // A clock that has no such time is asked for none.
        peers.alarm(u64::MAX, u64::MAX);
    }
}
