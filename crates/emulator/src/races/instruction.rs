//! Memory instructions of warps: which bytes which lanes access, and what that releases and acquires.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    ActorId, Profile, Races,
    actors::{Kind, Look, lanes_of},
    check::{Accessor, Span, touch},
    clock::Clock,
    finding::{Assumption, Class, Found, Key, Missing, Side},
    release::{Carried, Component, Level, Reader, Who, component, of_fence},
    shadow::{Mode, PAGE, Record, Via},
    views::{View, Views},
};
use crate::memory::{Address, Memory};
use passmuster_ptx::{Access, Semantics};

/// Lanes whose clocks are the same ones, strict and by the alias assumption.
type Alike<'a> = (u32, [&'a Arc<Clock>; 2]);

/// Who executes an instruction, and which.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub actor: ActorId,
    pub warp: usize,
    pub function: usize,
    pub pc: usize,
}

/// What a memory instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Load,
    /// `agrees`: some lanes store to one place, and those that do store the same bytes.
    Store {
        agrees: bool,
    },
    /// Lanes of `wrote` read and write, the others only read; without `returns`, nobody sees what was read.
    Atomic {
        wrote: u32,
        returns: bool,
    },
}

/// A memory instruction's access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch<'a> {
    pub effect: Effect,
    pub access: &'a Access,
    /// Bytes of an element, and of each lane's access.
    pub element: u32,
    pub bytes: u32,
    /// The addresses are of places that a multicast address stands for.
    pub multicast: bool,
}

/// What those carry who know this, in a launch.
struct CarriedBy {
    known: Arc<Views>,
    barrier: Arc<Clock>,
    carried: Arc<Carried>,
}

impl Races {
    /// Lanes access memory, each at its address, which the executing rank may.
    pub(crate) fn access(&mut self, memory: &Memory, at: At, lanes: u32, touch: &Touch<'_>, addresses: &[u64; 32]) {
        if self.ended || lanes == 0 {
            return;
        }
        let writers = match touch.effect {
            Effect::Load => 0,
            Effect::Store { .. } => lanes,
            Effect::Atomic { wrote, .. } => wrote & lanes,
        };
        let mut is_new = false;
        for (lanes, writes) in [(lanes & !writers, false), (writers, true)] {
            if lanes != 0 {
                is_new |= self.check(memory, at, lanes, touch, addresses, writes);
            }
        }
        // Where nobody has been since the same read, there is nothing more to take.
        if let (Some(scope), false, true) = (strong(touch), self.ended, is_new) {
            let places = self.places(memory, at, lanes, addresses, touch.bytes);
            if touch.effect == Effect::Load || matches!(touch.effect, Effect::Atomic { returns: true, .. }) {
                self.read(at, lanes, touch, scope, &places);
            }
            if writers != 0 {
                let mut carried = None;
                lanes_of(writers).for_each(|lane| self.write(at, lane, touch, scope, places[lane], &mut carried));
                if let Some(block) = self.block(at.actor) {
                    block.time += 1;
                }
            }
        }
    }

