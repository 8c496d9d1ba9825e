//! The race check against a slow one that is obviously right, on random programs of two ranks.
//!
//! The slow one keeps every access and, for each thread and view, a vector clock with an element for every thread there ever was. It shares nothing,
//! puts nothing off and forgets nothing. Both see the same events, and must agree on each up to the first finding: whether there is one, of
//! which class, what waives it, and whether it is a scope that is missing. (After a race the fast one drops what the later access covers.) Accesses
//! that would race are mostly left out, so that programs go on.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    actors::{lanes_of, threads_of},
    finding::{Assumption, Class, Missing},
    release::Level,
    shadow::{Mode, Via},
    *,
};
use crate::{
    choice::Choice,
    memory::{Init, Memory, Owner},
};
use passmuster_ptx::{self as ptx, Access, Fence, ProxyKind, Scope, Semantics, Space};

/// Those of which nothing depends on when the fast check puts together what it has put off. What relaxed writes would hand on had they released does.
const VIEWS: [View; 6] = [View::Strict, View::Boundary, View::Retired, View::AnyScope, View::EveryAcquire, View::Alias];
const STRICT: usize = 0;
const BOUNDARY: usize = 1;
const RETIRED: usize = 2;
const ANY_SCOPE: usize = 3;
const ALIAS: usize = 5;

/// Threads of a block: a whole warp, and part of one.
const THREADS: usize = 34;
const BLOCKS: usize = 2;
const RANKS: usize = 2;

/// Up to which time each thread is known, by its number among all.
type Times = Vec<u32>;
type Clocks = [Times; VIEWS.len()];

fn add(times: &mut Times, other: &Times) {
    times.resize(times.len().max(other.len()), 0);
    times.iter_mut().zip(other).for_each(|(own, other)| *own = (*own).max(*other));
}

fn add_all(clocks: &mut Clocks, other: &Clocks) {
    clocks.iter_mut().zip(other).for_each(|(own, other)| add(own, other));
}

#[derive(Clone)]
struct Thread {
    rank: usize,
    actor: usize,
    /// Launch, and cluster of it.
    cluster: (usize, usize),
    time: u32,
    known: Clocks,
    start: Clocks,
    /// In the view of what has retired, at the last barrier.
    at_barrier: Times,
    fences: Vec<(Level, Clocks)>,
    pending: [Clocks; Level::COUNT],
}

/// A sector that a block has read weakly, when it had emptied its cache so often, and the words in it that another one has written since.
struct Kept {
    actor: usize,
    since: u32,
    sector: u64,
    stale: Vec<u64>,
}

/// Bytes of a sector.
const SECTOR: u64 = 32;

struct Done {
    thread: usize,
    time: u32,
    from: u64,
    to: u64,
    mode: Mode,
}

#[derive(Clone)]
struct Handed {
    first: usize,
    scope: Level,
    broken: bool,
    released: Option<Clocks>,
    assumed: Option<[Times; 2]>,
}

#[derive(Clone)]
struct Element {
    last: (usize, Level),
    handed: Vec<Handed>,
}

type Verdict = (Class, bool, Option<Assumption>);

struct Slow {
    profile: Profile,
    threads: Vec<Thread>,
    done: Vec<Done>,
    /// By offset and bytes.
    elements: BTreeMap<(u64, u64), Element>,
    sequential: BTreeMap<(Level, usize, usize), Clocks>,
    arrived: BTreeMap<usize, Clocks>,
    kept: Vec<Kept>,
    /// How often blocks have emptied their caches.
    emptied: BTreeMap<usize, u32>,
}

impl Slow {
    fn apart(&self, a: usize, b: usize) -> Level {
        let (a, b) = (&self.threads[a], &self.threads[b]);
        match () {
            () if a.actor == b.actor => Level::Block,
            () if a.cluster == b.cluster => Level::Cluster,
            () if a.rank == b.rank => Level::Rank,
            () => Level::System,
        }
    }

