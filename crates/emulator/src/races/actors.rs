//! Who acts: operations of streams, the blocks of launches, and what their threads know.

use std::sync::Arc;

use super::{
    clock::{Clock, Place},
    release::{Level, Sight, Who},
    views::Views,
};

/// A block of a launch, or an operation of a stream that is no launch. Numbers are dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ActorId(pub(super) u32);

/// An operation of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationId(pub(super) u32);

/// What an operation of a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A launch of the kernel that this index of the known ones names.
    Launch(u32),
    Copy,
    Fill,
    WriteValue,
    WaitValue,
    LibraryCall,
}

#[derive(Debug)]
pub(super) struct Operation {
    pub(super) rank: usize,
    pub(super) stream: usize,
    pub(super) place: Place,
    pub(super) kind: Kind,
    /// What is known where it starts.
    pub(super) start: Arc<Views>,
    /// What blocks of it knew where they ended.
    pub(super) end: Arc<Views>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Actor {
    pub(super) operation: u32,
    /// Index in the grid; 0 for what is no launch.
    pub(super) block: u32,
    /// Number of its cluster among those of the operation.
    pub(super) cluster: u32,
    pub(super) rank: u16,
    pub(super) place: Place,
}

impl Actor {
    /// The actor of this number as a thread.
    pub(super) fn who(&self, actor: u32, thread: u16) -> Who {
        Who { rank: self.rank, actor, cluster: (self.operation, self.cluster), thread }
    }
}

/// Lanes of each of a block's warps.
pub type Lanes = [u32; 32];

/// A block that runs.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) actor: u32,
    pub(super) place: Place,
    /// Goes on where a thread publishes what it knows, and where barriers complete.
    pub(super) time: u32,
    /// What all threads know but for those that have views of their own: what was known at the last barrier of all.
    pub(super) views: Arc<Views>,
    /// How many threads it has.
    pub(super) count: u16,
    /// Threads that have something of their own.
    pub(super) threads: Vec<Option<Box<Thread>>>,
    /// Lanes that have views of their own.
    pub(super) own: Lanes,
    /// What was published by arrivals at each barrier that is not complete.
    pub(super) arrived: [Option<Arc<Views>>; 16],
    /// The same for the cluster's barrier, before and after its completion.
    pub(super) cluster: [Option<Arc<Views>>; 2],
}

/// What a thread has that its block has not.
#[derive(Debug, Default)]
pub(super) struct Thread {
    /// What it knows, where that is not what the block knows.
    pub(super) views: Option<Arc<Views>>,
    /// What it knew at a barrier of some threads, since the last one of all.
    pub(super) barrier: Option<Arc<Views>>,
    /// What it knew at fences, which its strong writes publish, with the fences' scopes.
    pub(super) fences: Vec<(Level, Arc<Views>)>,
    /// What strong reads saw that did not acquire, by the scope that a fence needs to acquire it.
    pub(super) pending: [Option<Arc<Views>>; Level::COUNT],
    /// What its strong reads saw since it was last asked what it knows. Most threads that poll are never asked: adding to clocks can wait.
    pub(super) sights: Vec<Sight>,
    pub(super) seen: Seen,
}

/// Sights that a thread may put off.
const MOST_SIGHTS: usize = 96;

/// A strong read of a state of a location.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Look {
    pub(super) state: u64,
    pub(super) scope: Level,
    pub(super) acquired: bool,
}

/// A thread's last looks, as many as it may poll in turn.
#[derive(Debug, Default)]
pub(super) struct Seen {
    looks: [Look; 8],
    oldest: u8,
}

impl Seen {
    /// Whether one like this, or one that brought more, is not among them. If so it is now.
    pub(super) fn note(&mut self, look: Look) -> bool {
        let includes = |known: &Look| known.state == look.state && known.scope >= look.scope && known.acquired >= look.acquired;
        if self.looks.iter().any(includes) {
            return false;
        }
        self.looks[self.oldest as usize] = look;
        self.oldest = (self.oldest + 1) % self.looks.len() as u8;
        true
    }
}

impl Block {
    pub(super) fn new(actor: u32, place: Place, threads: usize, views: Arc<Views>) -> Block {
        let none = || std::array::from_fn(|_| None);
        let mut of_threads = Vec::new();
        of_threads.resize_with(threads.next_multiple_of(32), || None);
        Block {
            actor,
            place,
            time: 1,
            views,
            count: threads as u16,
            threads: of_threads,
            own: [0; 32],
            arrived: none(),
            cluster: [None, None],
        }
    }

    /// What a thread knows, but for its sights.
    #[inline(always)]
    pub(super) fn known(&self, thread: usize) -> &Arc<Views> {
        match &self.threads[thread] {
            Some(of_thread) => of_thread.views.as_ref().unwrap_or(&self.views),
            None => &self.views,
        }
    }

