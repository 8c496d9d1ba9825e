//! Why nothing goes on: for each warp and stream that is left where it stands, what it waits for, what it found, and who wrote that.
//!
//! Ranks that wait for one another are shown as a cycle. A rank waits for the ranks that wrote its word last, for those whose plan has them write it, and for
//! those that have not come to its library call. Nothing else is guessed: whose flag a kernel's word is, only the kernel knows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use passmuster_plan::words::counted;

use super::{
    actions::{Among, Command, Wait},
    execution::{Look, Program, WarpPosition, WarpState, number},
    memory::{Address, Memory},
    ptx::{SourceLine, Type},
    races::{Races, Writer},
    streams::{Head, Meeting, Rank, Running},
};

/// What is left of a run that does not go on.
pub(super) struct Scene<'a> {
    pub(super) ranks: &'a [Rank],
    pub(super) memory: &'a Memory,
    /// Knows who wrote what, if races are looked for.
    pub(super) races: Option<&'a Races>,
    /// The ranks that have not come to a library call.
    pub(super) absent: &'a dyn Fn(Meeting) -> Vec<usize>,
}

/// What the lanes of each stream's kernel look at, by rank and stream.
type Looks = BTreeMap<(usize, usize), Vec<Look>>;

/// Lanes that wait for a word.
struct Blocked {
    /// Block, warp, lanes, and the word that they look at.
    who: String,
    /// The operation that looks, with its source line.
    place: String,
    /// What was found, what is wanted, who wrote it.
    why: String,
    /// What stands alike but for its block.
    alike: (usize, usize, u32, u32),
    block: u32,
    /// Other threads of the block, which wait for this one, by where that is.
    behind: BTreeMap<String, u32>,
    /// Blocks that stand alike.
    more: usize,
}

/// What is known of the ranks that others wait for.
#[derive(Default)]
struct Waits {
    /// The ranks that each rank waits for.
    edges: BTreeMap<usize, BTreeSet<usize>>,
    /// Where each rank waits, in short.
    places: BTreeMap<usize, String>,
}

