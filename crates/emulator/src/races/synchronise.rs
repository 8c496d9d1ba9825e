//! What orders without an access: fences, barriers of blocks, warps and clusters.

use std::{collections::BTreeMap, sync::Arc};

use smallvec::SmallVec;

use super::{
    ActorId, At, Lanes, Races,
    actors::threads_of,
    clock::Clock,
    release::{Cluster, Component, Level, Location, Who},
    shadow::PAGE,
    views::{View, Views},
};
use passmuster_ptx::{Fence, ProxyKind, Semantics};

/// What `fence.sc` operations so far published, by how far apart those are who take it.
#[derive(Debug)]
pub(super) struct Sequential {
    of_blocks: BTreeMap<u32, Arc<Views>>,
    of_clusters: BTreeMap<Cluster, Arc<Views>>,
    of_ranks: Vec<Arc<Views>>,
    of_system: Arc<Views>,
}

impl Sequential {
    pub(super) fn new(ranks: usize) -> Sequential {
        let nothing = Arc::<Views>::default();
        Sequential { of_blocks: BTreeMap::new(), of_clusters: BTreeMap::new(), of_ranks: vec![nothing.clone(); ranks], of_system: nothing }
    }

    fn of(&mut self, level: Level, who: Who) -> &mut Arc<Views> {
        match level {
            Level::Block => self.of_blocks.entry(who.actor).or_default(),
            Level::Cluster => self.of_clusters.entry(who.cluster).or_default(),
            Level::Rank => &mut self.of_ranks[who.rank as usize],
            Level::System => &mut self.of_system,
        }
    }
}

pub(super) fn lanes_of_warp(warp: usize, lanes: u32) -> Lanes {
    let mut all = [0; 32];
    all[warp] = lanes;
    all
}

impl Races {
    /// A fence of lanes of a warp.
    pub(crate) fn fence(&mut self, at: At, lanes: u32, fence: Fence) {
        if self.ended {
            return;
        }
        for thread in threads_of(&lanes_of_warp(at.warp, lanes)) {
            match fence {
                Fence::Memory(semantics, scope) => self.memory_fence(at.actor, thread, semantics, Level::of(scope)),
                Fence::Proxy(kind) => self.proxy_fence(at.actor, thread, kind),
                Fence::MbarrierInit => self.asynchronous.fence(at.actor.0, thread),
                Fence::TensormapRelease(scope) => self.release_maps(at, thread % 32, Level::of(scope)),
                // Which map each lane acquires follows from registers: see acquire_map.
                Fence::TensormapAcquire(..) => {}
            }
        }
        if let Some(block) = self.block(at.actor) {
            block.time += 1;
        }
    }

    fn memory_fence(&mut self, actor: ActorId, thread: usize, semantics: Semantics, scope: Level) {
        let who = self.actors[actor.0 as usize].who(actor.0, thread as u16);
        let Races { blocks, sequential, .. } = self;
        let Some(block) = blocks[actor.0 as usize].as_deref_mut() else { return };
        let reached = || Level::ALL.into_iter().filter(|&level| level <= scope);
        block.settle(thread);
        if semantics != Semantics::Release {
            block.empty_cache(scope);
            let pending: Vec<Arc<Views>> = reached().filter_map(|level| block.thread(thread).pending[level as usize].take()).collect();
            for views in pending {
                let joined = Views::join(block.known(thread), &views);
                block.set_known(thread, joined);
            }
        }
        if semantics == Semantics::SequentiallyConsistent {
            for level in reached() {
                let joined = Views::join(block.known(thread), sequential.of(level, who));
                block.set_known(thread, joined);
            }
        }
        if semantics == Semantics::Acquire {
            return;
        }
        let published = Arc::new(block.published(thread));
        if semantics == Semantics::SequentiallyConsistent {
            for level in reached() {
                let all = sequential.of(level, who);
                *all = Views::join(all, &published);
            }
        }
        let fences = &mut block.thread(thread).fences;
        fences.retain(|(earlier, _)| *earlier > scope);
        fences.push((scope, published));
    }

