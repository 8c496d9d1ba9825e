//! What goes on beside the threads that start it, and the mbarriers that tell of it.
//!
//! A flight is what one instruction starts and what is done later: a copy, a bulk copy, a store that an mbarrier counts. It is an actor of its own
//! that knows what its thread knew when it was started; through the asynchronous proxy only what a proxy fence is on the way of. That its sources have been
//! read, and that it is done, are two times of the actor: a thread that waits comes to know one or both.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use smallvec::SmallVec;

use super::{
    At, Effect, Races, Touch,
    actors::{Actor, lanes_of},
    check::{Accessor, Span, touch},
    clock::{Clock, OperationPos},
    finding::{Class, Found, Key, Missing, Side},
    release::{Level, ThreadEpoch},
    shadow::{Mode, Record, Via},
    synchronise::lanes_of_warp,
    views::{View, Views},
};
use crate::memory::{Address, GlobalAddr, Memory};
use passmuster_ptx::{Access, Scope, Semantics, Space};

/// What a flight does through which proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proxy {
    Generic,
    Async,
}

/// A flight: its actor, and the time of its reads; its writes are one later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlightId {
    actor: u32,
    time: u32,
    proxy: Proxy,
}

impl FlightId {
    pub(super) fn actor(self) -> u32 {
        self.actor
    }

    /// With what is known of it where somebody has waited for it: by every proxy what the asynchronous one did (PTX ISA 9.7.9.25.2), by the generic
    /// one what that did.
    fn added_to(self, views: &Views, place: OperationPos, reads: bool) -> Views {
        let add = |clock: &mut Clock| clock.add_block(self.actor, place, self.time + u32::from(!reads));
        match self.proxy {
            Proxy::Async => views.everywhere(add),
            Proxy::Generic => views.with(add),
        }
    }
}

/// A flight under way.
#[derive(Debug)]
struct Flight {
    /// What its thread knew and had done.
    views: Arc<Views>,
    block: u32,
    thread: u16,
    point: u32,
}

/// What an actor that told an mbarrier of something published: a block, with a scope, or flights.
#[derive(Clone, Debug)]
struct Told {
    /// `None`: flights, which everybody that waits there may see.
    by: Option<(u32, Level)>,
    views: Arc<Views>,
}

#[derive(Debug)]
struct Mbarrier {
    /// Who initialised it, and where.
    made: ThreadEpoch,
    made_at: Side,
    allocation: GlobalAddr,
    /// Whether that thread has fenced it for the cluster and for the asynchronous proxy since.
    fenced: bool,
    /// Of the phase that is not complete.
    pending: SmallVec<[Told; 2]>,
    /// Of all phases that are.
    complete: SmallVec<[Told; 2]>,
    /// A number that no other state has, of the last phase that is complete.
    state: u64,
}

/// Flights and mbarriers of a run.
#[derive(Debug, Default)]
pub(super) struct Asynchronous {
    flights: HashMap<u32, Flight>,
    /// Actors of flights that are done, with their last time, in that order: by the block and the thread that started them.
    done: HashMap<(u32, u16), VecDeque<(u32, u32)>>,
    mbarriers: HashMap<u64, Mbarrier>,
    /// Mbarriers that a thread of a block has initialised and not fenced.
    made: HashMap<(u32, u16), Vec<u64>>,
}

impl Asynchronous {
    /// What a flight knows.
    pub(super) fn views(&self, actor: u32) -> Option<&Arc<Views>> {
        self.flights.get(&actor).map(|flight| &flight.views)
    }

    /// A block has ended: no thread of it starts or fences anything any more.
    pub(super) fn end_block(&mut self, actor: u32) {
        self.done.retain(|&(of, _), _| of != actor);
        self.made.retain(|&(of, _), _| of != actor);
    }

    /// Lets a flight know more.
    pub(super) fn set_views(&mut self, actor: u32, views: Arc<Views>) {
        if let Some(flight) = self.flights.get_mut(&actor) {
            flight.views = views;
        }
    }

    /// Initialised mbarriers that a thread fences.
    pub(super) fn fence(&mut self, actor: u32, thread: usize) {
        for address in self.made.remove(&(actor, thread as u16)).unwrap_or_default() {
            if let Some(mbarrier) = self.mbarriers.get_mut(&address) {
                mbarrier.fenced = true;
            }
        }
    }
}

/// How many actors of flights that are done are looked at before there is one more: of those that were done first, which the thread is most likely to have
/// heard of, and of those that were done last, among which are those that it waits for itself.
const MOST_LOOKED_AT: usize = 8;

