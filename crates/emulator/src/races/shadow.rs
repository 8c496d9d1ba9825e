//! Who accessed each byte last: records beside the memory.
//!
//! A [`Record`] is one stretch of bytes that lanes of one warp accessed with one instruction: one after the other, each `width` bytes,
//! or all of them the same bytes. So a warp's access of 512 bytes in order is one record, and still every byte has its thread. Records are
//! kept by pages of 512 bytes, made when they are first touched.

use std::{cell::Cell, collections::HashMap};

use smallvec::SmallVec;

use super::{
    release::{Level, Location},
    views::View,
};

/// Bytes of a page.
pub(super) const PAGE: u64 = 512;

/// By what way memory is accessed: proxies see one another's accesses only across fences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Via {
    /// A place's own address, by the generic proxy.
    Own,
    /// A multicast address.
    Multicast,
    /// The asynchronous proxy, in global memory.
    AsyncGlobal,
    /// The asynchronous proxy, in shared memory.
    AsyncShared,
    /// The proxy of tensor maps, by which what copies boxes reads where they are.
    TensorMap,
}

impl Via {
    /// Whether what goes on beside threads accesses memory so.
    pub(super) fn is_async(self) -> bool {
        matches!(self, Via::AsyncGlobal | Via::AsyncShared | Via::TensorMap)
    }

    /// What must know of accesses by other ways before one of this.
    pub(super) fn view(self) -> View {
        match self {
            Via::Own | Via::Multicast => View::Alias,
            Via::AsyncGlobal => View::AsyncGlobal,
            Via::AsyncShared => View::AsyncShared,
            Via::TensorMap => View::TensorMap,
        }
    }
}

/// How memory is accessed, as far as races are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mode {
    pub(super) writes: bool,
    /// Of a strong operation, its scope.
    pub(super) strong: Option<Level>,
    pub(super) via: Via,
    /// More than one element a lane.
    pub(super) vector: bool,
    pub(super) non_coherent: bool,
    /// Bytes of an element; 1 where the operation is no instruction.
    pub(super) element: u8,
}

impl Mode {
    /// Whether whatever races with an access of the mode `other` to the same bytes races with this one too, but for its direction.
    fn covers(&self, other: &Mode) -> bool {
        // What a strong read has seen may order what comes after it, so it stays where the same is read again.
        let comparable = self.via == other.via && (self.writes || self.strong.is_some() || other.strong.is_none());
        comparable && (self.strong.is_none() || Mode { writes: self.writes, ..*other } == *self)
    }
}

/// Bytes of a page, who accessed them and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Bytes of the page.
    pub(super) from: u16,
    pub(super) to: u16,
    /// Where in the page thread `thread` begins, which may be before the page.
    pub(super) origin: i16,
    /// Bytes of each thread; 0 where all threads of `lanes` accessed all of it.
    pub(super) width: u8,
    pub(super) mode: Mode,
    pub(super) thread: u16,
    pub(super) lanes: u32,
    pub(super) actor: u32,
    pub(super) time: u32,
    /// The instruction.
    pub(super) point: u32,
    /// It reads what it writes over.
    pub(super) atomic: bool,
    /// Whether some of these bytes were written since, by something that this was kept beside; of what an atomic has written over that saw it, observation
    /// order goes on with the atomic (PTX ISA 8.9.3).
    pub(super) outdated: bool,
}

impl Record {
    /// What `actor` does at a time of its own, to no bytes yet: the caller that records it says to which, and as which threads.
    #[inline(always)]
    pub(super) fn like(mode: Mode, (actor, time): (u32, u32), point: u32, atomic: bool) -> Record {
        Record { from: 0, to: 0, origin: 0, width: 0, mode, thread: 0, lanes: 0, actor, time, point, atomic, outdated: false }
    }

    #[inline(always)]
    pub(super) fn overlaps(&self, other: &Record) -> bool {
        self.from < other.to && other.from < self.to
    }

    /// Whether each byte of both is accessed by the same thread.
    #[inline(always)]
    pub(super) fn same_threads(&self, other: &Record) -> bool {
        self.actor == other.actor
            && self.width == other.width
            && if self.width == 0 {
                self.thread == other.thread && self.lanes == other.lanes && self.lanes.is_power_of_two()
            } else {
                (i32::from(self.origin) - i32::from(other.origin))
                    == (i32::from(self.thread) - i32::from(other.thread)) * i32::from(self.width)
            }
    }

