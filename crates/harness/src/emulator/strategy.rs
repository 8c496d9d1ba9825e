//! Strategies: how it is decided what advances next.
//!
//! A schedule is a value: a strategy and a seed. Its text is what `--replay` takes.
//!
//! - **random**: everything that can advance is as likely, with turns of very different lengths. Now and then all of one rank is held back for a
//!   while: bugs of synchronisation need a rank that lags, which evenly mixed turns never give.
//! - **stalled**: one rank does something only when nobody else can do anything but wait, and then not for long.
//! - **priorities**: who has the highest priority goes on alone. Priorities, of streams and of the warps of each, are drawn, and fall to the lowest
//!   where a wait looks in vain and at drawn moments: the way of PCT (Burckhardt, Kothari, Musuvathi, Nagarakatte, ASPLOS 2010), without its bound on the probability of a miss,
//!   since here the moments are spread over scales of time rather than over a known number of steps.
//! - **late**: as random, but other ranks see a weak store only when something orders it (`memory/late.rs`): what relies on luck gets wrong numbers.

//!
//! # Fairness
//! Every strategy gives everybody turns for ever: a correct kernel ends under each. A rank that is held back is let go as soon as nothing comes of what
//! the others do. If they write while they wait, it is let go after a number of things: a period of **random** and **late**, [`LONGEST_STALL`] of
//! **stalled**, which gets shorter each time. What has the highest priority falls below all others when a period of **priorities** ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use super::choice::Choice;

/// How it is decided what advances next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// All that can advance is as likely, and now and then a rank is held back.
    #[default]
    Random,
    /// One rank, drawn from the seed, lags behind all others.
    Stalled,
    /// Drawn priorities that change at drawn moments.
    Priorities,
    /// As random, and stores that nothing orders, relaxed ones among them, are seen late by other ranks.
    Late,
}

impl Strategy {
    /// Every strategy, in the order in which several schedules of a case use them.
    pub const ALL: [Strategy; 4] = [Strategy::Random, Strategy::Stalled, Strategy::Priorities, Strategy::Late];

    /// The name in tokens.
    pub const fn name(self) -> &'static str {
        match self {
            Strategy::Random => "random",
            Strategy::Stalled => "stalled",
            Strategy::Priorities => "priorities",
            Strategy::Late => "late",
        }
    }
}

/// A schedule: the same one makes the same run of the same script on the same memory. Its text is `random-9f3c`: strategy and seed.
///
/// ```
/// use passmuster_harness::emulator::{Interleaving, Strategy};
///
/// let second = Interleaving::nth(7, 1);
/// assert_eq!(second.strategy, Strategy::Stalled);
/// assert_eq!(second.to_string().parse(), Ok(second));
/// assert_eq!(Interleaving::nth(7, 0).to_string(), "random-7");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interleaving {
    /// How what advances is picked.
    pub strategy: Strategy,
    /// What everything that is drawn follows from.
    pub seed: u64,
}

impl Interleaving {
    /// The `n`th of the schedules that belong to a seed: the first is random and has that seed, the others take turns in all strategies.
    pub fn nth(seed: u64, n: usize) -> Interleaving {
        let strategy = Strategy::ALL[n % Strategy::ALL.len()];
        // Short seeds make short tokens.
        let drawn = |n| u64::from(Choice::of_seed(seed).nth(n) as u32);
        Interleaving { strategy, seed: if n == 0 { seed } else { drawn(n) } }
    }
}

impl fmt::Display for Interleaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:x}", self.strategy.name(), self.seed)
    }
}

impl FromStr for Interleaving {
    type Err = String;

    /// # Errors
    /// What was expected.
    fn from_str(text: &str) -> Result<Interleaving, String> {
        let names = Strategy::ALL.map(Strategy::name);
        let parsed = text.split_once('-').and_then(|(name, seed)| {
            let strategy = Strategy::ALL.into_iter().find(|strategy| strategy.name() == name)?;
            Some(Interleaving { strategy, seed: u64::from_str_radix(seed, 16).ok()? })
        });
        parsed
            .ok_or_else(|| format!("schedule `{text}`: expected one of {} and a seed in hexadecimal, as in random-9f3c", names.join(", ")))
    }
}

/// What can advance: a rank's host, a stream by its first command, or a kernel on a stream by a turn of a warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Candidate {
    Host(usize),
    Start(usize, usize),
    Turn(usize, usize),
}