/// Adds what an actor told.
fn tell(all: &mut SmallVec<[Told; 2]>, by: Option<(u32, Level)>, views: &Arc<Views>) {
    match all.iter_mut().find(|told| told.by == by) {
        Some(told) => told.views = Views::join(&told.views, views),
        None => all.push(Told { by, views: views.clone() }),
    }
}

impl Races {
    /// A lane starts something that is done later.
    pub(crate) fn begin_flight(&mut self, at: At, lane: usize, proxy: Proxy) -> Option<FlightId> {
        let thread = at.warp * 32 + lane;
        let views = Arc::new(self.block(at.actor)?.published(thread));
        self.begin_beside(at, thread, proxy, views)
    }

    /// A warp starts a product, which comes after all that its lanes know.
    pub(crate) fn begin_product(&mut self, at: At) -> Option<FlightId> {
        let views = self.block(at.actor)?.published_by(&lanes_of_warp(at.warp, u32::MAX));
        self.begin_beside(at, at.warp * 32, Proxy::Async, views)
    }

    fn begin_beside(&mut self, at: At, thread: usize, proxy: Proxy, views: Arc<Views>) -> Option<FlightId> {
        if self.ended {
            return None;
        }
        let Actor { operation, block, cluster, rank, place, .. } = self.actors[at.actor.0 as usize];
        let done = self.asynchronous.done.entry((at.actor.0, thread as u16)).or_default();
        // Reuses an actor that the thread knows to be done: a thread that knows what this one will do knows that too.
        let strict = views.of(View::Strict);
        let first = 0..done.len().min(MOST_LOOKED_AT);
        let last = done.len().saturating_sub(MOST_LOOKED_AT).max(first.end)..done.len();
        let again = first.chain(last).find(|&index| strict.knows_block(done[index].0, place, done[index].1));
        let (actor, time) = match again.and_then(|index| done.remove(index)) {
            Some((actor, time)) => (actor, time + 1),
            None => {
                self.actors.push(Actor { operation, block, cluster, rank, place, beside: Some(at.actor.0) });
                self.blocks.push(None);
                (self.actors.len() as u32 - 1, 1)
            }
        };
        let point = self.point(at)?;
        let flight = Flight { views, block: at.actor.0, thread: thread as u16, point };
        self.asynchronous.flights.insert(actor, flight);
        if let Some(block) = self.block(at.actor) {
            block.time += 1;
        }
        Some(FlightId { actor, time, proxy })
    }

    /// A flight reads or writes; with a `reduction` it does both, as an atomic on elements of `reduction` bytes.
    pub(crate) fn fly(&mut self, flight: FlightId, at: GlobalAddr, bytes: u64, writes: bool, in_shared: bool, reduction: Option<u32>) {
        if self.ended || bytes == 0 || writes && self.ends_with.contains(&at.allocation) {
            self.ended |= writes && self.ends_with.contains(&at.allocation);
            return;
        }
        let via = match (flight.proxy, in_shared) {
            (Proxy::Generic, _) => Via::Own,
            (Proxy::Async, true) => Via::AsyncShared,
            (Proxy::Async, false) => Via::AsyncGlobal,
        };
        self.fly_by(flight, at, bytes, writes, via, reduction);
    }

    /// The same, with `via` given by the caller.
    pub(super) fn fly_by(&mut self, flight: FlightId, at: GlobalAddr, bytes: u64, writes: bool, via: Via, reduction: Option<u32>) {
        let FlightId { actor, time, .. } = flight;
        let Races { shadow, actors, conflicts, asynchronous, .. } = self;
        let Some(Flight { views, thread, point, .. }) = asynchronous.flights.get(&actor) else { return };
        let strong = reduction.map(|_| Level::Rank);
        let element = reduction.unwrap_or(1) as u8;
        let mode = Mode { writes, strong, via, vector: false, non_coherent: false, element };
        let span = Span { allocation: at.allocation, from: at.offset, to: at.offset + bytes, width: 0, thread: *thread, lanes: 1 };
        let like = Record::like(mode, (actor, time + u32::from(writes)), *point, reduction.is_some());
        let strict = views.of(View::Strict);
        let accessor = Accessor { strict, across: views.of(via.view()), start: strict, actor, met: 0, cache: None };
        touch(shadow, actors, conflicts, span, like, &accessor);
        if !self.conflicts.is_empty() {
            let start = self.operation_of(actor).start.of(View::Strict).clone();
            self.settle_conflicts(&start);
        }
    }

