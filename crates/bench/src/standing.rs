//! Who is ahead: our best and the best of the peers, size by size.

use super::{Estimate, Launching, Section, Side, Summary, Timing, Workload, geometric_mean, sections};

/// Our best and the best of the peers at one size.
#[derive(Clone, Copy)]
pub struct Standing<'a> {
    /// The size.
    pub size: u64,
    /// Our fastest contender and its times.
    pub ours: Option<(&'a Timing, &'a Summary)>,
    /// The peers' fastest contender and its times.
    pub peer: Option<(&'a Timing, &'a Summary)>,
    /// How many times as long the peer took; only where the results of both were judged in the same run and are right.
    pub ahead: Option<Estimate>,
}

/// Who is faster at one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Winner {
    /// We are, beyond the noise where it is known.
    Ours,
    /// A peer is.
    Peer,
    /// The noise does not let anybody say.
    Level,
}

impl<'a> Standing<'a> {
    /// How a section stands at a size.
    pub fn of(section: &Section<'a>, size: u64, launching: Launching) -> Standing<'a> {
        let [ours, peer] = [Side::Ours, Side::Peer].map(|side| section.best(size, side, launching));
        let judged = |(timing, _): &(&Timing, _)| timing.is_judged();
        let both = ours.filter(judged).zip(peer.filter(judged));
        let ahead = both.map(|((_, own), (_, theirs))| {
            own.speed_up_over(theirs).unwrap_or(Estimate { value: theirs.median / own.median, interval: None })
        });
        // Times of 0, as the emulator has them, have no ratio.
        Standing { size, ours, peer, ahead: ahead.filter(|ahead| ahead.value.is_finite() && ahead.value > 0.0) }
    }

    /// Who is faster; nobody where there is nothing to compare.
    pub fn winner(&self) -> Option<Winner> {
        let Estimate { value, interval } = self.ahead?;
        let (low, high) = interval.unwrap_or((value, value));
        Some(match () {
            () if low > 1.0 => Winner::Ours,
            () if high < 1.0 => Winner::Peer,
            () => Winner::Level,
        })
    }
}

/// What several sizes come to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Geometric mean of how far ours is ahead.
    pub mean: f64,
    /// The least, and the size where it is.
    pub least: (f64, u64),
    /// At how many sizes a peer is faster.
    pub behind: usize,
    /// Sizes that could be compared.
    pub sizes: usize,
}

impl Score {
    /// The score of some sizes; `None` where none could be compared.
    pub fn of(standings: &[Standing<'_>]) -> Option<Score> {
        let ratios: Vec<f64> = standings.iter().filter_map(|standing| Some(standing.ahead?.value)).collect();
        let with_size = standings.iter().filter_map(|standing| Some((standing.ahead?.value, standing.size)));
        Some(Score {
            mean: geometric_mean(&ratios)?,
            least: with_size.min_by(|a, b| a.0.total_cmp(&b.0))?,
            behind: standings.iter().filter(|standing| standing.winner() == Some(Winner::Peer)).count(),
            sizes: ratios.len(),
        })
    }
}

/// Sections that one verdict is about: they differ in ranks and extents only.
pub struct Contest<'a> {
    /// `all_reduce bf16 sum`.
    pub family: String,
    /// The sections, by extents and ranks.
    pub sections: Vec<Section<'a>>,
}

/// The contests of a record's timings, in the order of sections.
pub fn contests(timings: &[Timing]) -> Vec<Contest<'_>> {
    let mut contests: Vec<Contest<'_>> = Vec::new();
    for section in sections(timings) {
        let family = section.workload.family();
        match contests.iter_mut().find(|contest| contest.family == family) {
            Some(contest) => contest.sections.push(section),
            None => contests.push(Contest { family, sections: vec![section] }),
        }
    }
    contests
}

impl<'a> Contest<'a> {
    /// Numbers of ranks, ascending.
    pub fn worlds(&self) -> Vec<u32> {
        let mut worlds: Vec<u32> = self.sections.iter().map(|section| section.workload.world()).collect();
        worlds.sort_unstable();
        worlds.dedup();
        worlds
    }

    /// The sections of `world` ranks, each with how it stands at every size.
    pub fn of_world(&self, world: u32) -> Vec<(&Section<'a>, Vec<Standing<'a>>)> {
        let of = self.sections.iter().filter(|section| section.workload.world() == world);
        of.map(|section| (section, section.standings())).collect()
    }

    /// The score among `world` ranks.
    pub fn score(&self, world: u32) -> Option<Score> {
        let all: Vec<Standing<'a>> = self.of_world(world).into_iter().flat_map(|(_, standings)| standings).collect();
        Score::of(&all)
    }

    /// Whether it is of more than one shape of operands.
    pub fn has_extents(&self) -> bool {
        self.sections.windows(2).any(|pair| pair[0].workload.extents() != pair[1].workload.extents())
    }
}

impl<'a> Section<'a> {
    /// How calls are launched that the verdict is about: in a graph, except for pipelines. Their hosts wait for verdicts, so they are in no graph.
    pub fn launching(&self) -> Launching {
        match self.workload {
            Workload::Pipeline(_) => Launching::Eager,
            _ => Launching::Graph,
        }
    }

    /// How it stands at every size.
    pub fn standings(&self) -> Vec<Standing<'a>> {
        self.sizes().map(|size| Standing::of(self, size, self.launching())).collect()
    }
}