    fn proxy_fence(&mut self, actor: ActorId, thread: usize, kind: ProxyKind) {
        let across: &[View] = match kind {
            ProxyKind::Alias => &[View::Alias],
            ProxyKind::Async => &[View::AsyncGlobal, View::AsyncShared],
            ProxyKind::AsyncGlobal => &[View::AsyncGlobal],
            ProxyKind::AsyncSharedCta | ProxyKind::AsyncSharedCluster => &[View::AsyncShared],
        };
        let Some(block) = self.block(actor) else { return };
        block.settle(thread);
        let own = block.own_of(thread as u16);
        let mut views = Views::clone(block.known(thread));
        let mut known = views.of(View::Strict).clone();
        Arc::make_mut(&mut known).add_own(own);
        for &view in across {
            views.set(view, Clock::join(views.of(view), &known));
        }
        block.set_known(thread, Arc::new(views));
    }

    /// Lanes arrive at a barrier of the block without waiting there.
    pub fn arrive(&mut self, actor: ActorId, barrier: u32, warp: usize, lanes: u32) {
        let Some(block) = self.block(actor) else { return };
        let published = block.published_by(&lanes_of_warp(warp, lanes));
        block.time += 1;
        let Some(arrived) = block.arrived.get_mut(barrier as usize) else { return };
        *arrived = Some(arrived.as_ref().map_or_else(|| published.clone(), |arrived| Views::join(arrived, &published)));
    }

    /// A barrier of the block is complete for those that wait there; `all` where none of the block's others goes on.
    pub fn barrier(&mut self, actor: ActorId, barrier: u32, waiting: &Lanes, all: bool) {
        let Some(block) = self.block(actor) else { return };
        let arrived = block.arrived.get_mut(barrier as usize).and_then(Option::take);
        block.meet(waiting, all, arrived.as_ref());
    }

    /// Lanes of a warp meet.
    pub fn meet_in_warp(&mut self, actor: ActorId, warp: usize, lanes: u32) {
        if let Some(block) = self.block(actor) {
            block.meet(&lanes_of_warp(warp, lanes), false, None);
        }
    }

    /// Lanes arrive at the barrier of the cluster, which releases or not.
    pub fn arrive_at_cluster(&mut self, actor: ActorId, warp: usize, lanes: u32, releases: bool) {
        let Some(block) = self.block(actor).filter(|_| releases) else { return };
        let published = block.published_by(&lanes_of_warp(warp, lanes));
        block.time += 1;
        let arrived = &mut block.cluster[0];
        *arrived = Some(arrived.as_ref().map_or_else(|| published.clone(), |arrived| Views::join(arrived, &published)));
    }

    /// The barrier of the cluster of these blocks is complete.
    pub fn complete_cluster(&mut self, actors: &[ActorId]) {
        let arrived: Vec<Arc<Views>> = actors.iter().filter_map(|&actor| self.block(actor)?.cluster[0].take()).collect();
        let all = arrived.into_iter().reduce(|all, arrived| Views::join(&all, &arrived));
        for &actor in actors {
            if let Some(block) = self.block(actor) {
                block.cluster[1] = all.clone();
            }
        }
    }

    /// Lanes pass the barrier of the cluster, which acquires.
    pub fn pass_cluster(&mut self, actor: ActorId, warp: usize, lanes: u32) {
        let Some(block) = self.block(actor) else { return };
        let Some(passed) = block.cluster[1].clone() else { return };
        // Lanes that knew the same know the same then.
        let mut last: Option<[Arc<Views>; 2]> = None;
        for thread in threads_of(&lanes_of_warp(warp, lanes)) {
            let before = block.known(thread).clone();
            let after = match &last {
                Some([known, joined]) if Arc::ptr_eq(known, &before) => joined.clone(),
                _ => Views::join(&before, &passed),
            };
            block.set_known(thread, after.clone());
            last = Some([before, after]);
        }
    }

    /// A strong write of elements of `bytes` bytes leaves what it releases there.
    pub(super) fn release_at(
        &mut self,
        allocation: usize,
        offset: u64,
        (bytes, elements, atomic): (u8, u8, bool),
        who: Who,
        scope: Level,
        components: &[Component],
    ) {
        let Races { shadow, states, operations, streams, .. } = self;
        let is_over = |who: Who| {
            let place = operations[who.cluster.0 as usize].place;
            streams[place.stream as usize].of(View::Strict).knows_all_of(place)
        };
        let fresh = Location { offset: (offset % PAGE) as u16, bytes, elements, state: 0, last: (who, scope), components: SmallVec::new() };
        let keeps = |location: &Location| atomic || location.components.iter().any(|component| component.first == who);
        for location in shadow.page(allocation, offset).written(fresh, keeps) {
            *states += 1;
            location.state = *states;
            location.overwrite(who, scope, atomic);
            components.iter().for_each(|component| location.add(component));
            location.forget(is_over);
        }
    }
}
