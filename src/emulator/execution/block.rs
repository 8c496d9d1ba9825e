//! A block: its warps, its shared memory and its barriers.
//!
//! Barriers count threads. A barrier of all threads is complete when all that have not ended are there: as on hardware, threads that ended
//! do not count. One of a given number counts the lanes that are there, and with each warp that is there its lanes that have ended or
//! never were, as the ISA counts whole warps.

use super::fault::Trouble;
use super::warp::{Waiting, Warp};
use crate::emulator::ptx::{BarrierReduction, Instruction, Module, Operation};
use crate::emulator::races::ActorId;

/// Barriers of a block.
pub(super) const BARRIERS: usize = 16;

/// The most warps of a block.
pub(super) const MOST_WARPS: usize = 32;

/// A set of a block's threads.
pub(super) type Threads = [u32; MOST_WARPS];

/// One barrier between two completions.
#[derive(Clone, Copy, Debug, Default)]
struct Barrier {
    arrived: Threads,
    /// Threads whose predicate holds, of a reduction.
    holding: Threads,
    /// How many threads it is for; `None`: all.
    expected: Option<u32>,
    busy: bool,
}

/// What a block has besides warps.
#[derive(Debug)]
pub(super) struct Common {
    /// Linear index in the grid.
    pub(super) index: u32,
    /// Its coordinates.
    pub(super) at: [u32; 3],
    /// Generic address of its shared memory, or 0.
    pub(super) shared: u64,
    /// Who it is to the race check, where there is one.
    pub(super) actor: Option<ActorId>,
    barriers: [Barrier; BARRIERS],
    /// Barriers that were completed.
    pub(super) completed: u32,
    cluster_arrived: Threads,
    /// Threads whose arrival at the cluster's barrier is completed and which have not waited for it.
    cluster_passed: Threads,
}

impl Common {
    pub(super) fn new(index: u32, at: [u32; 3], shared: u64) -> Common {
        let threads = [0; MOST_WARPS];
        Common {
            index,
            at,
            shared,
            actor: None,
            barriers: [Barrier::default(); BARRIERS],
            completed: 0,
            cluster_arrived: threads,
            cluster_passed: threads,
        }
    }

    /// Lanes of a warp arrive; `holding` are those whose predicate holds.
    pub(super) fn arrive(&mut self, id: u32, warp: usize, lanes: u32, holding: u32, expected: Option<u32>) -> Result<(), Trouble> {
        let Some(barrier) = self.barriers.get_mut(id as usize) else {
            return Err(Trouble::BarrierOperands(format!("barrier {id}: there are 0 to {}", BARRIERS - 1)));
        };
        if let Some(threads) = expected
            && (threads == 0 || threads % 32 != 0 || threads > 1024)
        {
            return Err(Trouble::BarrierOperands(format!("a barrier of {threads} threads: expected a multiple of 32, up to 1024")));
        }
        if barrier.busy && barrier.expected != expected {
            let text = |expected: Option<u32>| expected.map_or("all".to_owned(), |threads| threads.to_string());
            let (first, second) = (text(barrier.expected), text(expected));
            return Err(Trouble::BarrierOperands(format!("barrier {id} is for {first} threads, and here for {second}")));
        }
        barrier.busy = true;
        barrier.expected = expected;
        barrier.arrived[warp] |= lanes;
        barrier.holding[warp] = barrier.holding[warp] & !lanes | holding & lanes;
        Ok(())
    }

    /// Lanes arrive at the barrier of the cluster, which has this block alone.
    pub(super) fn arrive_at_cluster(&mut self, warp: usize, lanes: u32) {
        self.cluster_arrived[warp] |= lanes;
    }

    /// Whether lanes may pass the barrier of the cluster, and lets them.
    pub(super) fn pass_cluster(&mut self, warp: usize, lanes: u32) -> bool {
        let all = self.cluster_passed[warp] & lanes == lanes;
        if all {
            self.cluster_passed[warp] &= !lanes;
        }
        all
    }
}