    /// Whether both are of the same threads, which all access all of it.
    #[inline(always)]
    pub(super) fn same_lanes(&self, other: &Record) -> bool {
        (self.actor, self.width, self.thread, self.lanes) == (other.actor, 0, other.thread, other.lanes) && other.width == 0
    }

    /// The threads that access a byte, and where the bytes that just these access end.
    pub(super) fn threads_at(&self, byte: u16) -> (impl Iterator<Item = u16> + Clone + use<>, u16) {
        let (first, lanes, end) = match self.width {
            0 => (self.thread, self.lanes, self.to),
            width => {
                let lane = (i32::from(byte) - i32::from(self.origin)) / i32::from(width);
                let end = i32::from(self.origin) + (lane + 1) * i32::from(width);
                (self.thread + lane as u16, 1, end.min(i32::from(self.to)) as u16)
            }
        };
        ((0..32).filter(move |lane| lanes >> lane & 1 == 1).map(move |lane| first + lane), end)
    }
}

/// Bytes that a cache of an SM takes from memory at once.
const SECTOR: u16 = 32;

/// Sectors of a page that a block has read weakly: its SM may have kept them.
#[derive(Clone, Copy, Debug)]
struct Cached {
    actor: u32,
    /// How often the block had emptied that cache: what it read before is not there any more.
    since: u32,
    /// Those that it has read, and the words in them that somebody else has written since.
    read: u16,
    stale: u128,
}

/// A page.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) reads: Vec<Record>,
    pub(super) writes: Vec<Record>,
    /// Where strong operations have written; ascending, disjoint.
    pub(super) locations: Vec<Location>,
    /// What blocks may have kept of it.
    cached: SmallVec<[Cached; 1]>,
    /// The last access that was noted.
    last: Option<Record>,
    /// Where a location was found last: lanes take them one after the other.
    recent: Cell<usize>,
}

impl Page {
    /// Whether nothing has happened here since this very access: then all that follows from it is known. Who polls comes back again and again.
    pub(super) fn is_last(&self, record: &Record) -> bool {
        self.last.as_ref() == Some(record)
    }

    /// Notes an access, in place of those it makes superfluous: `known` says of an earlier one whether it is ordered before. Where it is not
    /// and the two race, that has been seen by now. `sees` says of an earlier write whether it is morally strong with this access.
    pub(super) fn note(&mut self, record: Record, known: impl Fn(&Record) -> bool, sees: impl Fn(&Record) -> bool) {
        let superfluous = |earlier: &Record| {
            let race = record.mode.writes && (record.mode.strong.is_none() || earlier.mode.strong.is_none());
            record.mode.covers(&earlier.mode) && (race || known(earlier))
        };
        if record.mode.writes {
            replace(&mut self.reads, &record, superfluous);
            replace(&mut self.writes, &record, superfluous);
            self.reads.iter_mut().filter(|read| read.overlaps(&record)).for_each(|read| read.outdated = true);
            let hidden = self.writes.iter_mut().filter(|write| write.overlaps(&record) && !(record.atomic && sees(write)));
            hidden.for_each(|write| write.outdated = true);
            self.writes.push(record);
        } else {
            replace(&mut self.reads, &record, superfluous);
            self.reads.push(record);
        }
        self.last = Some(record);
    }

    /// A block has read bytes weakly. `is_over` says of others whether they have ended.
    pub(super) fn keep(&mut self, record: &Record, since: u32, is_over: impl Fn(u32) -> bool) {
        let read = sectors(record);
        match self.cached.iter_mut().find(|cached| cached.actor == record.actor) {
            Some(cached) if cached.since == since => cached.read |= read,
            Some(cached) => *cached = Cached { since, read, stale: 0, ..*cached },
            None => {
                self.cached.retain(|cached| !is_over(cached.actor));
                self.cached.push(Cached { actor: record.actor, since, read, stale: 0 });
            }
        }
    }

    /// Bytes were written: what other blocks have kept of them is old.
    pub(super) fn outdate(&mut self, record: &Record) {
        let (written, words) = (sectors(record), words(record));
        let others = self.cached.iter_mut().filter(|cached| cached.actor != record.actor);
        others.for_each(|cached| cached.stale |= words & words_of(cached.read & written));
    }

