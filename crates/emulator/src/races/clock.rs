//! What is known to have happened before a moment: a vector clock whose elements are operations of streams and threads of their blocks.

use std::{cmp::Reverse, sync::Arc};

use smallvec::{SmallVec, smallvec};

use super::release::{Own, ThreadEpoch};

/// Where an actor's operation stands: its stream, and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OperationPos {
    /// Number of the stream among those of all ranks.
    pub(super) stream: u16,
    /// From zero.
    pub(super) index: u32,
}

/// Threads `from..to` of a block up to a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Threads {
    from: u16,
    to: u16,
    time: u32,
}

/// What is known of an actor whose operation is not wholly known.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Partial {
    actor: u32,
    place: OperationPos,
    /// All threads up to this time.
    base: u32,
    /// Further threads, beyond `base`; ascending, disjoint.
    threads: SmallVec<[Threads; 2]>,
}

impl Partial {
    fn time_of(&self, thread: u16) -> u32 {
        let found = self.threads.iter().find(|threads| (threads.from..threads.to).contains(&thread));
        found.map_or(self.base, |threads| threads.time)
    }

    /// What threads of one actor did, of which there is at least one: by thread, and of a thread the latest first.
    fn of(owns: &[Own]) -> Partial {
        let ThreadEpoch { actor, place, .. } = owns[0].deeds;
        let base = owns.iter().map(|own| own.met).max().unwrap_or(0);
        let mut threads: SmallVec<[Threads; 2]> = SmallVec::new();
        for ThreadEpoch { thread, time, .. } in owns.iter().map(|own| own.deeds).filter(|deeds| deeds.time > base) {
            match threads.last_mut() {
                Some(last) if last.to > thread => {}
                Some(last) if last.to == thread && last.time == time => last.to += 1,
                _ => threads.push(Threads { from: thread, to: thread + 1, time }),
            }
        }
        Partial { actor, place, base, threads }
    }

    fn agrees_on(&self, time: u32) -> bool {
        self.base >= time || self.threads.iter().all(|threads| threads.time < time)
    }

    fn includes(&self, other: &Partial) -> bool {
        let mut own = self.threads.iter().peekable();
        // Each stretch of the other's, cut where ours change, must be known for as long.
        let within = |threads: &Threads| {
            let mut from = threads.from;
            while from < threads.to {
                while own.next_if(|own| own.to <= from).is_some() {}
                let (to, time) = match own.peek() {
                    Some(own) if own.from <= from => (own.to, own.time),
                    Some(own) => (own.from, self.base),
                    None => (threads.to, self.base),
                };
                if time < threads.time {
                    return false;
                }
                from = to;
            }
            true
        };
        // Threads that have a time of their own have one beyond the base.
        self.base >= other.base && other.threads.iter().all(within)
    }

    /// The later of both, thread by thread.
    fn merge(&mut self, other: &Partial) {
        let base = self.base.max(other.base);
        let (mut left, mut right) = (Stretches::of(self), Stretches::of(other));
        let mut merged: SmallVec<[Threads; 2]> = SmallVec::new();
        let mut from = 0;
        while let Some(to) = left.end(from).into_iter().chain(right.end(from)).min() {
            let time = left.time(from).max(right.time(from));
            match merged.last_mut() {
                _ if time <= base => {}
                Some(last) if last.to == from && last.time == time => last.to = to,
                _ => merged.push(Threads { from, to, time }),
            }
            from = to;
        }
        (self.base, self.threads) = (base, merged);
    }
}

/// Threads of an actor, ascending, in stretches of one time.
struct Stretches<'a> {
    rest: &'a [Threads],
    base: u32,
}

impl Stretches<'_> {
    fn of(partial: &Partial) -> Stretches<'_> {
        Stretches { rest: &partial.threads, base: partial.base }
    }

    /// Where the stretch of a thread ends, which no later call may be before; `None` where all further ones have the base's time.
    fn end(&mut self, thread: u16) -> Option<u16> {
        while let [first, rest @ ..] = self.rest
            && first.to <= thread
        {
            self.rest = rest;
        }
        self.rest.first().map(|first| if first.from <= thread { first.to } else { first.from })
    }

    /// The time of a thread whose stretch was asked for.
    fn time(&self, thread: u16) -> u32 {
        self.rest.first().filter(|first| first.from <= thread).map_or(self.base, |first| first.time)
    }
}