impl Candidate {
    pub(super) fn rank(self) -> usize {
        match self {
            Candidate::Host(rank) | Candidate::Start(rank, _) | Candidate::Turn(rank, _) => rank,
        }
    }

    /// What has a priority: a host, or a stream with all that runs on it.
    fn actor(self) -> (usize, Option<usize>) {
        match self {
            Candidate::Host(rank) => (rank, None),
            Candidate::Start(rank, stream) | Candidate::Turn(rank, stream) => (rank, Some(stream)),
        }
    }
}

/// A warp of a launch: slot of its block, and warp of the block.
type WarpPlace = (usize, usize);

/// Warp instructions of a turn are drawn from 1, 2, 4, ... below 2 to this.
const LONGEST_TURN: usize = 9;

/// How many things advance before the rank to hold back is drawn again.
const SHORTEST_HOLD: usize = 128;
const LONGEST_HOLD: usize = 8192;

/// How many things advance at most, as a power of two, while a stalled rank is let go.
const LONGEST_RELEASE: usize = 8;

/// How many things advance at most while a rank is stalled; half of it after each time that this was needed, but not less than the shortest.
const LONGEST_STALL: usize = 1 << 16;
const SHORTEST_STALL: usize = 1 << 8;

/// How many things advance at most, as a power of two, before priorities change.
const LONGEST_REIGN: usize = 14;

/// Priorities of a stream's warps by slot and warp: every turn looks at those of all that can run.
#[derive(Clone, Debug, Default)]
struct WarpPriorities(Vec<Vec<i64>>);

impl WarpPriorities {
    /// That of a warp; 0 where none was drawn or given.
    fn of(&mut self, (slot, warp): WarpPlace) -> &mut i64 {
        fn at<T: Default>(list: &mut Vec<T>, index: usize) -> &mut T {
            if list.len() <= index {
                list.resize_with(index + 1, T::default);
            }
            &mut list[index]
        }
        at(at(&mut self.0, slot), warp)
    }
}

/// Picks what advances next.
#[derive(Clone, Debug)]
pub(super) struct Picker {
    strategy: Strategy,
    choice: Choice,
    ranks: usize,
    /// The rank that is held back, and how many things advance until that is decided again.
    held: Option<usize>,
    left: usize,
    /// The rank that lags, where one does, and for how many things at most.
    stalled: usize,
    stall: usize,
    priorities: BTreeMap<(usize, Option<usize>), i64>,
    warp_priorities: BTreeMap<(usize, usize), WarpPriorities>,
    /// Streams whose first warp by priority is to fall below the others when it comes up.
    falls: BTreeSet<(usize, usize)>,
    /// Below every priority so far.
    lowest: i64,
}

impl Picker {
    /// Picks among what `ranks` ranks do.
    pub(super) fn new(interleaving: Interleaving, ranks: usize) -> Picker {
        let Interleaving { strategy, seed } = interleaving;
        let mut choice = Choice::of_seed(seed);
        let stalled = choice.below(ranks.max(1));
        let (priorities, warp_priorities) = (BTreeMap::new(), BTreeMap::new());
        let stall = LONGEST_STALL;
        Picker {
            strategy,
            choice,
            ranks,
            held: None,
            left: 0,
            stalled,
            stall,
            priorities,
            warp_priorities,
            falls: BTreeSet::new(),
            lowest: 0,
        }
    }

    /// One of the candidates, of which there is at least one.
    pub(super) fn pick(&mut self, candidates: &[Candidate]) -> Candidate {
        if self.left == 0 {
            self.begin_period(candidates);
        }
        self.left -= 1;
        if self.strategy == Strategy::Priorities {
            return self.highest(candidates);
        }
        let free = candidates.iter().filter(|candidate| Some(candidate.rank()) != self.held).count();
        if free == 0 {
            return candidates[self.choice.below(candidates.len())];
        }
        let nth = self.choice.below(free);
        *candidates.iter().filter(|candidate| Some(candidate.rank()) != self.held).nth(nth).expect("fewer than there are")
    }