    pub(super) fn thread(&mut self, thread: usize) -> &mut Thread {
        self.threads[thread].get_or_insert_default()
    }

    /// Sets what a thread knows by itself.
    pub(super) fn set_known(&mut self, thread: usize, views: Arc<Views>) {
        self.own[thread / 32] |= 1 << (thread % 32);
        self.thread(thread).views = Some(views);
    }

    /// Adds what a thread has seen to what it knows and to what fences let it know.
    pub(super) fn settle(&mut self, thread: usize) {
        let Some(of_thread) = self.threads[thread].as_deref_mut().filter(|of_thread| !of_thread.sights.is_empty()) else { return };
        let mut sights = std::mem::take(&mut of_thread.sights);
        for level in Level::ALL {
            let pending = &mut of_thread.pending[level as usize];
            let mut views: Option<Views> = None;
            for sight in sights.iter().filter(|sight| sight.may_need(level)) {
                sight.teach(Some(level), views.get_or_insert_with(|| pending.as_deref().cloned().unwrap_or_default()));
            }
            *pending = views.map(Arc::new).or_else(|| pending.take());
        }
        let known = self.known(thread).clone();
        let mut views = Views::clone(&known);
        sights.iter().for_each(|sight| sight.teach(None, &mut views));
        if !views.are(&known) {
            self.set_known(thread, Arc::new(views));
        }
        sights.clear();
        self.thread(thread).sights = sights;
    }

    /// A thread's strong read saw something.
    pub(super) fn see(&mut self, thread: usize, sight: Sight) {
        let sights = &mut self.thread(thread).sights;
        sights.push(sight);
        if sights.len() == MOST_SIGHTS {
            self.settle(thread);
        }
    }

    /// What a thread publishes now: what it knows and what it did.
    pub(super) fn published(&mut self, thread: usize) -> Views {
        self.settle(thread);
        let (actor, place, time) = (self.actor, self.place, self.time);
        self.known(thread).with(|clock| clock.add_threads(actor, place, thread as u16..thread as u16 + 1, time))
    }

    /// What threads publish together. Those that have nothing of their own cost nothing but their names.
    pub(super) fn published_by(&mut self, lanes: &Lanes) -> Arc<Views> {
        threads_of(lanes).for_each(|thread| self.settle(thread));
        let mut joined: Option<Arc<Views>> = None;
        let mut runs: Vec<std::ops::Range<u16>> = Vec::new();
        let mut shared = false;
        for thread in threads_of(lanes) {
            match runs.last_mut() {
                Some(last) if last.end == thread as u16 => last.end += 1,
                _ => runs.push(thread as u16..thread as u16 + 1),
            }
            let known = self.known(thread);
            if Arc::ptr_eq(known, &self.views) && std::mem::replace(&mut shared, true) {
                continue;
            }
            joined = Some(joined.map_or_else(|| known.clone(), |joined| Views::join(&joined, known)));
        }
        let joined = joined.unwrap_or_else(|| self.views.clone());
        let (actor, place, time) = (self.actor, self.place, self.time);
        let change = |clock: &mut Clock| match &runs[..] {
            [all] if *all == (0..self.count) => clock.add_block(actor, place, time),
            runs => runs.iter().for_each(|run| clock.add_threads(actor, place, run.clone(), time)),
        };
        Arc::new(joined.with(change))
    }

    /// With what its threads know where it ends.
    pub(super) fn end(&self, known: &Arc<Views>) -> Arc<Views> {
        let mut joined = Views::join(known, &self.views);
        for views in self.threads.iter().flatten().filter_map(|thread| thread.views.as_ref()) {
            joined = Views::join(&joined, views);
        }
        let sights = self.threads.iter().flatten().flat_map(|thread| &thread.sights);
        joined.with_all(sights.flat_map(Sight::at_once))
    }

    /// A barrier of these threads is complete; `all` where none of the block's others goes on.
    pub(super) fn meet(&mut self, lanes: &Lanes, all: bool, arrived: Option<&Arc<Views>>) {
        let mut joined = self.published_by(lanes);
        if let Some(arrived) = arrived {
            joined = Views::join(&joined, arrived);
        }
        self.time += 1;
        if all {
            self.views = joined;
            self.own = [0; 32];
            for thread in self.threads.iter_mut().flatten() {
                (thread.views, thread.barrier) = (None, None);
            }
            return;
        }
        for thread in threads_of(lanes) {
            self.thread(thread).barrier = Some(joined.clone());
            self.set_known(thread, joined.clone());
        }
    }
}

/// Threads of sets of lanes, ascending.
pub(super) fn threads_of(lanes: &Lanes) -> impl Iterator<Item = usize> {
    lanes.iter().enumerate().flat_map(|(warp, &lanes)| (0..32).filter(move |lane| lanes >> lane & 1 == 1).map(move |lane| warp * 32 + lane))
}