/// What is known.
///
/// Many clocks are another one with a few actors more: those of a warp's lanes, of a fence, of a barrier. So what they have in common is shared.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    /// For each stream, how many of its operations are wholly known, from the first on.
    operations: SmallVec<[u32; 8]>,
    /// Actors of other operations, ascending.
    base: Arc<Vec<Partial>>,
    /// The same of those of which more is known than the base has; all that is known of them.
    news: Vec<Partial>,
}

/// How many actors a clock has beside its base.
const MOST_NEWS: usize = 16;

impl PartialEq for Clock {
    fn eq(&self, other: &Clock) -> bool {
        self.operations == other.operations && self.actors().eq(other.actors())
    }
}

impl Clock {
    /// Whether an operation is wholly known.
    #[inline(always)]
    pub(super) fn knows_all_of(&self, place: OperationPos) -> bool {
        self.operations.get(place.stream as usize).is_some_and(|&known| known > place.index)
    }

    /// What is known of an actor whose operation is not wholly known.
    #[inline(always)]
    fn partial(&self, actor: u32) -> Option<&Partial> {
        let of = |all: &[Partial]| all.binary_search_by_key(&actor, |partial| partial.actor).ok();
        match of(&self.news) {
            Some(at) => Some(&self.news[at]),
            None => of(&self.base).map(|at| &self.base[at]),
        }
    }

    /// What is known of each actor, ascending.
    fn actors(&self) -> impl Iterator<Item = &Partial> {
        let (mut base, mut news) = (self.base.iter().peekable(), self.news.iter().peekable());
        std::iter::from_fn(move || match (base.peek(), news.peek()) {
            (Some(old), Some(new)) if old.actor < new.actor => base.next(),
            (Some(old), Some(new)) => {
                if old.actor == new.actor {
                    base.next();
                }
                news.next()
            }
            (_, None) => base.next(),
            (None, _) => news.next(),
        })
    }

    /// Whether all threads of an actor are known up to a time.
    #[inline(always)]
    pub(super) fn knows_block(&self, actor: u32, place: OperationPos, time: u32) -> bool {
        self.knows_all_of(place) || self.partial(actor).is_some_and(|partial| partial.base >= time)
    }

    /// Whether a thread of an actor is known up to a time.
    pub(super) fn knows(&self, actor: u32, place: OperationPos, thread: u16, time: u32) -> bool {
        self.knows_all_of(place) || self.partial(actor).is_some_and(|partial| partial.time_of(thread) >= time)
    }

    /// Whether what a thread did is known.
    pub(super) fn has(&self, deeds: ThreadEpoch) -> bool {
        self.knows(deeds.actor, deeds.place, deeds.thread, deeds.time)
    }

    /// Whether all threads of an actor are known up to a time, or none is.
    pub(super) fn agrees_on(&self, actor: u32, time: u32) -> bool {
        self.partial(actor).is_none_or(|partial| partial.agrees_on(time))
    }

    /// With threads `from..to` of an actor up to a time.
    pub(super) fn add_threads(&mut self, actor: u32, place: OperationPos, threads: std::ops::Range<u16>, time: u32) {
        let own = Threads { from: threads.start, to: threads.end, time };
        self.add(&Partial { actor, place, base: 0, threads: smallvec![own] });
    }

    /// With what a thread did, and its block.
    pub(super) fn add_own(&mut self, own: Own) {
        self.add(&Partial::of(&[own]));
    }

    /// With all threads of an actor up to a time; from its start on, where that is 0.
    pub(super) fn add_block(&mut self, actor: u32, place: OperationPos, time: u32) {
        self.add(&Partial { actor, place, base: time, threads: SmallVec::new() });
    }

    fn add(&mut self, partial: &Partial) {
        if self.knows_all_of(partial.place) || partial.base == 0 && partial.threads.is_empty() {
            return;
        }
        let at = match self.news.binary_search_by_key(&partial.actor, |known| known.actor) {
            Ok(at) => return self.news[at].merge(partial),
            Err(at) => at,
        };
        let mut known = partial.clone();
        if let Ok(before) = self.base.binary_search_by_key(&partial.actor, |known| known.actor) {
            if self.base[before].includes(partial) {
                return;
            }
            known.merge(&self.base[before]);
        }
        self.news.insert(at, known);
        if self.news.len() > MOST_NEWS {
            self.base = Arc::new(self.actors().cloned().collect());
            self.news.clear();
        }
    }