    fn published(&self, thread: usize) -> Clocks {
        let mut clocks = self.threads[thread].known.clone();
        for (view, times) in clocks.iter_mut().enumerate().filter(|(view, _)| *view != ALIAS) {
            debug_assert!(view < VIEWS.len());
            times.resize(times.len().max(thread + 1), 0);
            times[thread] = times[thread].max(self.threads[thread].time);
        }
        clocks
    }

    fn knows(&self, of: &Thread, view: usize, done: &Done) -> bool {
        of.known[view].get(done.thread).is_some_and(|&time| time >= done.time)
    }

    /// Whether a strong read has since seen what a strong write wrote where an access is. Then what the read saw may order the two, which the slow
    /// check does not judge: `tests` has cases of that.
    fn was_seen(&self, write: usize, from: u64, to: u64) -> bool {
        let seen = |read: &Done| read.mode.strong.is_some() && !read.mode.writes && read.from < to && from < read.to;
        self.done[write].mode.writes && self.done[write].mode.strong.is_some() && self.done[write + 1..].iter().any(seen)
    }

    /// What is wrong with an access of a thread, pair by pair; `None` where that is not for this check to say.
    fn judge(&self, thread: usize, from: u64, to: u64, mode: Mode) -> Option<Vec<Verdict>> {
        let of = &self.threads[thread];
        let since = self.emptied.get(&of.actor).copied().unwrap_or(0);
        let is_stale = |kept: &Kept| {
            (kept.actor, kept.since) == (of.actor, since) && kept.stale.iter().any(|word| (from / 4..=(to - 1) / 4).contains(word))
        };
        let is_cached = !mode.writes && mode.strong.is_none() && mode.via == Via::Own;
        let stale = is_cached && self.kept.iter().any(is_stale);
        let conflicting = |(_, done): &(usize, &Done)| done.from < to && from < done.to && (mode.writes || done.mode.writes);
        let mut all = Vec::new();
        for (number, done) in self.done.iter().enumerate().filter(conflicting) {
            let same = done.thread == thread;
            let ordered = same || self.knows(of, STRICT, done);
            let waived = |assumption| (self.profile == Profile::Hopper).then_some(assumption);
            if mode.non_coherent && !same && of.start[STRICT].get(done.thread).is_none_or(|&time| time < done.time) {
                all.push((Class::NonCoherent, false, None));
                continue;
            }
            let both = done.mode.strong.zip(mode.strong);
            let strong = both.is_some_and(|(first, second)| first.min(second) >= self.apart(done.thread, thread));
            if done.mode.via != mode.via && (strong || ordered) {
                if !strong && !self.knows(of, ALIAS, done) {
                    all.push((Class::Alias, false, waived(Assumption::Alias)));
                }
                continue;
            }
            if ordered {
                continue;
            }
            if self.was_seen(number, from, to) {
                return None;
            }
            let alike = done.mode.element == mode.element;
            let scope = both.is_some() && alike && !strong || self.knows(of, ANY_SCOPE, done);
            if strong && alike {
                let bytes = done.to.min(to) - done.from.max(from);
                if (done.mode.vector || mode.vector) && bytes > mode.element.into() {
                    let waived = waived(Assumption::Vector);
                    all.push((Class::Tearing, scope && waived.is_none(), waived));
                }
                continue;
            }
            let assumption = match () {
                () if stale => None,
                () if self.knows(of, BOUNDARY, done) => waived(Assumption::Boundary),
                () if mode.writes && !done.mode.writes && self.knows(of, RETIRED, done) => waived(Assumption::Retired),
                () => None,
            };
            all.push((if strong { Class::MixedSize } else { Class::Race }, scope, assumption));
        }
        Some(all)
    }