    /// Whether a block that has emptied its cache so often may find there what bytes were before they were written.
    pub(super) fn is_stale(&self, record: &Record, since: u32) -> bool {
        let of = |cached: &&Cached| (cached.actor, cached.since) == (record.actor, since);
        self.cached.iter().find(of).is_some_and(|cached| cached.stale & words(record) != 0)
    }

    /// The strong reads of some of a record's bytes that saw what was written there last.
    pub(super) fn observers(&self, record: &Record) -> Vec<Record> {
        let observes = |read: &&Record| read.mode.strong.is_some() && !read.outdated && read.overlaps(record);
        self.reads.iter().filter(observes).copied().collect()
    }

    /// The number of the first location that ends behind a byte.
    fn first_behind(&self, offset: u16) -> usize {
        let is_before = |at: usize| self.locations.get(at).is_some_and(|location| location.end() <= offset);
        let is_first = |at: &usize| !is_before(*at) && (*at == 0 || is_before(*at - 1));
        let recent = self.recent.get();
        let at = [recent, recent + 1].into_iter().find(is_first);
        let at = at.unwrap_or_else(|| self.locations.partition_point(|location| location.end() <= offset));
        self.recent.set(at);
        at
    }

    /// The locations of which an element is exactly these bytes.
    pub(super) fn location(&self, offset: u16, bytes: u8) -> Option<&Location> {
        let at = self.first_behind(offset);
        let is_element = |location: &&Location| {
            location.offset <= offset && location.bytes == bytes && (offset - location.offset).is_multiple_of(bytes.into())
        };
        self.locations.get(at).filter(is_element)
    }

    /// Forgets the locations that overlap bytes; returns where those of these bytes belong.
    pub(super) fn clear(&mut self, from: u16, to: u16) -> usize {
        let first = self.first_behind(from);
        let overlapping = self.locations[first..].iter().take_while(|location| location.offset < to).count();
        let (before, after) = match &self.locations[first..first + overlapping] {
            [] => return first,
            all @ [one, ..] => (one.up_to(from), all[overlapping - 1].starting_at(to)),
        };
        let index = first + usize::from(before.is_some());
        self.locations.splice(first..first + overlapping, before.into_iter().chain(after));
        index
    }

    /// The locations of elements that a strong write writes, as they were where `keeps` says so of them, otherwise as `fresh` one.
    pub(super) fn written(&mut self, fresh: Location, keeps: impl Fn(&Location) -> bool) -> &mut [Location] {
        let (from, bytes, to) = (fresh.offset, fresh.bytes, fresh.end());
        let first = self.first_behind(from);
        let same = |location: &Location| (location.offset, location.bytes, location.elements) == (from, bytes, fresh.elements);
        if self.locations.get(first).is_some_and(same) {
            return &mut self.locations[first..=first];
        }
        if !self.locations[first..].iter().take_while(|location| location.offset < to).any(keeps) {
            let at = self.clear(from, to);
            self.locations.insert(at, fresh);
            return &mut self.locations[at..=at];
        }
        let elements = usize::from(fresh.elements);
        for offset in (from..to).step_by(bytes.into()) {
            let fresh = Location { offset, elements: 1, ..fresh.clone() };
            let element = self.location(offset, bytes).map_or(fresh, |known| Location { offset, elements: 1, ..known.clone() });
            let at = self.clear(offset, offset + u16::from(bytes));
            self.locations.insert(at, element);
        }
        let first = self.first_behind(from);
        &mut self.locations[first..first + elements]
    }
}

/// The sectors of a page that a record has bytes of, as bits.
fn sectors(record: &Record) -> u16 {
    let (first, last) = (record.from / SECTOR, record.to.saturating_sub(1).max(record.from) / SECTOR);
    (u16::MAX >> (15 - last)) & (u16::MAX << first)
}

/// The words of a page, of four bytes, that a record has bytes of, as bits.
fn words(record: &Record) -> u128 {
    let (first, last) = (record.from / 4, record.to.saturating_sub(1).max(record.from) / 4);
    (u128::MAX >> (127 - last)) & (u128::MAX << first)
}

/// The words of sectors.
fn words_of(sectors: u16) -> u128 {
    (0..16).filter(|sector| sectors >> sector & 1 == 1).map(|sector| 0xff << (8 * sector)).sum()
}