    /// With all of a stream up to an operation.
    pub(super) fn add_operation(&mut self, place: OperationPos) {
        let stream = place.stream as usize;
        if self.operations.len() <= stream {
            self.operations.resize(stream + 1, 0);
        }
        self.operations[stream] = self.operations[stream].max(place.index + 1);
        self.prune();
    }

    fn prune(&mut self) {
        let operations = &self.operations;
        let is_left = |partial: &Partial| operations.get(partial.place.stream as usize).is_none_or(|&known| known <= partial.place.index);
        self.news.retain(is_left);
        if !self.base.iter().all(is_left) {
            Arc::make_mut(&mut self.base).retain(is_left);
        }
    }

    pub(super) fn includes(&self, other: &Clock) -> bool {
        let of_streams = other.operations.iter().enumerate().all(|(stream, &known)| self.operations.get(stream).unwrap_or(&0) >= &known);
        let is_known =
            |partial: &Partial| self.knows_all_of(partial.place) || self.partial(partial.actor).is_some_and(|own| own.includes(partial));
        of_streams && other.news.iter().all(is_known) && (Arc::ptr_eq(&self.base, &other.base) || other.base.iter().all(is_known))
    }

    /// What either knows. Where one knows all of the other, it is shared.
    pub(super) fn join(a: &Arc<Clock>, b: &Arc<Clock>) -> Arc<Clock> {
        let mut joined = a.clone();
        Clock::extend(&mut joined, b);
        joined
    }

    /// Adds what another one knows; in place, where nobody shares it. Where the other knows all of it, that is shared.
    pub(super) fn extend(clock: &mut Arc<Clock>, other: &Arc<Clock>) {
        if Arc::ptr_eq(clock, other) || clock.includes(other) {
            return;
        }
        if other.includes(clock) {
            *clock = other.clone();
            return;
        }
        let joined = Arc::make_mut(clock);
        if joined.operations.len() < other.operations.len() {
            joined.operations.resize(other.operations.len(), 0);
        }
        joined.operations.iter_mut().zip(&other.operations).for_each(|(own, other)| *own = (*own).max(*other));
        other.news.iter().for_each(|partial| joined.add(partial));
        if !Arc::ptr_eq(&joined.base, &other.base) {
            // What the news have is not less than what their base has.
            joined.base = Arc::new(merged(&joined.base, &other.base));
            joined.news.iter_mut().for_each(|known| {
                if let Ok(at) = other.base.binary_search_by_key(&known.actor, |partial| partial.actor) {
                    known.merge(&other.base[at]);
                }
            });
        }
        joined.prune();
    }

    /// Whether it has what a thread and its block did.
    pub(super) fn has_own(&self, own: Own) -> bool {
        let ThreadEpoch { actor, place, thread, time } = own.deeds;
        self.knows_all_of(place) || self.partial(actor).is_some_and(|known| known.base >= own.met && known.time_of(thread) >= time)
    }

    /// Adds what threads and their blocks did.
    pub(super) fn extend_by(clock: &mut Arc<Clock>, owns: &[Own]) {
        let mut news: Vec<Own> = owns.iter().filter(|own| !clock.has_own(**own)).copied().collect();
        if news.is_empty() {
            return;
        }
        news.sort_unstable_by_key(|Own { deeds, .. }| (deeds.actor, deeds.thread, Reverse(deeds.time)));
        let clock = Arc::make_mut(clock);
        news.chunk_by(|a, b| a.deeds.actor == b.deeds.actor).for_each(|of_actor| clock.add(&Partial::of(of_actor)));
    }
}