    fn note(&mut self, thread: usize, from: u64, to: u64, mode: Mode) {
        let time = self.threads[thread].time;
        self.done.push(Done { thread, time, from, to, mode });
        let actor = self.threads[thread].actor;
        for sector in from / SECTOR..=(to - 1) / SECTOR {
            if mode.writes {
                let others = self.kept.iter_mut().filter(|kept| kept.actor != actor && kept.sector == sector);
                let words = (from / 4..=(to - 1) / 4).filter(|word| word * 4 / SECTOR == sector);
                others.for_each(|kept| kept.stale.extend(words.clone()));
            } else if mode.strong.is_none() && mode.via == Via::Own {
                let since = self.emptied.get(&actor).copied().unwrap_or(0);
                let known = |kept: &Kept| (kept.actor, kept.since, kept.sector) == (actor, since, sector);
                if !self.kept.iter().any(known) {
                    self.kept.push(Kept { actor, since, sector, stale: Vec::new() });
                }
            }
        }
        if mode.writes && mode.strong.is_none() {
            self.elements.retain(|(at, bytes), _| at + bytes <= from || to <= *at);
        }
    }

    fn read(&mut self, thread: usize, at: u64, bytes: u64, scope: Level, acquires: bool) {
        if acquires && scope > Level::Block {
            *self.emptied.entry(self.threads[thread].actor).or_default() += 1;
        }
        let Some(element) = self.elements.get(&(at, bytes)).cloned() else { return };
        let linked = self.apart(element.last.0, thread) <= element.last.1.min(scope);
        for handed in element.handed {
            let apart = self.apart(handed.first, thread);
            for (number, view) in VIEWS.into_iter().enumerate() {
                let any = view.ignores_scopes();
                let Some(released) = &handed.released else { continue };
                if !any && (!linked || handed.broken || handed.scope < apart) {
                    continue;
                }
                let of = &mut self.threads[thread];
                if !(acquires || view.acquires_always()) {
                    add(&mut of.pending[if any { Level::Block } else { apart } as usize][number], &released[number]);
                } else if any || scope >= apart {
                    add(&mut of.known[number], &released[number]);
                }
            }
            if let (Level::System, Some([boundary, retired])) = (scope, &handed.assumed) {
                add(&mut self.threads[thread].known[BOUNDARY], boundary);
                add(&mut self.threads[thread].known[RETIRED], retired);
            }
        }
    }

    fn write(&mut self, thread: usize, at: u64, bytes: u64, scope: Level, (releases, atomic): (bool, bool)) {
        let fresh = Element { last: (thread, scope), handed: Vec::new() };
        let mut element = self.elements.get(&(at, bytes)).cloned().unwrap_or(fresh);
        self.elements.retain(|(other, size), _| other + size <= at || at + bytes <= *other);
        if !atomic {
            element.handed.retain(|handed| handed.first == thread);
        } else if self.apart(element.last.0, thread) > element.last.1.min(scope) {
            element.handed.iter_mut().for_each(|handed| handed.broken = true);
        }
        element.last = (thread, scope);
        let of = &self.threads[thread];
        let assumed = (scope == Level::System).then(|| [of.start[BOUNDARY].clone(), of.at_barrier.clone()]);
        let own = Handed { first: thread, scope, broken: false, released: releases.then(|| self.published(thread)), assumed };
        let of_fence = |(scope, clocks): &(Level, Clocks)| Handed {
            first: thread,
            scope: *scope,
            broken: false,
            released: Some(clocks.clone()),
            assumed: None,
        };
        for new in std::iter::once(own).chain(of.fences.iter().map(of_fence)) {
            let actor = |of: usize| self.threads[of].actor;
            let same = |known: &&mut Handed| (actor(known.first), known.scope, known.broken) == (actor(thread), new.scope, false);
            let Some(known) = element.handed.iter_mut().find(same) else {
                element.handed.push(new);
                continue;
            };
            known.first = thread;
            match (&mut known.released, new.released) {
                (Some(own), Some(other)) => add_all(own, &other),
                (own, other) => *own = own.take().or(other),
            }
            match (&mut known.assumed, new.assumed) {
                (Some(own), Some(other)) => own.iter_mut().zip(&other).for_each(|(own, other)| add(own, other)),
                (own, other) => *own = own.take().or(other),
            }
        }
        self.elements.insert((at, bytes), element);
    }