impl Scene<'_> {
    /// Where warps and streams stand, in lines. First, the cycle in which ranks wait, if there is one; of kernels, those lanes that look at words come first,
    /// which the others wait for, and of each rank's some first.
    pub(super) fn standing(&self) -> Vec<String> {
        let running =
            self.heads().filter_map(|(rank, stream, head)| if let Head::Running(of) = head { Some((rank, stream, of)) } else { None });
        let looks: Looks = running.map(|(rank, stream, of)| ((rank, stream), of.grid.looks(self.memory))).collect();
        let waits = self.waits(&looks);
        let (mut standing, mut in_kernels) = (Vec::new(), Vec::new());
        standing.extend(waits.cycle());
        for (rank, stream, head) in self.heads() {
            match head {
                Head::Running(running) => self.in_kernel((rank, stream), (running, &looks[&(rank, stream)]), &waits, &mut in_kernels),
                Head::Meeting(meeting) => {
                    let Meeting { among: Among { group, index: of_nodes }, number } = meeting;
                    let across = if of_nodes.is_some() { " across nodes" } else { "" };
                    let absent = (self.absent)(*meeting);
                    standing.push(format!(
                        "rank {rank} stream {stream} in library call {number}{across} of group {group} waits for ranks {absent:?}"
                    ));
                }
                // The plan says who writes it.
                Head::Word(..) => standing.extend(self.word((rank, stream)).map(|(wait, word)| {
                    let (place, value, writers) = (self.memory.describe(wait.at), wait.value, &wait.writers);
                    format!("rank {rank} stream {stream} waits until {place} is {value}: it is {word}, and ranks {writers:?} write {value}")
                })),
                Head::Join(side) => standing.push(format!("rank {rank} stream {stream} waits for its side stream {side}")),
                Head::Waiting | Head::Returning(..) => {}
            }
        }
        in_kernels.sort_by_key(|(key, _)| *key);
        standing.extend(in_kernels.into_iter().map(|(_, text)| text));
        standing
    }

    fn heads(&self) -> impl Iterator<Item = (usize, usize, &Head)> {
        self.ranks
            .iter()
            .enumerate()
            .flat_map(|(rank, of_rank)| of_rank.streams.iter().enumerate().map(move |(stream, of_stream)| (rank, stream, &of_stream.head)))
    }

    /// A stream's wait for a word, and what the word is.
    fn word(&self, (rank, stream): (usize, usize)) -> Option<(Wait, u32)> {
        let (commands, index, _) = self.ranks[rank].streams[stream].first();
        let Command::WaitValue(Wait { at, value, writers }) = &commands[index] else { return None };
        let word = self.memory.load(*at, rank).map_or(0, u32::from_le_bytes);
        Some((Wait { at: *at, value: *value, writers: writers.clone() }, word))
    }

    /// Who waits for whom.
    fn waits(&self, looks: &Looks) -> Waits {
        let mut waits = Waits::default();
        for (rank, stream, head) in self.heads() {
            let (for_ranks, place): (Vec<usize>, String) = match head {
                Head::Running(running) => {
                    let looks = &looks[&(rank, stream)];
                    let Some(first) = looks.first() else { continue };
                    let writers = looks.iter().filter_map(|look| self.writers((rank, Address(look.address), bytes(look))));
                    let ranks = writers.flatten().map(|writer| writer.rank).collect();
                    (ranks, short(&running.program, first.source).unwrap_or_else(|| format!("PTX {} of `{}`", first.at, running.entry)))
                }
                Head::Meeting(meeting) => ((self.absent)(*meeting), "a library call".into()),
                Head::Word(..) => (self.word((rank, stream)).map_or_else(Vec::new, |(wait, _)| wait.writers), "a wait for a word".into()),
                Head::Join(_) | Head::Waiting | Head::Returning(..) => continue,
            };
            waits.edges.entry(rank).or_default().extend(for_ranks.into_iter().filter(|&other| other != rank));
            waits.places.entry(rank).or_insert(place);
        }
        waits
    }

    /// Where the lanes of a kernel stand, each line with what it is sorted by.
    fn in_kernel(
        &self,
        (rank, stream): (usize, usize),
        (running, looks): (&Running, &[Look]),
        waits: &Waits,
        into: &mut Vec<((bool, usize), String)>,
    ) {
        let whose = format!("rank {rank} stream {stream} `{}`", running.entry);
        let mut blocked: Vec<Blocked> = Vec::new();
        for look in looks {
            let new = self.blocked(rank, running, look, waits);
            match blocked.iter_mut().find(|known| known.alike == new.alike && known.place == new.place && known.why == new.why) {
                Some(known) => known.more += 1,
                None => blocked.push(new),
            }
        }
        let mut others = Vec::new();
        for at in running.grid.standing() {
            let looks_there = |look: &&Look| (look.block, look.warp) == (at.block, at.warp) && look.lanes & at.lanes != 0;
            if looks.iter().any(|look| looks_there(&look)) {
                continue;
            }
            let mut in_block = looks.iter().filter(|look| look.block == at.block);
            let line = || short(&running.program, at.source).unwrap_or_else(|| format!("PTX {}", at.at));
            let does = match at.what {
                WarpState::Barrier { id } if id != WarpState::CLUSTER && in_block.next().is_some() => {
                    Some(format!("for it at barrier {id} ({})", line()))
                }
                _ if in_block.any(|look| look.leads_around(at.at)) => Some("for it in the same loop".into()),
                _ => None,
            };
            if let Some(does) = does {
                // Those of blocks that are folded away are folded away with them.
                if let Some(first) = blocked.iter_mut().find(|known| known.block == at.block) {
                    *first.behind.entry(does).or_default() += at.lanes.count_ones();
                }
                continue;
            }
            others.push(format!("{whose} {}", self.place(&running.program, &at)));
        }
        into.extend(blocked.iter().enumerate().map(|(index, blocked)| ((false, index), format!("{whose} {blocked}"))));
        into.extend(others.into_iter().map(|text| ((true, 0), text)));
    }

    fn blocked(&self, rank: usize, running: &Running, look: &Look, waits: &Waits) -> Blocked {
        let Look { block, warp, lanes, address, found, wanted, at, source, .. } = look;
        let ty = look.read_as();
        let mut why = Vec::new();
        let shown: Vec<usize> = match wanted {
            Some(wanted) if found.len() > 1 => wanted.parts(),
            _ => (0..found.len()).collect(),
        };
        let found: Vec<String> = shown.iter().filter_map(|&part| found.get(part)).map(|&bits| number(bits, ty)).collect();
        if !found.is_empty() {
            why.push(format!("found {} ({ty})", found.join(" and ")));
        }
        why.extend(wanted.as_ref().map(|wanted| format!("wants {wanted}")));
        let wrote = self.wrote((rank, Address(*address), bytes(look)), waits);
        let why = [(!why.is_empty()).then(|| why.join(", ")), wrote].into_iter().flatten().collect::<Vec<_>>().join("; ");
        Blocked {
            who: format!("block {block} warp {warp} lanes {lanes:#010x} polls {}", self.memory.describe(Address(*address))),
            place: format!("PTX {at}{}", short(&running.program, *source).map_or_else(String::new, |line| format!(" ({line})"))),
            why,
            alike: (rank, *warp as usize, *lanes, ty.bits()),
            block: *block,
            behind: BTreeMap::new(),
            more: 0,
        }
    }

    fn writers(&self, (rank, at, bytes): (usize, Address, u64)) -> Option<Vec<Writer>> {
        let place = self.memory.resolve(at, bytes, rank).ok()?;
        self.races?.writers(place, bytes)
    }

    /// Who wrote bytes that a rank looks at, and what these do now, if that is known.
    fn wrote(&self, place: (usize, Address, u64), waits: &Waits) -> Option<String> {
        let writers = self.writers(place)?;
        let whom = |writer: &Writer| {
            let Writer { rank, operation: (stream, index), at } = writer;
            let stream = if *stream > 0 { format!("stream {stream} ") } else { String::new() };
            format!("rank {rank} ({stream}operation {index}, {at})")
        };
        let told = match &writers[..] {
            [] => return Some("nobody has written it".into()),
            [one] => format!("{} wrote it last", whom(one)),
            several => format!("{} wrote it", several.iter().map(whom).collect::<Vec<_>>().join(", ")),
        };
        let ranks: BTreeSet<usize> = writers.iter().map(|writer| writer.rank).filter(|&rank| rank != place.0).collect();
        let now = ranks.into_iter().map(|rank| match waits.places.get(&rank) {
            Some(at) => format!("; rank {rank} waits at {at}"),
            None if self.ranks[rank].is_done() => format!("; rank {rank} is done"),
            None => String::new(),
        });
        Some(told + &now.collect::<String>())
    }

    /// Where lanes of a warp stand that look at nothing.
    fn place(&self, program: &Program, standing: &WarpPosition) -> String {
        let WarpPosition { block, warp, lanes, what, at, source } = standing;
        let source = short(program, *source).map_or_else(String::new, |line| format!(" ({line})"));
        let what = match what {
            WarpState::Barrier { id: WarpState::CLUSTER } => "waits at the barrier of its cluster".into(),
            WarpState::Barrier { id } => format!("waits at barrier {id}"),
            WarpState::Lanes => "waits for other lanes".into(),
            WarpState::Polling { address } => format!("polls {}", self.memory.describe(Address(*address))),
            WarpState::Running => "runs".into(),
        };
        format!("block {block} warp {warp} lanes {lanes:#010x} {what} at PTX {at}{source}")
    }
}

