//! Accesses against those before them: is each ordered after what it conflicts with (PTX ISA 8.7.1)?

use std::sync::Arc;

use super::{
    Profile, Races,
    actors::Actor,
    clock::Clock,
    finding::{Assumption, Class, Found, Key, Missing, Side},
    release::{Level, ObservedRelease, ThreadEpoch},
    shadow::{PAGE, Record, Shadow, Via},
    views::{View, Views},
};
use crate::memory::AllocationId;

/// Bytes of one allocation that lanes access with one instruction, who know the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) allocation: AllocationId,
    pub(super) from: u64,
    pub(super) to: u64,
    /// Bytes of each lane; 0 where all of `lanes` access all of it.
    pub(super) width: u8,
    /// The first lane's thread.
    pub(super) thread: u16,
    pub(super) lanes: u32,
}

/// What is known where an access is made, in the views that decide whether it conflicts. All its threads share them.
pub(super) struct Accessor<'a> {
    pub(super) strict: &'a Arc<Clock>,
    /// Of accesses by other ways than this.
    pub(super) across: &'a Arc<Clock>,
    /// What was known where the operation started.
    pub(super) start: &'a Arc<Clock>,
    /// Who accesses, and up to when it knows all that it did itself.
    pub(super) actor: u32,
    pub(super) met: u32,
    /// Of a block, how often it has emptied its SM's cache.
    pub(super) cache: Option<u32>,
}

impl Accessor<'_> {
    /// Whether all threads of an earlier access are known up to it.
    #[inline(always)]
    fn knows(&self, earlier: &Record, actors: &[Actor]) -> bool {
        (earlier.actor == self.actor && earlier.time <= self.met)
            || self.strict.knows_block(earlier.actor, actors[earlier.actor as usize].place, earlier.time)
    }
}

/// Two accesses that are not seen at once to be fine, and where: the allocation, and where the page starts in it.
#[derive(Debug)]
pub(super) struct Conflict {
    allocation: AllocationId,
    page_start: u64,
    earlier: Record,
    later: Record,
    /// Strong reads before the later one.
    observers: Arc<[Record]>,
}

/// What one thread knows, in all views.
struct Knowledge<'a> {
    views: &'a Views,
    sights: &'a [ObservedRelease],
    /// The thread's actor, and up to when it knows all that this did.
    actor: u32,
    met: u32,
}

impl Knowledge<'_> {
    fn has(&self, view: View, deeds: ThreadEpoch) -> bool {
        let met = !view.is_across() && deeds.actor == self.actor && deeds.time <= self.met;
        met || self.views.of(view).has(deeds) || ObservedRelease::any_tells(self.sights, view, deeds)
    }
}

/// What is wrong with a pair of accesses.
type Wrong = (Class, Missing, Option<Assumption>);