    /// A flight is done.
    pub(crate) fn land(&mut self, FlightId { actor, time, .. }: FlightId) {
        if let Some(Flight { block, thread, .. }) = self.asynchronous.flights.remove(&actor)
            && self.blocks[block as usize].is_some()
        {
            self.asynchronous.done.entry((block, thread)).or_default().push_back((actor, time + 1));
        }
    }

    /// A lane has waited for flights of its own: that they are done, or where it `reads`, that their sources have been read.
    pub(crate) fn learn_flights(&mut self, at: At, lane: usize, flights: &[FlightId], reads: bool) {
        let place = self.actors[at.actor.0 as usize].place;
        let Some(block) = self.block(at.actor) else { return };
        let thread = at.warp * 32 + lane;
        let known = block.known(thread);
        let is_new = |flight: &&FlightId| !known.of(View::Strict).knows_block(flight.actor, place, flight.time + u32::from(!reads));
        let new: Vec<&FlightId> = flights.iter().filter(is_new).collect();
        if !new.is_empty() {
            let learnt = new.into_iter().fold(Views::clone(known), |known, flight| flight.added_to(&known, place, reads));
            block.set_known(thread, Arc::new(learnt));
        }
    }

    /// All lanes of a warp have waited for products of it.
    pub(crate) fn learn_products(&mut self, at: At, flights: &[FlightId]) {
        let place = self.actors[at.actor.0 as usize].place;
        let Some(block) = self.block(at.actor) else { return };
        // Lanes that knew the same know the same then.
        let mut last: Option<[Arc<Views>; 2]> = None;
        for thread in (at.warp * 32..).take(32) {
            let before = block.known(thread).clone();
            let after = match &last {
                Some([known, learnt]) if Arc::ptr_eq(known, &before) => learnt.clone(),
                _ => Arc::new(flights.iter().fold(Views::clone(&before), |known, flight| flight.added_to(&known, place, false))),
            };
            block.set_known(thread, after.clone());
            last = Some([before, after]);
        }
    }

    /// Lanes access an mbarrier as an atomic would.
    fn touch_mbarrier(&mut self, memory: &Memory, at: At, lanes: u32, address: u64) {
        let access = Access { space: Space::Shared, semantics: Semantics::Relaxed, scope: Some(Scope::Cluster), hints: Box::default() };
        let effect = Effect::Atomic { wrote: lanes, returns: true };
        let touch = Touch { effect, access: &access, element: 8, bytes: 8, multicast: false };
        self.check(memory, at, lanes, &touch, &[address; 32], true);
    }

    /// A lane initialises an mbarrier.
    pub(crate) fn init_mbarrier(&mut self, memory: &Memory, at: At, lane: usize, address: u64) {
        let access = Access { space: Space::Shared, semantics: Semantics::Weak, scope: None, hints: Box::default() };
        let touch = Touch { effect: Effect::Store { agrees: false }, access: &access, element: 8, bytes: 8, multicast: false };
        self.check(memory, at, 1 << lane, &touch, &[address; 32], true);
        let thread = (at.warp * 32 + lane) as u16;
        let rank = self.operation_of(at.actor.0).rank;
        let (Some(point), Ok(allocation)) = (self.point(at), memory.resolve(Address(address), 8, rank)) else { return };
        let place = self.actors[at.actor.0 as usize].place;
        let Some(block) = self.block(at.actor) else { return };
        let made = ThreadEpoch { actor: at.actor.0, place, thread, time: block.time };
        let mode = Mode { writes: true, strong: None, via: Via::Own, vector: false, non_coherent: false, element: 8 };
        let made_at = Side { actor: at.actor.0, thread, point, mode };
        let (pending, complete) = (SmallVec::new(), SmallVec::new());
        let mbarrier = Mbarrier { made, made_at, allocation, fenced: false, pending, complete, state: 0 };
        self.asynchronous.mbarriers.insert(address, mbarrier);
        self.asynchronous.made.entry((at.actor.0, thread)).or_default().push(address);
    }

    /// A lane makes an mbarrier's bytes ordinary ones, or the block has ended that they are of.
    pub(crate) fn forget_mbarrier(&mut self, address: u64) {
        self.asynchronous.mbarriers.remove(&address);
    }