/// Removes from records what another one covers, where it is superfluous.
fn replace(records: &mut Vec<Record>, by: &Record, superfluous: impl Fn(&Record) -> bool) {
    let mut at = 0;
    while at < records.len() {
        if !records[at].overlaps(by) || !superfluous(&records[at]) {
            at += 1;
            continue;
        }
        let record = records[at];
        let (before, after) = (record.from < by.from, by.to < record.to);
        match (before, after) {
            (false, false) => {
                records.swap_remove(at);
                continue;
            }
            (true, _) => records[at].to = by.from,
            (false, true) => records[at].from = by.to,
        }
        if before && after {
            records.push(Record { from: by.to, ..record });
        }
        at += 1;
    }
}

/// Pages of all allocations.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    allocations: Vec<Pages>,
}

/// Pages of one allocation, those that were touched.
#[derive(Debug, Default)]
struct Pages {
    /// From the first to the last that was touched among the first [`NEAR`].
    near: Vec<Page>,
    /// Of those behind, which few allocations have, and touch few of.
    far: HashMap<usize, Page>,
}

/// Pages that an allocation has in a row, of which it is no waste to have those in between: 256 MiB.
const NEAR: usize = 1 << 19;

impl Shadow {
    /// The page of a byte of an allocation.
    #[inline(always)]
    pub(super) fn page(&mut self, allocation: usize, offset: u64) -> &mut Page {
        let page = (offset / PAGE) as usize;
        if self.allocations.len() <= allocation {
            self.allocations.resize_with(allocation + 1, Pages::default);
        }
        let Pages { near, far } = &mut self.allocations[allocation];
        if page >= NEAR {
            return far.entry(page).or_default();
        }
        if near.len() <= page {
            near.resize_with(page + 1, Page::default);
        }
        &mut near[page]
    }

    /// The page, where it was touched.
    pub(super) fn touched(&self, allocation: usize, offset: u64) -> Option<&Page> {
        let page = (offset / PAGE) as usize;
        let Pages { near, far } = self.allocations.get(allocation)?;
        if page < NEAR { near.get(page) } else { far.get(&page) }
    }