    fn fence(&mut self, thread: usize, fence: Fence) {
        let Fence::Memory(semantics, scope) = fence else {
            let published = self.published(thread);
            return add(&mut self.threads[thread].known[ALIAS], &published[STRICT]);
        };
        let scope = Level::of(scope);
        let Thread { rank, actor, cluster, .. } = self.threads[thread];
        let key = |level| match level {
            Level::Block => (level, actor, 0),
            Level::Cluster => (level, cluster.0, cluster.1),
            Level::Rank => (level, rank, 0),
            Level::System => (level, 0, 0),
        };
        if semantics != Semantics::Release && scope > Level::Block {
            *self.emptied.entry(actor).or_default() += 1;
        }
        let reached = || Level::ALL.into_iter().filter(move |&level| level <= scope);
        let sequential = semantics == Semantics::SequentiallyConsistent;
        for level in reached() {
            let of = &mut self.threads[thread];
            if semantics != Semantics::Release {
                add_all(&mut of.known, &std::mem::take(&mut of.pending[level as usize]));
            }
            if let Some(all) = self.sequential.get(&key(level)).filter(|_| sequential) {
                add_all(&mut of.known, all);
            }
        }
        if semantics == Semantics::Acquire {
            return;
        }
        let published = self.published(thread);
        for level in reached().filter(|_| sequential) {
            add_all(self.sequential.entry(key(level)).or_default(), &published);
        }
        let fences = &mut self.threads[thread].fences;
        fences.retain(|(earlier, _)| *earlier > scope);
        fences.push((scope, published));
    }

    /// What threads publish together.
    fn joined(&self, threads: &[usize]) -> Clocks {
        threads.iter().fold(Clocks::default(), |mut all, &thread| {
            add_all(&mut all, &self.published(thread));
            all
        })
    }

    fn meet(&mut self, threads: &[usize], arrived: Option<Clocks>) {
        let mut joined = self.joined(threads);
        arrived.iter().for_each(|arrived| add_all(&mut joined, arrived));
        for &thread in threads {
            let of = &mut self.threads[thread];
            (of.known, of.at_barrier) = (joined.clone(), joined[RETIRED].clone());
        }
    }
}

/// A block that runs, in both checks.
struct Both {
    actor: ActorId,
    /// Number of its first thread.
    first: usize,
    live: [u32; 2],
}

impl Both {
    fn threads(&self, lanes: &Lanes) -> Vec<usize> {
        threads_of(lanes).map(|thread| self.first + thread).collect()
    }

    fn lanes(&self) -> Lanes {
        self.only([true, true])
    }

    fn only(&self, warps: [bool; 2]) -> Lanes {
        let mut lanes = [0; 32];
        (0..2).filter(|&warp| warps[warp]).for_each(|warp| lanes[warp] = self.live[warp]);
        lanes
    }
}

struct Program {
    choice: Choice,
    memory: Memory,
    data: u64,
    fast: Races,
    slow: Slow,
    module: Arc<ptx::Module>,
    /// What each rank's stream knows, and its launch, by the fast check's number and by ours.
    streams: Vec<(Clocks, OperationId, usize)>,
    blocks: Vec<Vec<Both>>,
    launches: usize,
    clustered: bool,
    multicast: bool,
    /// Accesses that were ordered after one of another thread by more than their block's or stream's own order.
    ordered: usize,
}

impl Program {
    fn new(seed: u64, module: &Arc<ptx::Module>) -> Program {
        let mut choice = Choice::of_seed(seed);
        let mut memory = Memory::new();
        let data = memory.allocate(Owner::new(0, 0, "data"), 128, Init::Zero);
        (0..RANKS).for_each(|rank| memory.map(data, rank, true).unwrap());
        let profile = [Profile::Ptx, Profile::Hopper][choice.below(2)];
        let mut fast = Races::new(profile, RANKS, 1, Vec::new()).unwrap();
        let slow = Slow {
            profile,
            threads: Vec::new(),
            done: Vec::new(),
            elements: BTreeMap::new(),
            sequential: BTreeMap::new(),
            arrived: BTreeMap::new(),
            kept: Vec::new(),
            emptied: BTreeMap::new(),
        };
        let streams = (0..RANKS).map(|rank| (Clocks::default(), fast.begin_launch(rank, 0, module, "m", "k"), rank)).collect();
        let (clustered, multicast) = (choice.below(2) == 0, choice.below(4) == 0);
        let blocks = (0..RANKS).map(|_| Vec::new()).collect();
        let (data, module) = (data.0, module.clone());
        let mut program =
            Program { choice, memory, data, fast, slow, module, streams, blocks, launches: RANKS, clustered, multicast, ordered: 0 };
        (0..RANKS).for_each(|rank| program.begin_blocks(rank));
        program
    }

