//! Tensor maps that threads have changed: a copy reads its map by a proxy of its own, which knows of writes only what a release and then an acquire of
//! `fence.proxy.tensormap` have handed to it, the latter of that very map, and what came before the kernel (PTX ISA 8.6, 9.7.13.4).

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::{
    At, FlightId, Races,
    clock::Clock,
    release::{Level, ThreadEpoch, Who},
    shadow::Via,
    views::{View, Views},
};
use crate::memory::GlobalAddr;

/// Fences of a thread that are remembered, and of a thread for each map: the last ones, which hand on what those before them did.
const MOST_FENCES: usize = 4;

/// A fence: whose and when it was, and what it hands on.
#[derive(Debug)]
struct Passed {
    by: Who,
    scope: Level,
    at: ThreadEpoch,
    writes: Arc<Clock>,
}

/// A thread: its block and its number there.
type Thread = (u32, u16);

/// The fences of a run.
#[derive(Debug, Default)]
pub(super) struct MapFences {
    released: HashMap<Thread, VecDeque<Passed>>,
    acquired: HashMap<u64, HashMap<Thread, VecDeque<Passed>>>,
}

fn remember(all: &mut HashMap<Thread, VecDeque<Passed>>, fence: Passed) {
    let of_thread = all.entry((fence.by.actor, fence.by.thread)).or_default();
    if of_thread.len() == MOST_FENCES {
        of_thread.pop_front();
    }
    of_thread.push_back(fence);
}

impl Races {
    /// What a thread knows now, and who and when it is.
    fn passing(&mut self, at: At, lane: usize) -> Option<(Who, ThreadEpoch, Arc<Clock>)> {
        let thread = at.warp * 32 + lane;
        let by = self.actors[at.actor.0 as usize].who(at.actor.0, thread as u16);
        let block = self.block(at.actor)?;
        let published = block.published(thread);
        Some((by, block.own_of(thread as u16).deeds, published.of(View::Strict).clone()))
    }

    /// A lane releases what was written to maps.
    pub(super) fn release_maps(&mut self, at: At, lane: usize, scope: Level) {
        if let Some((by, epoch, writes)) = self.passing(at, lane) {
            remember(&mut self.map_fences.released, Passed { by, scope, at: epoch, writes });
        }
    }

    /// A lane acquires the map at an address.
    pub(crate) fn acquire_map(&mut self, at: At, lane: usize, scope: passmuster_ptx::Scope, address: u64) {
        if self.ended {
            return;
        }
        let scope = Level::of(scope);
        let Some((by, epoch, known)) = self.passing(at, lane) else { return };
        let mut writes = Arc::<Clock>::default();
        for fence in self.map_fences.released.values().flatten() {
            if fence.scope.min(scope) >= fence.by.apart(by) && knows(&known, fence.at) {
                Clock::extend(&mut writes, &fence.writes);
            }
        }
        remember(self.map_fences.acquired.entry(address).or_default(), Passed { by, scope, at: epoch, writes });
    }

    /// A flight goes by the map at an address: what was written there must have been handed to it.
    pub(crate) fn look_at_map(&mut self, flight: FlightId, at: GlobalAddr, address: u64, bytes: u64) {
        if let Some(fences) = self.map_fences.acquired.get(&address)
            && let Some(views) = self.asynchronous.views(flight.actor())
        {
            let strict = views.of(View::Strict);
            let mut known = views.of(View::TensorMap).clone();
            fences.values().flatten().filter(|fence| knows(strict, fence.at)).for_each(|fence| Clock::extend(&mut known, &fence.writes));
            let mut views = Views::clone(views);
            views.set(View::TensorMap, known);
            self.asynchronous.set_views(flight.actor(), Arc::new(views));
        }
        self.fly_by(flight, at, bytes, false, Via::TensorMap, None);
    }
}

/// Whether what a thread did up to a time is known.
fn knows(clock: &Clock, ThreadEpoch { actor, place, thread, time }: ThreadEpoch) -> bool {
    clock.knows(actor, place, thread, time)
}