    /// Lanes arrive at an mbarrier, or expect bytes there; with a scope, they release.
    pub(crate) fn tell_mbarrier(&mut self, memory: &Memory, at: At, lanes: u32, address: u64, releases: Option<Scope>) {
        if self.ended {
            return;
        }
        self.touch_mbarrier(memory, at, lanes, address);
        let Some(scope) = releases.map(Level::of) else { return };
        let Races { blocks, asynchronous, .. } = self;
        let Some(block) = blocks[at.actor.0 as usize].as_deref_mut() else { return };
        let published = block.published_by(&lanes_of_warp(at.warp, lanes));
        block.time += 1;
        if let Some(mbarrier) = asynchronous.mbarriers.get_mut(&address) {
            tell(&mut mbarrier.pending, Some((at.actor.0, scope)), &published);
        }
    }

    /// A flight that an mbarrier counts has written all that it writes.
    pub(crate) fn tell_of_flight(&mut self, flight: FlightId, address: u64) {
        let place = self.actors[flight.actor as usize].place;
        let views = Arc::new(flight.added_to(&Views::default(), place, false));
        if let Some(mbarrier) = self.asynchronous.mbarriers.get_mut(&address) {
            tell(&mut mbarrier.pending, None, &views);
        }
    }

    /// The phase of an mbarrier is complete.
    pub(crate) fn complete_mbarrier(&mut self, address: u64) {
        self.states += 1;
        if let Some(mbarrier) = self.asynchronous.mbarriers.get_mut(&address) {
            mbarrier.state = self.states;
            for told in std::mem::take(&mut mbarrier.pending) {
                tell(&mut mbarrier.complete, told.by, &told.views);
            }
        }
    }

    /// Lanes look at an mbarrier; those of `passed` have seen that the phase is complete, and with a scope they acquire.
    pub(crate) fn look_at_mbarrier(&mut self, memory: &Memory, at: At, lanes: u32, address: u64, passed: u32, acquires: Option<Scope>) {
        if self.ended {
            return;
        }
        self.touch_mbarrier(memory, at, lanes, address);
        let Some(scope) = acquires.map(Level::of) else { return };
        let Races { blocks, asynchronous, .. } = self;
        let (Some(block), Some(mbarrier)) = (blocks[at.actor.0 as usize].as_deref_mut(), asynchronous.mbarriers.get(&address)) else {
            return;
        };
        let reaches = |told: &&Told| match told.by {
            None => true,
            Some((by, released)) => released.min(scope) >= if by == at.actor.0 { Level::Block } else { Level::Cluster },
        };
        for lane in lanes_of(passed) {
            let learn = |known: &Arc<Views>| {
                mbarrier.complete.iter().filter(reaches).fold(known.clone(), |known, told| Views::join(&known, &told.views))
            };
            block.learn(at.warp * 32 + lane, (mbarrier.state, scope), learn);
        }
    }

    /// A lane starts a flight that an mbarrier is to count: the asynchronous proxy must know that the mbarrier is there.
    pub(crate) fn hand_over_mbarrier(&mut self, memory: &Memory, at: At, lane: usize, address: u64) {
        if self.ended {
            return;
        }
        self.touch_mbarrier(memory, at, 1 << lane, address);
        let thread = at.warp * 32 + lane;
        let Some(point) = self.point(at) else { return };
        let Races { blocks, asynchronous, operations, actors, findings, .. } = self;
        let (Some(block), Some(mbarrier)) = (blocks[at.actor.0 as usize].as_deref(), asynchronous.mbarriers.get(&address)) else { return };
        let ThreadEpoch { actor, place, thread: maker, time } = mbarrier.made;
        if mbarrier.fenced || block.known(thread).of(View::AsyncShared).knows(actor, place, maker, time) {
            return;
        }
        let kind = operations[actors[at.actor.0 as usize].operation as usize].kind;
        let points = [mbarrier.made_at.point, point];
        let key = Key { kinds: [kind; 2], points, class: Class::Async, missing: Missing::MbarrierFence, assumption: None };
        let later = Side { actor: at.actor.0, thread: thread as u16, point, mode: Mode { via: Via::AsyncShared, ..mbarrier.made_at.mode } };
        let GlobalAddr { allocation, offset } = mbarrier.allocation;
        findings.add(Found { key, sides: [mbarrier.made_at, later], allocation, from: offset, to: offset + 8, times: 1 });
    }

    /// Whether a flight was started by this thread.
    pub(super) fn was_started_by(&self, flight: u32, thread: (u32, u16)) -> bool {
        self.asynchronous.flights.get(&flight).is_some_and(|flight| (flight.block, flight.thread) == thread)
    }

    /// The number of the instruction that is executed.
    fn point(&self, at: At) -> Option<u32> {
        let super::actors::Kind::Launch(code) = self.operation_of(at.actor.0).kind else { return None };
        Some(self.codes[code as usize].functions[at.function] + at.pc as u32)
    }
}