/// Checks an access of a span, and notes it; whether any of that is new. `like` has all that does not follow from the span.
pub(super) fn touch(
    shadow: &mut Shadow,
    actors: &[Actor],
    conflicts: &mut Vec<Conflict>,
    span: Span,
    like: Record,
    accessor: &Accessor<'_>,
) -> bool {
    let mut is_new = false;
    let mut page_start = span.from / PAGE * PAGE;
    while page_start < span.to {
        let (from, to) = (span.from.max(page_start) - page_start, span.to.min(page_start + PAGE) - page_start);
        // Only the lanes of a warp reach back before the page, by less than 512 bytes.
        let origin = if span.width == 0 { 0 } else { (span.from as i64 - page_start as i64) as i16 };
        let (width, thread, lanes) = (span.width, span.thread, span.lanes);
        let record = Record { from: from as u16, to: to as u16, origin, width, thread, lanes, ..like };
        let page = shadow.page(span.allocation.index(), page_start);
        if !page.is_last(&record) {
            is_new = true;
            let reads: &[Record] = if record.mode.writes { &page.reads } else { &[] };
            let mut observers: Option<Arc<[Record]>> = None;
            // Of a page that lanes take apart there are hundreds, of which few overlap.
            for suspects in [&page.writes[..], reads] {
                for earlier in suspects.iter().filter(|earlier| record.overlaps(earlier)) {
                    if !is_fine(&record, earlier, actors, accessor) {
                        let observers = observers.get_or_insert_with(|| page.observers(&record).into()).clone();
                        conflicts.push(Conflict { allocation: span.allocation, page_start, earlier: *earlier, later: record, observers });
                    }
                }
            }
            let known = |earlier: &Record| record.same_threads(earlier) || record.same_lanes(earlier) || accessor.knows(earlier, actors);
            page.note(record, known, |write| same_place(write, &record) && mutually_strong(write, &record, apart(write, &record, actors)));
            if record.mode.writes {
                page.outdate(&record);
                if record.mode.strong.is_none() {
                    // What a weak write left there, nobody released.
                    page.clear(record.from, record.to);
                }
            } else if let (Some(since), None) = (accessor.cache, record.mode.strong) {
                // No more than the last two operations of a stream run at once.
                let place = actors[record.actor as usize].place;
                let is_over = |other: u32| {
                    let other = actors[other as usize].place;
                    other.stream == place.stream && other.index + 1 < place.index
                };
                page.keep(&record, since, is_over);
            }
        }
        page_start += PAGE;
    }
    is_new
}

impl Races {
    /// Looks closer at what [`touch`] has found to conflict, which this empties. `start` is what was known where the operation started.
    #[cold]
    pub(super) fn settle_conflicts(&mut self, start: &Arc<Clock>) {
        let mut conflicts = std::mem::take(&mut self.conflicts);
        conflicts.drain(..).for_each(|conflict| self.pair(&conflict, start));
        self.conflicts = conflicts;
    }

    /// Looks at each pair of threads in which two records overlap.
    fn pair(&mut self, conflict: &Conflict, start: &Arc<Clock>) {
        let Conflict { allocation, page_start, ref earlier, ref later, ref observers } = *conflict;
        let Record { actor, time, .. } = *earlier;
        let page = self.shadow.touched(allocation.index(), page_start);
        let kept = !later.mode.writes && later.mode.strong.is_none() && later.mode.via == Via::Own;
        let cache = self.blocks[later.actor as usize].as_deref().filter(|_| kept).map(|block| block.emptied);
        let stale = page.zip(cache).is_some_and(|(page, since)| page.is_stale(later, since));
        let uniform = actor != later.actor
            && observers.is_empty()
            && start.agrees_on(actor, time)
            && self.shared(later).is_some_and(|views| views.agree_on(actor, time));
        let mut seen: Vec<Wrong> = Vec::new();
        let end = earlier.to.min(later.to);
        let mut byte = earlier.from.max(later.from);
        while byte < end {
            let (before, before_end) = earlier.threads_at(byte);
            let (after, after_end) = later.threads_at(byte);
            let next = before_end.min(after_end).min(end);
            for (first, second) in before.flat_map(|first| after.clone().map(move |second| (first, second))) {
                let Some(wrong) = self.judge((earlier, first), (later, second), stale, next - byte, start) else { continue };
                if seen.contains(&wrong) || observers.iter().any(|read| self.observed(earlier, read, (byte, next), later, second)) {
                    continue;
                }
                seen.push(wrong);
                let side = |record: &Record, thread| Side { actor: record.actor, thread, point: record.point, mode: record.mode };
                let (class, missing, assumption) = wrong;
                let kinds = [earlier, later].map(|record| self.operation_of(record.actor).kind);
                let key = Key { kinds, points: [earlier.point, later.point], class, missing, assumption };
                let (from, to) = (page_start + u64::from(byte), page_start + u64::from(next));
                let sides = [side(earlier, first), side(later, second)];
                self.findings.add(Found { key, sides, allocation, from, to, times: 1 });
                if class == Class::Tearing {
                    // That follows from how both access, which is the same for all lanes, and so does what waives it.
                    return;
                }
            }
            if uniform {
                break;
            }
            byte = next;
        }
    }