/// A block.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) common: Common,
    pub(super) warps: Vec<Warp>,
    /// Those that can run, as bits.
    pub(super) able: u32,
}

impl Block {
    /// Completes a barrier if all are there. Calls `woken` for the warps that go on, and returns the threads that waited.
    ///
    /// # Errors
    /// The warp and the operation at which the barrier was misused.
    pub(super) fn complete<'m>(
        &mut self,
        id: u32,
        module: &'m Module,
        woken: &mut dyn FnMut(usize),
    ) -> Result<Option<Threads>, (usize, &'m Operation, Trouble)> {
        let barrier = &self.common.barriers[id as usize];
        if !barrier.busy || !self.is_complete(barrier) {
            return Ok(None);
        }
        let mut waited = [0; MOST_WARPS];
        let barrier = std::mem::take(&mut self.common.barriers[id as usize]);
        self.common.completed += 1;
        let holding: u32 = barrier.holding.iter().map(|lanes| lanes.count_ones()).sum();
        let arrived: u32 = barrier.arrived.iter().map(|lanes| lanes.count_ones()).sum();
        for (index, warp) in self.warps.iter_mut().enumerate() {
            let mut aligned_at = None;
            let mut wakes = false;
            for group in 0..warp.groups.len() {
                let Warp { groups, registers, .. } = warp;
                let group = &mut groups[group];
                if group.waiting != Waiting::Barrier(id) {
                    continue;
                }
                let operation = &module.functions[group.frame.function].code[group.pc];
                if let Instruction::BarrierSync { aligned: true, .. } | Instruction::BarrierReduce { aligned: true, .. } =
                    operation.instruction
                    && *aligned_at.get_or_insert(operation.at) != operation.at
                {
                    return Err((index, operation, Trouble::DivergentBarrier(id)));
                }
                if let Instruction::BarrierReduce { op, destination, .. } = operation.instruction {
                    registers.bases = group.frame.bases;
                    let all_if = |holds: bool| if holds { u32::MAX } else { 0 };
                    match op {
                        BarrierReduction::PopulationCount => registers.write::<u32>(destination, group.lanes, &[holding; 32]),
                        BarrierReduction::And => registers.set_predicate(destination, group.lanes, all_if(holding == arrived)),
                        BarrierReduction::Or => registers.set_predicate(destination, group.lanes, all_if(holding > 0)),
                    }
                }
                group.waiting = Waiting::No;
                group.pc += 1;
                waited[index] |= group.lanes;
                wakes = true;
            }
            if wakes {
                woken(index);
            }
        }
        Ok(Some(waited))
    }

    fn is_complete(&self, barrier: &Barrier) -> bool {
        match barrier.expected {
            None => self.warps.iter().zip(&barrier.arrived).all(|(warp, arrived)| warp.live & !arrived == 0),
            Some(threads) => {
                let here = self.warps.iter().zip(&barrier.arrived).filter(|(_, arrived)| **arrived != 0);
                here.map(|(warp, arrived)| (arrived | !warp.live).count_ones()).sum::<u32>() >= threads
            }
        }
    }

    /// Completes the barrier of the cluster if all have arrived; returns whether they have.
    pub(super) fn complete_cluster(&mut self, woken: &mut dyn FnMut(usize)) -> bool {
        let Common { cluster_arrived: arrived, cluster_passed: passed, completed, .. } = &mut self.common;
        let none = arrived.iter().all(|lanes| *lanes == 0);
        if none || !self.warps.iter().zip(&*arrived).all(|(warp, arrived)| warp.live & !arrived == 0) {
            return false;
        }
        *completed += 1;
        passed.iter_mut().zip(&*arrived).for_each(|(passed, arrived)| *passed |= arrived);
        *arrived = [0; MOST_WARPS];
        for (index, warp) in self.warps.iter_mut().enumerate() {
            let mut waiting = warp.groups.iter_mut().filter(|group| group.waiting == Waiting::Cluster).peekable();
            if waiting.peek().is_some() {
                waiting.for_each(|group| group.waiting = Waiting::No);
                woken(index);
            }
        }
        true
    }
}