impl std::fmt::Display for Blocked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Blocked { who, place, why, behind, more, .. } = self;
        write!(f, "{who} at {place}")?;
        if !why.is_empty() {
            write!(f, ": {why}")?;
        }
        for (does, &threads) in behind {
            let waits = if threads == 1 { "waits" } else { "wait" };
            write!(f, "; {} of the block {waits} {does}", counted(threads as usize, "thread"))?;
        }
        if *more > 0 {
            write!(f, "; {} like it", counted(*more, "more block"))?;
        }
        Ok(())
    }
}

impl Waits {
    /// The shortest way from a rank over those that it waits for back to it, as in `rank 0 -> rank 1 -> rank 0: each waits for the next`.
    fn cycle(&self) -> Option<String> {
        let shortest = self.edges.keys().filter_map(|&rank| self.way_back(rank)).min_by_key(Vec::len)?;
        let ranks: Vec<String> = shortest.iter().map(|rank| format!("rank {rank}")).collect();
        Some(format!("{}: each waits for the next", ranks.join(" -> ")))
    }

    fn way_back(&self, from: usize) -> Option<Vec<usize>> {
        let (mut seen, mut ways) = (BTreeSet::new(), VecDeque::from([vec![from]]));
        while let Some(way) = ways.pop_front() {
            for &to in way.last().and_then(|last| self.edges.get(last)).into_iter().flatten() {
                let further = [&way[..], &[to]].concat();
                if to == from {
                    return Some(further);
                }
                if seen.insert(to) {
                    ways.push_back(further);
                }
            }
        }
        None
    }
}

/// Bytes of the word that lanes look at.
fn bytes(look: &Look) -> u64 {
    let bytes = |ty: Type| u64::from(ty.bytes());
    bytes(look.ty) * look.found.len().max(1) as u64
}

/// A line of the source.
fn short(program: &Program, source: Option<SourceLine>) -> Option<String> {
    source.map(|source| program.module().line(source))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, ranks that wait in a circle are not shown as one, or those that wait for a rank outside it are.
    #[test]
    fn shortest_cycle_is_drawn() {
        let cycle = |edges: &[(usize, usize)]| {
            let mut waits = Waits::default();
            edges.iter().for_each(|&(from, to)| _ = waits.edges.entry(from).or_default().insert(to));
            waits.cycle()
        };
        assert_eq!(cycle(&[(0, 1), (1, 2), (3, 1)]), None);
        assert_eq!(cycle(&[(0, 1), (1, 0)]).as_deref(), Some("rank 0 -> rank 1 -> rank 0: each waits for the next"));
        assert_eq!(
            cycle(&[(0, 1), (1, 2), (2, 3), (3, 1), (3, 0)]).as_deref(),
            Some("rank 1 -> rank 2 -> rank 3 -> rank 1: each waits for the next")
        );
    }
}