    /// What all threads of an access know, if none has anything of its own.
    fn shared(&self, record: &Record) -> Option<&Views> {
        let Some(block) = self.blocks[record.actor as usize].as_deref() else { return Some(self.of_no_block(record.actor)) };
        let warp = usize::from(record.thread) / 32;
        (block.own[warp] == 0 && block.sighted[warp] == 0).then_some(&block.views)
    }

    /// What an actor knows that is no block: a flight, or an operation of a stream.
    fn of_no_block(&self, actor: u32) -> &Arc<Views> {
        self.asynchronous.views(actor).unwrap_or_else(|| &self.operation_of(actor).start)
    }

    fn knowledge(&self, actor: u32, thread: u16) -> Knowledge<'_> {
        let thread = usize::from(thread);
        match self.blocks[actor as usize].as_deref() {
            Some(block) => {
                let sights = block.threads[thread].as_ref().map_or(&[][..], |of_thread| &of_thread.sights);
                Knowledge { views: block.known(thread), sights, actor, met: block.met }
            }
            None => Knowledge { views: self.of_no_block(actor), sights: &[], actor, met: 0 },
        }
    }

    /// Whether a strong read of some bytes orders the write that it saw before a thread's access: the write precedes it in observation order, and it
    /// precedes the access in base causality order (PTX ISA 8.9.5). Nothing that came before the write is ordered by that.
    fn observed(&self, write: &Record, read: &Record, (from, to): (u16, u16), later: &Record, thread: u16) -> bool {
        let sees = write.mode.writes
            && !write.outdated
            && same_place(write, read)
            && mutually_strong(write, read, apart(write, read, &self.actors));
        if !sees || from < read.from || read.to < to {
            return false;
        }
        let (mut readers, end) = read.threads_at(from);
        let (place, known) = (self.actors[read.actor as usize].place, self.knowledge(later.actor, thread));
        let precedes = |reader: u16| {
            (read.actor, reader) == (later.actor, thread)
                || known.has(View::Strict, ThreadEpoch { actor: read.actor, place, thread: reader, time: read.time })
        };
        to <= end && later.mode.via == read.mode.via && readers.any(precedes)
    }

    /// What is wrong with one thread's access after another's, if anything is. `stale` says that the later one may find old bytes in its SM's cache.
    fn judge(
        &self,
        (earlier, first): (&Record, u16),
        (later, second): (&Record, u16),
        stale: bool,
        bytes: u16,
        start: &Clock,
    ) -> Option<Wrong> {
        let place = self.actors[earlier.actor as usize].place;
        let deeds = ThreadEpoch { actor: earlier.actor, place, thread: first, time: earlier.time };
        let known = self.knowledge(later.actor, second);
        let same_thread = earlier.actor == later.actor && first == second;
        let ordered = same_thread || known.has(View::Strict, deeds);
        let apart = apart(earlier, later, &self.actors);
        let strong = mutually_strong(earlier, later, apart);
        let waived = |assumption| (self.profile == Profile::Hopper).then_some(assumption);
        if later.mode.non_coherent && !same_thread && !start.knows(deeds.actor, place, first, earlier.time) {
            return Some((Class::NonCoherent, Missing::KernelBoundary, None));
        }
        let (before, after) = (earlier.mode.via, later.mode.via);
        if before != after && after.is_async() && ordered {
            let assumption = if earlier.mode.writes { None } else { waived(Assumption::Returned) };
            let (class, missing) = match after {
                Via::TensorMap => (Class::TensorMap, Missing::TensorMapFences),
                _ => (Class::Async, Missing::AsyncFence),
            };
            return (!known.has(after.view(), deeds)).then_some((class, missing, assumption));
        }
        if before != after && !before.is_async() && !after.is_async() && (strong || ordered) {
            let fenced = strong || known.has(View::Alias, deeds);
            return (!fenced).then(|| (Class::Alias, Missing::AliasFence, waived(Assumption::Alias)));
        }
        if ordered {
            return None;
        }
        let missing = || self.missing((earlier, first), later, |view| known.has(view, deeds));
        if strong && earlier.mode.element == later.mode.element && before == after {
            let torn = (earlier.mode.vector || later.mode.vector) && bytes > u16::from(later.mode.element);
            // If vectors are granted to be whole, polling data gets here with every look: to ask what else would have ordered it takes too long.
            let waived = waived(Assumption::Vector);
            return torn.then(|| (Class::Tearing, if waived.is_some() { Missing::Order } else { missing() }, waived));
        }
        let class = if strong { Class::MixedSize } else { Class::Race };
        let after_read = later.mode.writes && !earlier.mode.writes;
        let assumption = match () {
            () if stale => None,
            () if known.has(View::Boundary, deeds) => waived(Assumption::Boundary),
            () if known.has(View::Dependency, deeds) => waived(Assumption::Dependency),
            () if after_read && known.has(View::Retired, deeds) => waived(Assumption::Retired),
            () => None,
        };
        Some((class, missing(), assumption))
    }

    fn missing(&self, (earlier, thread): (&Record, u16), later: &Record, knows: impl Fn(View) -> bool) -> Missing {
        if self.actors[earlier.actor as usize].beside.is_some() || self.was_started_by(later.actor, (earlier.actor, thread)) {
            return Missing::Completion;
        }
        let granted = [
            (View::AnyScope, Missing::Scope),
            (View::EveryRelease, Missing::Release),
            (View::EveryAcquire, Missing::Acquire),
            (View::Everything, Missing::ReleaseAndAcquire),
        ];
        let both_strong = earlier.mode.strong.is_some() && later.mode.strong.is_some() && earlier.mode.element == later.mode.element;
        if both_strong && !mutually_strong(earlier, later, apart(earlier, later, &self.actors)) {
            return Missing::Scope;
        }
        if let Some((_, missing)) = granted.into_iter().find(|(view, _)| knows(*view)) {
            return missing;
        }
        let [first, second] = [earlier, later].map(|record| &self.actors[record.actor as usize]);
        match () {
            () if earlier.actor == second.beside.unwrap_or(later.actor) => Missing::Barrier,
            () if first.rank != second.rank => Missing::BetweenRanks,
            () if first.operation != second.operation && self.operations[second.operation as usize].prerequisite.is_some() => {
                Missing::Prerequisite
            }
            () if first.place.stream != second.place.stream => Missing::BetweenStreams,
            () => Missing::BetweenBlocks,
        }
    }
}