    /// Checks accesses of lanes, in stretches as long as they come in order; whether any of that is new.
    pub(super) fn check(&mut self, memory: &Memory, at: At, lanes: u32, access: &Touch<'_>, addresses: &[u64; 32], writes: bool) -> bool {
        let strong = strong(access);
        let Races { profile, shadow, actors, blocks, operations, codes, findings, conflicts, ends_with, ended, .. } = self;
        let Some(block) = blocks[at.actor.0 as usize].as_deref() else { return false };
        let operation = &operations[actors[at.actor.0 as usize].operation as usize];
        let Kind::Launch(code) = operation.kind else { return false };
        let mut is_new = writes;
        let (rank, start) = (operation.rank, operation.start.of(View::Strict));
        let non_coherent = access.access.semantics == Semantics::NonCoherent;
        let vector = access.bytes > access.element;
        let via = if access.multicast { Via::Multicast } else { Via::Own };
        let mode = Mode { writes, strong, via, vector, non_coherent, element: access.element as u8 };
        let point = codes[code as usize].functions[at.function] + at.pc as u32;
        let atomic = writes && matches!(access.effect, Effect::Atomic { .. });
        let like = Record::like(mode, (at.actor.0, block.time), point, atomic);
        // Whether there is a conflict follows from these two; what else lanes know is asked where there is one.
        let own = block.own[at.warp] & lanes != 0;
        let mut known: SmallVec<[Alike<'_>; 4]> = SmallVec::new();
        if own {
            for lane in lanes_of(lanes) {
                let views = block.known(at.warp * 32 + lane);
                let (strict, alias) = (views.of(View::Strict), views.of(View::Alias));
                let alike = |(_, known): &&mut Alike<'_>| Arc::ptr_eq(known[0], strict) && Arc::ptr_eq(known[1], alias);
                match known.iter_mut().find(alike) {
                    Some((all, _)) => *all |= 1 << lane,
                    None => known.push((1 << lane, [strict, alias])),
                }
            }
        } else {
            known.push((lanes, [block.views.of(View::Strict), block.views.of(View::Alias)]));
        }
        let bytes = u64::from(access.bytes);
        let waived = strong.is_none() && access.effect == (Effect::Store { agrees: true }) && *profile == Profile::Hopper;
        let mut rest: u32 = lanes;
        while rest != 0 {
            let first = rest.trailing_zeros() as usize;
            let Some(&(alike, [strict, alias])) = known.iter().find(|(alike, _)| alike >> first & 1 == 1) else { break };
            let same = |lane: usize| (rest & alike) >> lane & 1 == 1;
            // Weak writes of two lanes to one place are a race of their own unless that is waived, and vectors may be torn.
            let together = |lane: &usize| same(*lane) && addresses[*lane] == addresses[first];
            let all = if writes && (strong.is_none() || vector) && !waived {
                0
            } else {
                (first..32).filter(together).fold(0_u32, |all, lane| all | 1 << lane)
            };
            let (mut width, mut thread, mut lanes) = (0, (at.warp * 32 + first) as u16, 1);
            let length = if all.count_ones() > 1 {
                (thread, lanes) = ((at.warp * 32) as u16, all);
                rest &= !all;
                bytes
            } else {
                let follows = |lane: usize| same(lane) && addresses[lane] == addresses[first].wrapping_add((lane - first) as u64 * bytes);
                let end = if waived { first + 1 } else { (first + 1..32).find(|&lane| !follows(lane)).unwrap_or(32) };
                width = access.bytes as u8;
                rest &= !((u32::MAX >> (32 - (end - first))) << first);
                (end - first) as u64 * bytes
            };
            // Memory has let all of it be accessed just now.
            let Ok(place) = memory.resolve(Address(addresses[first]), length, rank) else { continue };
            let span = Span { allocation: place.allocation, from: place.offset, to: place.offset + length, width, thread, lanes };
            if writes && ends_with.contains(&place.allocation) {
                *ended = true;
                break;
            }
            if waived && width == 0 {
                let second = (all & (all - 1)).trailing_zeros() as u16;
                let side = |thread| Side { actor: at.actor.0, thread, point, mode };
                let (missing, assumption) = (Missing::Barrier, Some(Assumption::Lanes));
                let key = Key { kinds: [operation.kind; 2], points: [point; 2], class: Class::Race, missing, assumption };
                let sides = [side((at.warp * 32 + first) as u16), side(thread + second)];
                findings.add(Found { key, sides, allocation: span.allocation, from: span.from, to: span.to, times: 1 });
            }
            let accessor = Accessor { strict, across: alias, start, actor: at.actor.0, met: block.met, cache: Some(block.emptied) };
            is_new |= touch(shadow, actors, conflicts, span, like, &accessor);
        }
        drop(known);
        if !conflicts.is_empty() {
            let start = start.clone();
            self.settle_conflicts(&start);
        }
        is_new
    }

    /// Allocation and offset of each lane's access.
    fn places(&self, memory: &Memory, at: At, lanes: u32, addresses: &[u64; 32], bytes: u32) -> [Option<(usize, u64)>; 32] {
        let rank = self.operation_of(at.actor.0).rank;
        std::array::from_fn(|lane| {
            let place = (lanes >> lane & 1 == 1).then(|| memory.resolve(Address(addresses[lane]), bytes.into(), rank).ok())??;
            Some((place.allocation.index(), place.offset))
        })
    }

    fn who(&self, at: At, lane: usize) -> Who {
        self.actors[at.actor.0 as usize].who(at.actor.0, (at.warp * 32 + lane) as u16)
    }

    /// Strong reads of lanes take what is there to be taken.
    fn read(&mut self, at: At, lanes: u32, touch: &Touch<'_>, scope: Level, places: &[Option<(usize, u64)>; 32]) {
        let mut rest = lanes;
        while rest != 0 {
            let first = rest.trailing_zeros() as usize;
            let end = (first + 1..32).find(|&lane| rest >> lane & 1 == 1 && places[lane] != places[first]).unwrap_or(32);
            let same = rest & u32::MAX >> (32 - end);
            rest &= !same;
            if let Some((allocation, offset)) = places[first] {
                self.read_at(at, same, touch, scope, allocation, offset);
            }
        }
    }

    /// Those of lanes that read the same place.
    fn read_at(&mut self, at: At, lanes: u32, touch: &Touch<'_>, scope: Level, allocation: usize, offset: u64) {
        let first = self.who(at, 0);
        let acquires = matches!(touch.access.semantics, Semantics::Acquire | Semantics::AcquireRelease);
        let Races { shadow, blocks, .. } = self;
        let Some(block) = blocks[at.actor.0 as usize].as_deref_mut() else { return };
        if acquires {
            block.empty_cache(scope);
        }
        let end = offset + u64::from(touch.bytes);
        let mut element = offset;
        while element < end {
            let page = shadow.touched(allocation, element);
            let Some(location) = page.and_then(|page| page.location((element % PAGE) as u16, touch.element as u8)) else {
                element += u64::from(touch.element);
                continue;
            };
            element = element / PAGE * PAGE + u64::from(location.end());
            for lane in lanes_of(lanes) {
                let who = Who { thread: first.thread + lane as u16, ..first };
                let (thread, reader) = (usize::from(who.thread), Reader { who, scope, acquires });
                if acquires {
                    block.acquire(thread, location, reader);
                } else if block.thread(thread).seen.note(Look { state: location.state, scope, acquired: false }) {
                    location.sights(reader).for_each(|sight| block.see(thread, sight));
                }
            }
        }
    }

    /// A lane's strong write leaves what it publishes. Lanes that know the same carry the same.
    fn write(
        &mut self,
        at: At,
        lane: usize,
        touch: &Touch<'_>,
        scope: Level,
        place: Option<(usize, u64)>,
        carried: &mut Option<CarriedBy>,
    ) {
        let Some((allocation, offset)) = place else { return };
        let who = self.who(at, lane);
        let releases = matches!(touch.access.semantics, Semantics::Release | Semantics::AcquireRelease);
        let operation = self.operation_of(at.actor.0);
        let [boundary, dependency] = [View::Boundary, View::Dependency].map(|view| operation.start.of(view).clone());
        let waited_for = operation.prerequisite.zip(operation.waited_for.clone());
        let waited_for = waited_for.map(|(launch, clock)| (self.operations[launch.0 as usize].place, clock));
        let thread = who.thread as usize;
        let Some(block) = self.block(at.actor) else { return };
        if releases {
            // What others hand on by relaxed writes is not what this write would hand on, had it released: a chain of flags, each relaxed,
            // has more missing than one release, and to carry it from thread to thread costs more than all else in kernels that poll data.
            block.settle(thread);
        }
        let block = &*block;
        let own = block.own_of(who.thread);
        let of_thread = block.threads[thread].as_deref();
        let barrier = of_thread.and_then(|thread| thread.barrier.as_ref()).unwrap_or(&block.views).of(View::Retired);
        let known = block.known(thread);
        if !carried.as_ref().is_some_and(|by| Arc::ptr_eq(&by.known, known) && Arc::ptr_eq(&by.barrier, barrier)) {
            // Who knows that the prerequisite is done has waited for it, or has met somebody who has.
            let waited_for = waited_for.filter(|(place, _)| known.of(View::Strict).knows_all_of(*place)).map(|(_, clock)| clock);
            let assumed = (scope == Level::System).then(|| [boundary, waited_for.unwrap_or(dependency), barrier.clone()]);
            let carried_by = Arc::new(Carried::new(releases, known, assumed));
            *carried = Some(CarriedBy { known: known.clone(), barrier: barrier.clone(), carried: carried_by });
        }
        let Some(CarriedBy { carried, .. }) = carried else { return };
        let own = component(who, scope, carried.clone(), Some(own));
        let of_fences = of_thread.map_or(&[][..], |thread| &thread.fences).iter().map(|(level, views)| of_fence(who, *level, views));
        let components: SmallVec<[Component; 2]> = std::iter::once(own).chain(of_fences).collect();
        let elements = (touch.bytes / touch.element) as u8;
        let atomic = matches!(touch.effect, Effect::Atomic { .. });
        self.release_at(allocation, offset, (touch.element as u8, elements, atomic), who, scope, &components);
    }
}

/// The scope of a strong access.
fn strong(touch: &Touch<'_>) -> Option<Level> {
    match touch.access.semantics {
        Semantics::Weak | Semantics::NonCoherent => None,
        Semantics::Volatile | Semantics::Mmio => Some(Level::System),
        _ => touch.access.scope.map(Level::of),
    }
}