    fn begin_period(&mut self, candidates: &[Candidate]) {
        match self.strategy {
            Strategy::Random | Strategy::Late => {
                self.left = SHORTEST_HOLD + self.choice.below(LONGEST_HOLD - SHORTEST_HOLD);
                self.held = (self.choice.below(2) == 0).then(|| self.choice.below(self.ranks));
            }
            Strategy::Stalled if self.held.take().is_some() => {
                // The others go on and on, perhaps because they wait for it: they write, so it was not let go before.
                self.left = 1 << self.choice.below(LONGEST_RELEASE);
                self.stall = SHORTEST_STALL.max(self.stall / 2);
            }
            Strategy::Stalled => {
                self.left = self.stall;
                self.held = Some(self.stalled);
            }
            Strategy::Priorities => {
                self.left = 1 << self.choice.below(LONGEST_REIGN);
                let first = self.highest(candidates);
                self.demote(first);
                if let Candidate::Turn(rank, stream) = first {
                    self.falls.insert((rank, stream));
                }
            }
        }
    }

    /// Nothing came of what advanced lately. Whether somebody who was held back is let go now.
    pub(super) fn in_vain(&mut self) -> bool {
        let released = self.held.take().is_some();
        if released && self.strategy == Strategy::Stalled {
            self.left = 1 << self.choice.below(LONGEST_RELEASE);
        }
        released
    }

    /// Warp instructions of the next turn.
    pub(super) fn turn_length(&mut self) -> u32 {
        1 << self.choice.below(LONGEST_TURN)
    }

    /// Which of the warps that can run has the next turn of a stream's kernel, by its place in the list.
    pub(super) fn warp(&mut self, rank: usize, stream: usize, warps: &[WarpPlace]) -> usize {
        if self.strategy != Strategy::Priorities {
            return self.choice.below(warps.len().max(1));
        }
        let of_stream = self.warp_priorities.entry((rank, stream)).or_default();
        let mut best = (i64::MIN, 0);
        for (index, &warp) in warps.iter().enumerate() {
            let priority = of_stream.of(warp);
            if *priority == 0 {
                *priority = 1 + self.choice.below(1 << 30) as i64;
            }
            best = best.max((*priority, index));
        }
        if self.falls.remove(&(rank, stream))
            && let Some(&warp) = warps.get(best.1)
        {
            self.lowest -= 1;
            *of_stream.of(warp) = self.lowest;
        }
        best.1
    }

    /// A warp looked in vain at what it waits for: others go first.
    pub(super) fn waited(&mut self, rank: usize, stream: usize, warp: Option<WarpPlace>) {
        if self.strategy == Strategy::Priorities {
            self.demote(Candidate::Turn(rank, stream));
            if let Some(warp) = warp {
                *self.warp_priorities.entry((rank, stream)).or_default().of(warp) = self.lowest;
            }
        }
    }

    fn demote(&mut self, candidate: Candidate) {
        self.lowest -= 1;
        self.priorities.insert(candidate.actor(), self.lowest);
    }

    fn highest(&mut self, candidates: &[Candidate]) -> Candidate {
        let Picker { priorities, choice, .. } = self;
        let mut priority = |candidate: &Candidate| *priorities.entry(candidate.actor()).or_insert_with(|| 1 + choice.below(1 << 30) as i64);
        let mut best = (priority(&candidates[0]), candidates[0]);
        for candidate in &candidates[1..] {
            best = best.max((priority(candidate), *candidate));
        }
        best.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_read_as_they_are_written() {
        for n in 0..9 {
            let interleaving = Interleaving::nth(0x1234_5678_9abc, n);
            assert_eq!(interleaving.to_string().parse(), Ok(interleaving));
        }
        for text in ["", "random", "random-", "random-xyz", "fair-1", "stalled 1"] {
            let error = text.parse::<Interleaving>().unwrap_err();
            assert!(error.contains("random, stalled, priorities, late"), "{error}");
        }
    }

    #[test]
    fn schedules_of_a_seed_differ() {
        let all: Vec<String> = (0..60).map(|n| Interleaving::nth(3, n).to_string()).collect();
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len());
    }

    /// If this fails, no schedule has one rank far behind the others but the stalled one's.
    #[test]
    fn random_and_late_hold_ranks_back() {
        for strategy in [Strategy::Random, Strategy::Late] {
            // Which ranks come up in 64 picks in a row: by chance alone, one of three is missing once in 10^11 times.
            let picked: Vec<usize> = (0..8).flat_map(|seed| picks(strategy, seed, false)).collect();
            let stretches: BTreeSet<BTreeSet<usize>> =
                picked.chunks(SHORTEST_HOLD / 2).map(|part| part.iter().copied().collect()).collect();
            let expected = [[0, 1].into(), [0, 2].into(), [1, 2].into(), [0, 1, 2].into()];
            assert_eq!(stretches, BTreeSet::from(expected), "{}", strategy.name());
        }
    }