/// How far the scopes of two accesses must reach.
fn apart(earlier: &Record, later: &Record, actors: &[Actor]) -> Level {
    let who = |record: &Record| actors[record.actor as usize].who(record.actor, 0);
    who(earlier).apart(who(later))
}

/// Whether both are of elements of one size, by one proxy.
fn same_place(earlier: &Record, later: &Record) -> bool {
    (earlier.mode.element, earlier.mode.via) == (later.mode.element, later.mode.via)
}

/// Whether both are strong and their scopes include each other.
fn mutually_strong(earlier: &Record, later: &Record, apart: Level) -> bool {
    earlier.mode.strong.zip(later.mode.strong).is_some_and(|(first, second)| first.min(second) >= apart)
}

/// Whether two accesses are seen at once to be in order, or to need none.
#[inline(always)]
fn is_fine(later: &Record, earlier: &Record, actors: &[Actor], accessor: &Accessor<'_>) -> bool {
    let (before, after) = (&earlier.mode, &later.mode);
    let place = actors[earlier.actor as usize].place;
    if before.via != after.via {
        // What is done asynchronously is known to be done by every way.
        let known = if before.via.is_async() { accessor.strict } else { accessor.across };
        return known.knows_block(earlier.actor, place, earlier.time);
    }
    if later.same_threads(earlier) {
        return true;
    }
    if before.strong.is_some()
        && before.element == after.element
        && !before.vector
        && !after.vector
        && mutually_strong(earlier, later, apart(earlier, later, actors))
    {
        return true;
    }
    if after.non_coherent { accessor.start.knows_block(earlier.actor, place, earlier.time) } else { accessor.knows(earlier, actors) }
}