    fn begin_blocks(&mut self, rank: usize) {
        let (start, operation, launch) = self.streams[rank].clone();
        for block in 0..BLOCKS {
            let cluster = if self.clustered { 0 } else { block };
            let actor = self.fast.begin_block(operation, block as u32, cluster as u32, THREADS);
            let first = self.slow.threads.len();
            let thread = Thread {
                rank,
                actor: actor.0 as usize,
                cluster: (launch, cluster),
                time: 1,
                known: start.clone(),
                start: start.clone(),
                at_barrier: start[RETIRED].clone(),
                fences: Vec::new(),
                pending: Default::default(),
            };
            self.slow.threads.extend((0..THREADS).map(|_| thread.clone()));
            self.blocks[rank].push(Both { actor, first, live: [u32::MAX, (1 << (THREADS - 32)) - 1] });
        }
    }

    fn relaunch(&mut self, rank: usize) {
        let mut end = self.streams[rank].0.clone();
        for block in std::mem::take(&mut self.blocks[rank]) {
            self.fast.end_block(block.actor);
            for thread in block.first..block.first + THREADS {
                add_all(&mut end, &self.slow.threads[thread].known);
                self.slow.threads[thread].pending.iter().for_each(|pending| add(&mut end[BOUNDARY], &pending[BOUNDARY]));
                for (view, times) in end.iter_mut().enumerate().filter(|(view, _)| *view != ALIAS) {
                    debug_assert!(view < VIEWS.len());
                    times.resize(times.len().max(thread + 1), 0);
                    times[thread] = u32::MAX;
                }
            }
        }
        let strict = end[STRICT].clone();
        add(&mut end[ALIAS], &strict);
        self.fast.end_launch(self.streams[rank].1);
        let operation = self.fast.begin_launch(rank, 0, &self.module, "m", "k");
        self.streams[rank] = (end, operation, self.launches);
        self.launches += 1;
        self.begin_blocks(rank);
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.choice.below(all.len())]
    }

    /// A rank, a block of it, and a warp with some of its lanes; `None` where all have ended.
    fn some_lanes(&mut self) -> Option<(usize, usize, usize, u32)> {
        let (rank, block, warp) = (self.choice.below(RANKS), self.choice.below(BLOCKS), self.choice.below(2));
        let live = self.blocks[rank][block].live[warp];
        let lanes = live & self.one_of(&[u32::MAX, 0b1, 0b10, 0b11, 0b101, 1 << 31, 1, u32::MAX << 16]);
        (lanes != 0).then_some((rank, block, warp, lanes))
    }

    /// Something that happens; what both say of it.
    fn step(&mut self) -> [Vec<Verdict>; 2] {
        let Some((rank, block, warp, lanes)) = self.some_lanes() else { return Default::default() };
        let Both { actor, first, .. } = self.blocks[rank][block];
        let at = At { actor, warp, function: 0, pc: 0 };
        let of_warp = |lanes: u32| lanes_of(lanes).map(|lane| first + warp * 32 + lane).collect::<Vec<_>>();
        let scope = self.one_of(&[Scope::Cta, Scope::Cluster, Scope::Gpu, Scope::Gpu, Scope::Sys, Scope::Sys, Scope::Sys]);
        let mut actors = vec![actor.0 as usize];
        let verdicts = match self.choice.below(24) {
            0 => {
                use Semantics as S;
                let semantics = self.one_of(&[S::Acquire, S::Release, S::AcquireRelease, S::SequentiallyConsistent]);
                let alias = self.multicast && self.choice.below(2) == 0;
                let fence = if alias { Fence::Proxy(ProxyKind::Alias) } else { Fence::Memory(semantics, scope) };
                self.fast.fence(at, lanes, fence);
                of_warp(lanes).into_iter().for_each(|thread| self.slow.fence(thread, fence));
                Default::default()
            }
            1 | 2 => {
                let (both, all) = (&self.blocks[rank][block], self.choice.below(3) != 0);
                let lanes = if all { both.lanes() } else { both.only([warp == 0, warp == 1]) };
                let everyone = lanes == both.lanes();
                self.fast.barrier(actor, 0, &lanes, everyone);
                let arrived = self.slow.arrived.remove(&(actor.0 as usize));
                self.slow.meet(&both.threads(&lanes), arrived);
                Default::default()
            }
            3 => {
                self.fast.arrive(actor, 0, warp, lanes);
                let joined = self.slow.joined(&of_warp(lanes));
                add_all(self.slow.arrived.entry(actor.0 as usize).or_default(), &joined);
                Default::default()
            }
            4 => {
                self.fast.meet_in_warp(actor, warp, lanes);
                self.slow.meet(&of_warp(lanes), None);
                Default::default()
            }
            5 if self.clustered => {
                let releases = self.choice.below(3) != 0;
                let all: Vec<usize> = self.blocks[rank].iter().flat_map(|both| both.threads(&both.lanes())).collect();
                let members: Vec<ActorId> = self.blocks[rank].iter().map(|both| both.actor).collect();
                actors = members.iter().map(|actor| actor.0 as usize).collect();
                for both in &self.blocks[rank] {
                    (0..2).for_each(|warp| self.fast.arrive_at_cluster(both.actor, warp, both.live[warp], releases));
                }
                self.fast.complete_cluster(&members);
                for both in &self.blocks[rank] {
                    (0..2).for_each(|warp| self.fast.pass_cluster(both.actor, warp, both.live[warp]));
                }
                if releases {
                    let joined = self.slow.joined(&all);
                    all.iter().for_each(|&thread| add_all(&mut self.slow.threads[thread].known, &joined));
                }
                Default::default()
            }
            6 if self.choice.below(4) == 0 => {
                self.blocks[rank][block].live[warp] &= !lanes;
                Default::default()
            }
            7 if self.choice.below(4) == 0 => {
                self.relaunch(rank);
                return Default::default();
            }
            _ => self.access(rank, at, first + warp * 32, lanes, scope),
        };
        // Whatever follows is later.
        let threads = self.slow.threads.iter_mut().filter(|thread| actors.contains(&thread.actor));
        threads.for_each(|thread| thread.time += 1);
        verdicts
    }

    fn access(&mut self, rank: usize, at: At, first: usize, lanes: u32, scope: Scope) -> [Vec<Verdict>; 2] {
        use Semantics as S;
        // Data is mostly accessed weakly, flags strongly.
        let data = self.choice.below(3) == 0;
        let kind = self.choice.below(3);
        let semantics = match kind {
            _ if data && self.choice.below(6) != 0 => S::Weak,
            0 => self.one_of(&[S::Acquire, S::Acquire, S::Relaxed, S::Volatile]),
            1 => self.one_of(&[S::Release, S::Release, S::Relaxed, S::Volatile]),
            _ => self.one_of(&[S::Relaxed, S::Acquire, S::Release, S::AcquireRelease]),
        };
        let semantics =
            if semantics == S::Weak && kind == 0 && !self.multicast && self.choice.below(8) == 0 { S::NonCoherent } else { semantics };
        let kind = if kind == 2 && semantics == S::Weak { 1 } else { kind };
        let strong = match semantics {
            S::Weak | S::NonCoherent => None,
            S::Volatile => Some(Level::System),
            _ => Some(Level::of(scope)),
        };
        let element: u64 = if self.choice.below(12) == 0 { 8 } else { 4 };
        let bytes = if self.choice.below(12) == 0 { 16.max(element) } else { element };
        let start = if data { 0 } else { 96 } + self.choice.below(2) as u64 * 16;
        let one_place = !data || self.choice.below(4) == 0;
        let offset = |lane: usize| if one_place { start } else { (start + lane as u64 * bytes) % 96 / bytes * bytes };
        let wrote = match kind {
            0 => 0,
            1 => lanes,
            _ => lanes & self.one_of(&[u32::MAX, u32::MAX, 0, 0b1]),
        };
        let returns = self.choice.below(4) != 0;
        let multicast = self.multicast && strong.is_none() && self.choice.below(4) == 0;
        let mode = |writes| Mode {
            writes,
            strong,
            via: if multicast { Via::Multicast } else { Via::Own },
            vector: bytes > element,
            non_coherent: semantics == S::NonCoherent,
            element: element as u8,
        };
        // Lanes that only read come first.
        let order: Vec<usize> = lanes_of(lanes & !wrote).chain(lanes_of(wrote)).collect();
        let noted = self.slow.done.len();
        let (elements, mut wrong, mut unclear) = (self.slow.elements.clone(), Vec::new(), false);
        for &lane in &order {
            let (thread, from, mode) = (first + lane, offset(lane), mode(wrote >> lane & 1 == 1));
            match self.slow.judge(thread, from, from + bytes, mode) {
                Some(more) => wrong.extend(more),
                None => unclear = true,
            }
            self.slow.note(thread, from, from + bytes, mode);
        }
        if unclear || !wrong.is_empty() && self.choice.below(8) != 0 {
            self.slow.done.truncate(noted);
            self.slow.elements = elements;
            return Default::default();
        }
        let others =
            |done: &&Done| self.slow.threads[done.thread].actor != at.actor.0 as usize && self.slow.threads[done.thread].rank != rank;
        let across = |done: &Done| order.iter().any(|&lane| offset(lane) < done.to && done.from < offset(lane) + bytes);
        self.ordered += usize::from(strong.is_none() && self.slow.done[..noted].iter().filter(others).any(across));
        if let Some(scope) = strong {
            let parts = |lane: usize| (0..bytes / element).map(move |part| offset(lane) + part * element);
            if kind == 0 || kind == 2 && returns {
                let acquires = matches!(semantics, S::Acquire | S::AcquireRelease);
                lanes_of(lanes).for_each(|lane| parts(lane).for_each(|at| self.slow.read(first + lane, at, element, scope, acquires)));
            }
            let releases = matches!(semantics, S::Release | S::AcquireRelease);
            lanes_of(wrote)
                .for_each(|lane| parts(lane).for_each(|at| self.slow.write(first + lane, at, element, scope, (releases, kind == 2))));
        }
        let effect = match kind {
            0 => Effect::Load,
            1 => Effect::Store { agrees: false },
            _ => Effect::Atomic { wrote, returns },
        };
        let scope = strong.filter(|_| semantics != S::Volatile).map(|_| scope);
        let access = Access { space: Space::Global, semantics, scope, hints: Box::default() };
        let touch = Touch { effect, access: &access, element: element as u32, bytes: bytes as u32, multicast };
        let addresses = std::array::from_fn(|lane| self.data + offset(lane));
        self.fast.access(&self.memory, at, lanes, &touch, &addresses);
        let found = self.fast.findings.found.iter();
        [wrong, found.map(|found| (found.key.class, found.key.missing == Missing::Scope, found.key.assumption)).collect()]
    }
}

/// If this fails, the check says something else than the model does.
#[test]
fn the_check_agrees_with_one_that_keeps_everything() {
    let module = Arc::new(ptx::parse(".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\nret;\n}\n").unwrap());
    let (mut found, mut ordered) = (0, 0);
    for seed in 0..3000 {
        let mut program = Program::new(seed, &module);
        for step in 0..80 {
            let [slow, fast] = program.step();
            assert_eq!(slow.is_empty(), fast.is_empty(), "seed {seed}, step {step}: {slow:?} and {fast:?}");
            assert!(fast.iter().all(|one| slow.contains(one)), "seed {seed}, step {step}: {slow:?} and {fast:?}");
            if !fast.is_empty() {
                found += 1;
                break;
            }
        }
        ordered += program.ordered;
    }
    assert!(found > 1000, "{found} programs race");
    assert!(ordered > 1000, "{ordered} accesses follow another rank's");
}