    /// Forgets an allocation.
    pub(super) fn forget(&mut self, allocation: usize) {
        if let Some(pages) = self.allocations.get_mut(allocation) {
            *pages = Pages::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::release::Who, *};

    /// If this fails, accesses beyond 4 GiB are not checked for races, or against others than those of their page.
    #[test]
    fn pages_are_where_they_are_however_far() {
        let mut shadow = Shadow::default();
        let places = [0, PAGE, NEAR as u64 * PAGE - 1, NEAR as u64 * PAGE, (1 << 32) + PAGE, 9 << 30];
        for (time, place) in (1..).zip(places) {
            assert!(shadow.touched(1, place).is_none_or(|page| page.reads.is_empty()), "{place}");
            shadow.page(1, place).reads.push(Record { time, ..record(0, 4, false, false) });
        }
        let times = places.map(|place| shadow.touched(1, place).unwrap().reads[0].time);
        assert_eq!(times, [1, 2, 3, 4, 5, 6]);
        shadow.forget(1);
        assert!(places.iter().all(|&place| shadow.touched(1, place).is_none()));
    }

    fn record(from: u16, to: u16, writes: bool, strong: bool) -> Record {
        let strong = strong.then_some(Level::System);
        let mode = Mode { writes, strong, via: Via::Own, vector: false, non_coherent: false, element: 4 };
        Record {
            from,
            to,
            origin: from as i16,
            width: 4,
            mode,
            thread: 0,
            lanes: 0,
            actor: 1,
            time: 1,
            point: 0,
            atomic: false,
            outdated: false,
        }
    }

    fn spans(records: &[Record]) -> Vec<(u16, u16)> {
        let mut spans: Vec<_> = records.iter().map(|record| (record.from, record.to)).collect();
        spans.sort_unstable();
        spans
    }

    #[test]
    fn a_write_takes_the_place_of_what_it_covers() {
        let mut page = Page::default();
        page.note(record(0, 128, false, false), |_| true, |_| false);
        page.note(record(100, 200, true, false), |_| true, |_| false);
        page.note(record(40, 60, true, false), |_| true, |_| false);
        assert_eq!(spans(&page.reads), [(0, 40), (60, 100)]);
        page.note(record(120, 140, true, false), |_| true, |_| false);
        assert_eq!(spans(&page.writes), [(40, 60), (100, 120), (120, 140), (140, 200)]);
        let split = page.writes.iter().find(|record| record.from == 140).unwrap();
        assert_eq!(split.threads_at(140).0.collect::<Vec<_>>(), [10]);
    }

    #[test]
    fn an_access_is_the_last_one_until_there_is_another() {
        let (poll, write) = (record(0, 4, false, true), record(0, 4, true, true));
        let mut page = Page::default();
        assert!(!page.is_last(&poll));
        page.note(poll, |_| false, |_| false);
        assert!(page.is_last(&poll) && !page.is_last(&Record { time: 2, ..poll }));
        page.note(write, |_| false, |_| false);
        assert!(!page.is_last(&poll));
    }

    #[test]
    fn what_is_unordered_or_races_with_more_stays() {
        let mut page = Page::default();
        page.note(record(0, 4, true, false), |_| true, |_| false);
        page.note(record(0, 4, true, true), |_| true, |_| false);
        assert_eq!(page.writes.len(), 2, "a strong write does not race with what a weak one races with");
        page.note(record(0, 4, false, false), |_| false, |_| false);
        page.note(record(0, 4, false, false), |_| false, |_| false);
        assert_eq!(page.reads.len(), 2);
        page.note(record(0, 4, true, false), |_| true, |_| false);
        assert_eq!((page.reads.len(), page.writes.len()), (0, 1));
    }

    #[test]
    fn a_vector_is_one_location_until_it_is_written_apart() {
        let who = |thread| Who { rank: 0, actor: 1, cluster: (0, 0), thread };
        let fresh = |offset, elements, state| Location {
            offset,
            bytes: 4,
            elements,
            state,
            last: (who(0), Level::System),
            components: Default::default(),
        };
        let states = |page: &Page| (0..8).map(|at| page.location(at * 4, 4).map_or(0, |location| location.state)).collect::<Vec<_>>();
        let mut page = Page::default();
        assert_eq!(page.written(fresh(0, 4, 1), |_| false).len(), 1);
        assert_eq!(page.written(fresh(16, 4, 2), |_| false).len(), 1);
        assert_eq!(page.written(fresh(0, 4, 3), |_| true)[0].state, 1, "a location of these very elements stays");
        page.written(fresh(4, 1, 4), |_| false);
        assert_eq!(states(&page), [1, 4, 1, 1, 2, 2, 2, 2]);
        page.written(fresh(8, 4, 5), |_| false);
        assert_eq!(states(&page), [1, 4, 5, 5, 5, 5, 2, 2]);
        let kept: Vec<u64> = page.written(fresh(0, 4, 6), |location| location.state == 4).iter().map(|location| location.state).collect();
        assert_eq!(kept, [1, 4, 5, 5], "what is kept of one is kept of each");
        page.clear(6, 14);
        assert_eq!(states(&page), [1, 0, 0, 0, 5, 5, 2, 2]);
        assert!(page.location(2, 4).is_none() && page.location(16, 8).is_none());
    }

    /// A cache takes sectors of 32 bytes whole: those that were read, and no others.
    #[test]
    fn sectors_that_were_read_become_stale() {
        let (reader, writer) = (record(0, 0, false, false), Record { actor: 2, ..record(0, 512, true, false) });
        for (from, to, expected) in
            [(0, 32, vec![0]), (1, 33, vec![0, 1]), (36, 40, vec![1]), (95, 129, vec![2, 3, 4]), (508, 512, vec![15])]
        {
            let mut page = Page::default();
            page.keep(&Record { from, to, ..reader }, 0, |_| false);
            page.outdate(&writer);
            let is_stale = |sector: &u16| page.is_stale(&Record { from: 32 * sector, to: 32 * sector + 32, ..reader }, 0);
            assert_eq!((0..16).filter(is_stale).collect::<Vec<_>>(), expected, "{from}..{to}");
        }
    }

    #[test]
    fn bytes_are_of_the_lane_that_accessed_them() {
        let record = Record { from: 0, to: 20, origin: -12, ..record(0, 20, false, false) };
        let (threads, end) = record.threads_at(1);
        assert_eq!((threads.collect::<Vec<_>>(), end), (vec![3], 4));
        let all = Record { width: 0, lanes: 0b1010, thread: 32, ..record };
        assert_eq!(all.threads_at(7).0.collect::<Vec<_>>(), [33, 35]);
        assert!(!all.same_threads(&all) && record.same_threads(&Record { origin: 0, thread: 3, ..record }));
    }
}
