//! Who acts: operations of streams, the blocks of launches, and what their threads know.

use std::sync::Arc;

use super::{
    clock::{Clock, OperationPos},
    release::{Level, Location, ObservedRelease, Own, Reader, ThreadEpoch, Who},
    views::{View, Views},
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
    pub(super) place: OperationPos,
    pub(super) kind: Kind,
    /// What is known where it starts.
    pub(super) start: Arc<Views>,
    /// What blocks of it knew where they ended.
    pub(super) end: Arc<Views>,
    /// The operation that it need not have waited for: its threads wait by themselves (`griddepcontrol.wait`).
    pub(super) prerequisite: Option<OperationId>,
    /// What threads that have waited for it publish by assumption: what was known where it had ended.
    pub(super) waited_for: Option<Arc<Clock>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Actor {
    pub(super) operation: u32,
    /// Index in the grid; 0 for what is no launch.
    pub(super) block: u32,
    /// Number of its cluster among those of the operation.
    pub(super) cluster: u32,
    pub(super) rank: u16,
    pub(super) place: OperationPos,
    /// The block whose thread has started it, of what goes on beside its threads.
    pub(super) beside: Option<u32>,
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
    pub(super) place: OperationPos,
    /// Goes on where a thread publishes what it knows, and where barriers complete.
    pub(super) time: u32,
    /// Of what the block's threads did, all of them know all up to this time: that of the last barrier at which all of them were. No clock of
    /// the block's has it, so that a barrier where nobody knows anything new changes no clock; whatever is published has it added.
    pub(super) met: u32,
    /// What all threads know but for those that have views of their own: what was known at the last barrier of all.
    pub(super) views: Arc<Views>,
    /// How many threads it has.
    pub(super) count: u16,
    /// Threads that have something of their own.
    pub(super) threads: Vec<Option<Box<Thread>>>,
    /// Lanes that have views of their own.
    pub(super) own: Lanes,
    /// Lanes that have seen something that is not added to what they know.
    pub(super) sighted: Lanes,
    /// How often it has emptied its SM's cache: by acquiring further than from its own block, and by waiting for what is before its launch.
    pub(super) emptied: u32,
    /// What acquiring has lately made of what threads knew.
    lessons: Vec<Lesson>,
    oldest_lesson: u8,
    /// What was published by arrivals at each barrier that is not complete.
    pub(super) arrived: [Option<Arc<Views>>; 16],
    /// The same for the cluster's barrier, before and after its completion.
    pub(super) cluster: [Option<Arc<Views>>; 2],
}

/// What those who knew something know when they have acquired a state of a location. Threads of a block that knew the same and acquire the same
/// come to know the same: they share it, so it is worked out once for all of them, and their accesses stay one record.
#[derive(Debug)]
struct Lesson {
    before: Arc<Views>,
    state: u64,
    scope: Level,
    after: Arc<Views>,
}

/// Lessons that a block remembers: warps come to the words that they acquire in turn, not all at the same time.
const MOST_LESSONS: usize = 32;

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
    pub(super) sights: Vec<ObservedRelease>,
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
    pub(super) fn new(actor: u32, place: OperationPos, threads: usize, views: Arc<Views>) -> Block {
        let none = || std::array::from_fn(|_| None);
        let mut of_threads = Vec::new();
        of_threads.resize_with(threads.next_multiple_of(32), || None);
        Block {
            actor,
            place,
            time: 1,
            met: 0,
            views,
            count: threads as u16,
            threads: of_threads,
            own: [0; 32],
            sighted: [0; 32],
            emptied: 0,
            lessons: Vec::new(),
            oldest_lesson: 0,
            arrived: none(),
            cluster: [None, None],
        }
    }

    /// What a thread knows, but for its sights and for what all had done when they met.
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
        let (warp, lane) = (thread / 32, 1 << (thread % 32));
        if self.sighted[warp] & lane == 0 {
            return;
        }
        self.sighted[warp] &= !lane;
        let of_thread = self.thread(thread);
        let mut sights = std::mem::take(&mut of_thread.sights);
        for level in Level::ALL {
            let pending = &mut of_thread.pending[level as usize];
            let mut views: Option<Views> = None;
            for sight in sights.iter().filter(|sight| sight.may_need(level)) {
                sight.merge_into(Some(level), views.get_or_insert_with(|| pending.as_deref().cloned().unwrap_or_default()));
            }
            *pending = views.map(Arc::new).or_else(|| pending.take());
        }
        let known = self.known(thread).clone();
        let mut views = Views::clone(&known);
        sights.iter().for_each(|sight| sight.merge_into(None, &mut views));
        if !views.are(&known) {
            self.set_known(thread, Arc::new(views));
        }
        sights.clear();
        self.thread(thread).sights = sights;
    }

    /// A thread's strong read saw something.
    pub(super) fn see(&mut self, thread: usize, sight: ObservedRelease) {
        self.sighted[thread / 32] |= 1 << (thread % 32);
        let sights = &mut self.thread(thread).sights;
        sights.push(sight);
        if sights.len() == MOST_SIGHTS {
            self.settle(thread);
        }
    }

    /// A thread acquires, with this scope.
    pub(super) fn empty_cache(&mut self, scope: Level) {
        self.emptied += u32::from(scope > Level::Block);
    }

    /// A thread acquires the state of a location.
    pub(super) fn acquire(&mut self, thread: usize, location: &Location, reader: Reader) {
        self.settle(thread);
        let before = self.known(thread);
        let of_state = |lesson: &&Lesson| (lesson.state, lesson.scope) == (location.state, reader.scope);
        for lesson in self.lessons.iter().filter(of_state) {
            if Arc::ptr_eq(&lesson.after, before) {
                return;
            }
            if Arc::ptr_eq(&lesson.before, before) {
                let after = lesson.after.clone();
                return self.set_known(thread, after);
            }
        }
        let before = before.clone();
        if !self.thread(thread).seen.note(Look { state: location.state, scope: reader.scope, acquired: true }) {
            return;
        }
        let mut views = Views::clone(&before);
        location.sights(reader).for_each(|sight| sight.merge_into(None, &mut views));
        let after = if views.are(&before) { before.clone() } else { Arc::new(views) };
        if !Arc::ptr_eq(&after, &before) {
            self.set_known(thread, after.clone());
        }
        self.note_lesson(Lesson { before, state: location.state, scope: reader.scope, after });
    }

    /// A thread comes to know more, as all do who knew the same and learn the same: of a state of an mbarrier, with a scope.
    pub(super) fn learn(&mut self, thread: usize, (state, scope): (u64, Level), learn: impl FnOnce(&Arc<Views>) -> Arc<Views>) {
        self.settle(thread);
        let before = self.known(thread).clone();
        let of_state = |lesson: &&Lesson| (lesson.state, lesson.scope) == (state, scope);
        let known =
            self.lessons.iter().filter(of_state).find(|lesson| Arc::ptr_eq(&lesson.before, &before) || Arc::ptr_eq(&lesson.after, &before));
        let after = match known {
            Some(lesson) => lesson.after.clone(),
            None => {
                let after = learn(&before);
                self.note_lesson(Lesson { before: before.clone(), state, scope, after: after.clone() });
                after
            }
        };
        if !Arc::ptr_eq(&after, &before) {
            self.set_known(thread, after);
        }
    }

    fn note_lesson(&mut self, lesson: Lesson) {
        if self.lessons.len() < MOST_LESSONS {
            self.lessons.push(lesson);
        } else {
            self.lessons[self.oldest_lesson as usize] = lesson;
            self.oldest_lesson = (self.oldest_lesson + 1) % MOST_LESSONS as u8;
        }
    }

    /// What a thread did up to now, and what all of the block had done when they met.
    pub(super) fn own_of(&self, thread: u16) -> Own {
        Own { deeds: ThreadEpoch { actor: self.actor, place: self.place, thread, time: self.time }, met: self.met }
    }

    /// What a thread publishes now: what it knows and what it did.
    pub(super) fn published(&mut self, thread: usize) -> Views {
        self.settle(thread);
        let own = self.own_of(thread as u16);
        self.known(thread).with(|clock| clock.add_own(own))
    }

    /// What threads know together, but for what the block's threads did.
    fn joined(&mut self, lanes: &Lanes) -> Arc<Views> {
        let sighted: Lanes = std::array::from_fn(|warp| lanes[warp] & self.sighted[warp]);
        threads_of(&sighted).for_each(|thread| self.settle(thread));
        let shared = lanes.iter().zip(&self.own).any(|(lanes, own)| lanes & !own != 0);
        let mut joined = shared.then(|| self.views.clone());
        let own: Lanes = std::array::from_fn(|warp| lanes[warp] & self.own[warp]);
        let mut last: Option<&Arc<Views>> = None;
        for thread in threads_of(&own) {
            let known = self.known(thread);
            if !last.is_some_and(|last| Arc::ptr_eq(last, known)) {
                joined = Some(joined.map_or_else(|| known.clone(), |joined| Views::join(&joined, known)));
                last = Some(known);
            }
        }
        joined.unwrap_or_else(|| self.views.clone())
    }

    /// Whether these are all threads that the block began with.
    fn are_all(&self, lanes: &Lanes) -> bool {
        lanes.iter().map(|lanes| lanes.count_ones()).sum::<u32>() == u32::from(self.count)
    }

    /// What threads publish together. Those that have nothing of their own cost nothing but their names.
    pub(super) fn published_by(&mut self, lanes: &Lanes) -> Arc<Views> {
        let joined = self.joined(lanes);
        let (actor, place, time) = (self.actor, self.place, self.time);
        let all = self.are_all(lanes);
        let mut runs: Vec<std::ops::Range<u16>> = Vec::new();
        if !all {
            for thread in threads_of(lanes) {
                match runs.last_mut() {
                    Some(last) if last.end == thread as u16 => last.end += 1,
                    _ => runs.push(thread as u16..thread as u16 + 1),
                }
            }
        }
        let change = |clock: &mut Clock| {
            clock.add_block(actor, place, if all { time } else { self.met });
            runs.iter().for_each(|run| clock.add_threads(actor, place, run.clone(), time));
        };
        Arc::new(joined.with(change))
    }

    /// With what its threads know where it ends.
    pub(super) fn end(&self, known: &Arc<Views>) -> Arc<Views> {
        // What its own threads knew first: of the blocks before it there may be many.
        let mut joined = self.views.clone();
        let mut last = &self.views;
        for views in threads_of(&self.own).map(|thread| self.known(thread)) {
            if !Arc::ptr_eq(views, last) {
                joined = Views::join(&joined, views);
                last = views;
            }
        }
        let joined = Views::join(known, &joined);
        let sights = threads_of(&self.sighted).filter_map(|thread| self.threads[thread].as_ref()).flat_map(|thread| &thread.sights);
        let joined = joined.with_all(sights.flat_map(ObservedRelease::at_the_end));
        // What a fence would have acquired that did not come.
        let pending = self.threads.iter().flatten().flat_map(|thread| &thread.pending).flatten();
        pending.fold(joined, |joined, pending| Views::join_in(&joined, pending, &View::THAT_ACQUIRE_AT_THE_END))
    }

    /// A barrier of these threads is complete; `all` where none of the block's others goes on.
    pub(super) fn meet(&mut self, lanes: &Lanes, all: bool, arrived: Option<&Arc<Views>>) {
        // Threads that have ended take no part, so nobody knows all that they did.
        let together = all && self.are_all(lanes);
        let mut joined = if together { self.joined(lanes) } else { self.published_by(lanes) };
        if let Some(arrived) = arrived {
            joined = Views::join(&joined, arrived);
        }
        if together {
            self.met = self.time;
        }
        self.time += 1;
        if all {
            self.views = joined;
            // What threads knew that have ended, whatever follows the kernel still learns.
            let here: Lanes = std::array::from_fn(|warp| self.own[warp] & lanes[warp]);
            for thread in threads_of(&here) {
                let of_thread = self.thread(thread);
                (of_thread.views, of_thread.barrier) = (None, None);
            }
            self.own.iter_mut().zip(lanes).for_each(|(own, lanes)| *own &= !lanes);
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
    lanes.iter().enumerate().flat_map(|(warp, &lanes)| lanes_of(lanes).map(move |lane| warp * 32 + lane))
}

/// The lanes of a set, ascending.
pub(super) fn lanes_of(mut lanes: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = lanes.trailing_zeros();
        lanes &= lanes.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: OperationPos = OperationPos { stream: 0, index: 0 };

    /// If this fails, who polls takes the same again with every look, or misses what is new.
    #[test]
    fn a_look_counts_once() {
        let mut seen = Seen::default();
        let look = |state| Look { state, scope: Level::Rank, acquired: false };
        // As many words in turn as are remembered.
        for state in (1..=8).map(look) {
            assert!(seen.note(state) && !seen.note(state));
        }
        assert!((1..=8).all(|state| !seen.note(look(state))));
        assert!(!seen.note(Look { scope: Level::Block, ..look(3) }), "it brings less");
        assert!(seen.note(Look { scope: Level::System, ..look(3) }), "it brings more");
        assert!(seen.note(Look { acquired: true, ..look(4) }), "it brings more");
    }

    /// If this fails, what many threads learn of one word is worked out for each of them.
    #[test]
    fn threads_that_knew_the_same_learn_it_once() {
        let mut block = Block::new(1, HERE, 64, Arc::default());
        let mut times = 0;
        for thread in [0, 1, 0, 33] {
            block.learn(thread, (7, Level::Rank), |known| {
                times += 1;
                Arc::new(known.with(|clock| clock.add_block(9, HERE, 1)))
            });
            assert!(Arc::ptr_eq(block.known(thread), block.known(0)));
        }
        assert_eq!(times, 1);
        assert!(block.known(33).of(View::Strict).knows_block(9, HERE, 1));
    }

    #[test]
    fn threads_publish_nothing_of_their_neighbours() {
        let mut block = Block::new(1, HERE, 64, Arc::default());
        let mut lanes = [0; 32];
        (lanes[0], lanes[1]) = (0b1_0110, 1);
        let published = block.published_by(&lanes);
        let known = (0..64).filter(|&thread| published.of(View::Strict).knows(1, HERE, thread, 1));
        assert_eq!(known.collect::<Vec<_>>(), [1, 2, 4, 32]);
    }
}