/// What either list knows of each actor.
fn merged(a: &[Partial], b: &[Partial]) -> Vec<Partial> {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut all = Vec::with_capacity(a.len().max(b.len()));
    loop {
        let next = match (a.peek(), b.peek()) {
            (Some(left), Some(right)) if left.actor == right.actor => {
                let mut both = Partial::clone(left);
                both.merge(right);
                a.next();
                b.next();
                both
            }
            (Some(left), Some(right)) if left.actor > right.actor => b.next().cloned().expect("it was looked at"),
            (Some(_), _) => a.next().cloned().expect("it was looked at"),
            (None, Some(_)) => b.next().cloned().expect("it was looked at"),
            (None, None) => return all,
        };
        all.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: OperationPos = OperationPos { stream: 1, index: 4 };

    fn clock(parts: &[(std::ops::Range<u16>, u32)]) -> Clock {
        let mut clock = Clock::default();
        parts.iter().for_each(|(threads, time)| clock.add_threads(7, HERE, threads.clone(), *time));
        clock
    }

    #[test]
    fn threads_are_known_each_up_to_its_own_time() {
        let joined = Clock::join(&Arc::new(clock(&[(0..8, 3), (4..6, 9)])), &Arc::new(clock(&[(5..20, 5)])));
        let time = |thread: u16| (0..20).rev().find(|&time| joined.knows(7, HERE, thread, time)).unwrap_or(0);
        let expected: Vec<u32> = vec![3, 3, 3, 3, 9, 9, 5, 5];
        assert_eq!((0..8).map(time).collect::<Vec<_>>(), expected);
        assert!(!joined.knows(7, HERE, 20, 1) && !joined.knows(8, HERE, 5, 1));
        assert!(!joined.knows_block(7, HERE, 1));
    }

    #[test]
    fn a_clock_that_knows_the_other_is_shared() {
        let (large, small) = (Arc::new(clock(&[(0..32, 4)])), Arc::new(clock(&[(3..4, 4)])));
        assert!(Arc::ptr_eq(&Clock::join(&large, &small), &large));
        assert!(Arc::ptr_eq(&Clock::join(&small, &large), &large));
        let block = {
            let mut clock = Clock::default();
            clock.add_block(7, HERE, 4);
            Arc::new(clock)
        };
        assert!(Arc::ptr_eq(&Clock::join(&block, &large), &block));
    }

    /// Of all pairs of clocks with two stretches among eight threads: the join and the comparison say of each thread what it is.
    #[test]
    fn comparisons_and_joins_are_thread_by_thread() {
        let stretches = [(0..8, 1), (0..3, 2), (2..5, 3), (4..6, 2), (5..8, 3), (7..8, 1)];
        let mut clocks = vec![Clock::default()];
        for first in &stretches {
            clocks.extend(stretches.iter().map(|second| clock(&[first.clone(), second.clone()])));
        }
        for base in [1, 2] {
            let mut with_base = clock(&[(1..4, 3)]);
            with_base.add_block(7, HERE, base);
            clocks.push(with_base);
        }
        let times =
            |clock: &Clock| std::array::from_fn(|thread| (0..4).rev().find(|&time| clock.knows(7, HERE, thread as u16, time)).unwrap_or(0));
        for (a, b) in clocks.iter().flat_map(|a| clocks.iter().map(move |b| (a, b))) {
            let (of_a, of_b): ([u32; 9], [u32; 9]) = (times(a), times(b));
            assert_eq!(a.includes(b), of_a.iter().zip(&of_b).all(|(a, b)| a >= b), "{a:?} and {b:?}");
            let joined = Clock::join(&Arc::new(a.clone()), &Arc::new(b.clone()));
            assert_eq!(times(&joined), std::array::from_fn(|thread| of_a[thread].max(of_b[thread])), "{a:?} and {b:?}");
        }
    }

    #[test]
    fn deeds_of_many_threads_are_added_as_one_by_one() {
        // Of actor 9 three things that one thread handed on, two of them without what it did itself: the last has most of its block.
        let of_9 = [(9, 0, 0, 2), (9, 0, 5, 3), (9, 0, 0, 6)];
        let deeds: Vec<Own> = [(7, 3, 5, 2), (8, 0, 2, 0), (7, 4, 5, 0), (7, 3, 9, 4), (7, 12, 1, 0), (8, 1, 2, 1), (7, 5, 5, 2)]
            .into_iter()
            .chain(of_9)
            .map(|(actor, thread, time, met)| Own { deeds: ThreadEpoch { actor, place: HERE, thread, time }, met })
            .collect();
        let mut together = Arc::new(clock(&[(0..4, 4)]));
        let mut apart = Clock::clone(&together);
        Clock::extend_by(&mut together, &deeds);
        for Own { deeds: ThreadEpoch { actor, place, thread, time }, met } in deeds.iter().copied() {
            apart.add_own(Own { deeds: ThreadEpoch { actor, place, thread, time }, met });
        }
        assert_eq!(*together, apart);
        let before = together.clone();
        Clock::extend_by(&mut together, &deeds);
        assert!(Arc::ptr_eq(&before, &together), "nothing is copied where nothing is new");
    }

    #[test]
    fn threads_agree_where_all_or_none_are_known() {
        let mut clock = clock(&[(2..4, 6)]);
        clock.add_block(7, HERE, 3);
        assert_eq!([3, 4, 6, 7].map(|time| clock.agrees_on(7, time)), [true, false, false, true]);
        assert!(clock.agrees_on(8, 1));
    }

    /// Of many actors, more than are kept beside a base: what clocks share, are added and join is what tables of times would say.
    #[test]
    fn clocks_of_many_actors_are_tables_of_times() {
        const ACTORS: u32 = 60;
        const THREADS: u16 = 3;
        let mut choice = crate::choice::Choice::of_seed(7);
        let mut clocks: Vec<(Arc<Clock>, Vec<u32>)> = vec![(Arc::default(), vec![0; (ACTORS * u32::from(THREADS)) as usize])];
        for _ in 0..600 {
            let (mut clock, mut table) = clocks[choice.below(clocks.len())].clone();
            match choice.below(3) {
                0 => {
                    let (other, times) = clocks[choice.below(clocks.len())].clone();
                    let is_less = table.iter().zip(&times).all(|(own, other)| own >= other);
                    assert_eq!(clock.includes(&other), is_less);
                    Clock::extend(&mut clock, &other);
                    table.iter_mut().zip(&times).for_each(|(own, other)| *own = (*own).max(*other));
                }
                kind => {
                    let (actor, thread) = (choice.below(ACTORS as usize) as u32, choice.below(THREADS.into()) as u16);
                    let (time, own) = (1 + choice.below(9) as u32, Arc::make_mut(&mut clock));
                    let threads = if kind == 1 { 0..THREADS } else { thread..thread + 1 };
                    own.add_threads(actor, HERE, threads.clone(), time);
                    for thread in threads {
                        let known = &mut table[(actor * u32::from(THREADS) + u32::from(thread)) as usize];
                        *known = (*known).max(time);
                    }
                }
            }
            for (place, &time) in table.iter().enumerate() {
                let (actor, thread) = (place as u32 / u32::from(THREADS), (place % THREADS as usize) as u16);
                assert!(time == 0 || clock.knows(actor, HERE, thread, time));
                assert!(!clock.knows(actor, HERE, thread, time + 1));
            }
            clocks.push((clock, table));
        }
    }

    /// If this fails, a lane that learns of one block more copies all that its warp knows.
    #[test]
    fn clocks_share_what_they_have_in_common() {
        let mut warp = Clock::default();
        (0..=MOST_NEWS as u32).for_each(|actor| warp.add_block(actor, HERE, 1));
        let mut lane = warp.clone();
        lane.add_block(99, HERE, 1);
        assert!(Arc::ptr_eq(&lane.base, &warp.base));
        assert_eq!((lane.base.len(), lane.news.len()), (MOST_NEWS + 1, 1));
    }

    #[test]
    fn what_is_wholly_known_is_kept_as_a_number() {
        let mut clock = clock(&[(0..1, 1)]);
        clock.add_operation(OperationPos { index: 3, ..HERE });
        assert!(clock.knows(7, HERE, 0, 1) && !clock.knows(7, HERE, 1, 1));
        clock.add_operation(HERE);
        assert!(clock.knows(7, HERE, 1, 99) && clock.actors().next().is_none());
        let mut later = Clock::default();
        later.add_threads(9, OperationPos { index: 5, ..HERE }, 0..1, 2);
        let joined = Clock::join(&Arc::new(clock), &Arc::new(later));
        assert!(joined.knows(9, OperationPos { index: 5, ..HERE }, 0, 2) && joined.knows_all_of(HERE));
    }
}