    fn picks(strategy: Strategy, seed: u64, waits: bool) -> Vec<usize> {
        let candidates = [0, 1, 2].map(|rank| Candidate::Turn(rank, 0));
        let mut picker = Picker::new(Interleaving { strategy, seed }, 3);
        let mut picked = Vec::new();
        for _ in 0..20_000 {
            let candidate = picker.pick(&candidates);
            if waits {
                picker.waited(candidate.rank(), 0, None);
            }
            picked.push(candidate.rank());
        }
        picked
    }

    #[test]
    fn a_stalled_rank_waits_until_all_others_do() {
        let candidates = [0, 1, 2].map(|rank| Candidate::Turn(rank, 0));
        let mut picker = Picker::new(Interleaving { strategy: Strategy::Stalled, seed: 5 }, 3);
        let stalled = picker.stalled;
        assert!((0..5000).all(|_| picker.pick(&candidates).rank() != stalled));
        let let_go = |picker: &mut Picker| picker.in_vain() && (0..100).any(|_| picker.pick(&candidates).rank() == stalled);
        assert!((0..50).any(|_| let_go(&mut picker)));
        for _ in 0..1 << LONGEST_RELEASE {
            picker.pick(&candidates);
        }
        assert!((0..5000).all(|_| picker.pick(&candidates).rank() != stalled));
    }

    /// If this fails, a kernel whose ranks write while they wait for the stalled one never ends.
    #[test]
    fn a_stalled_rank_is_let_go_though_the_others_go_on() {
        let candidates = [0, 1, 2].map(|rank| Candidate::Turn(rank, 0));
        let mut picker = Picker::new(Interleaving { strategy: Strategy::Stalled, seed: 5 }, 3);
        let stalled = picker.stalled;
        let picked: Vec<usize> = (0..4 * LONGEST_STALL).filter(|_| picker.pick(&candidates).rank() == stalled).collect();
        assert!(picked[0] >= LONGEST_STALL, "{}", picked[0]);
        assert!(picked.len() > LONGEST_STALL / 100, "{}", picked.len());
    }

    /// If this fails, ranks that wait for the stalled one in many calls wait as long in each, or are hardly ever far ahead of it.
    #[test]
    fn each_stall_is_half_as_long() {
        let candidates = [0, 1, 2].map(|rank| Candidate::Turn(rank, 0));
        let mut picker = Picker::new(Interleaving { strategy: Strategy::Stalled, seed: 5 }, 3);
        let held: Vec<bool> = (0..3 * LONGEST_STALL)
            .map(|_| {
                picker.pick(&candidates);
                picker.held.is_some()
            })
            .collect();
        let stalls: Vec<usize> = held.chunk_by(|a, b| a == b).filter(|stretch| stretch[0]).map(<[bool]>::len).collect();
        assert_eq!(stalls[..11], [65536, 32768, 16384, 8192, 4096, 2048, 1024, 512, 256, 256, 256]);
    }

    /// If this fails, a warp that waits in a way that is not seen keeps those of its stream from what it waits for.
    #[test]
    fn every_warp_of_a_stream_comes_up_by_priorities() {
        let warps = [(0, 0), (0, 1), (1, 0), (1, 1)];
        let candidates = [0, 1].map(|rank| Candidate::Turn(rank, 0));
        let mut picker = Picker::new(Interleaving { strategy: Strategy::Priorities, seed: 2 }, 2);
        let mut picked = BTreeSet::new();
        for _ in 0..1 << 18 {
            let Candidate::Turn(rank, stream) = picker.pick(&candidates) else { unreachable!("there are only turns") };
            picked.insert((rank, picker.warp(rank, stream, &warps)));
        }
        assert_eq!(picked.len(), 8, "{picked:?}");
    }

    #[test]
    fn priorities_let_one_go_on_until_it_waits() {
        let alone = picks(Strategy::Priorities, 1, false);
        let changes = alone.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!((1..1000).contains(&changes), "{changes}");
        let waiting = picks(Strategy::Priorities, 1, true);
        assert!((0..3).all(|rank| waiting.iter().filter(|&&picked| picked == rank).count() > 5000));
    }

    #[test]
    fn every_rank_comes_up_at_random() {
        let picked = picks(Strategy::Random, 9, false);
        assert!((0..3).all(|rank| picked.contains(&rank)));
    }
}
