//! A block: its warps, its shared memory and its barriers.
//!
//! Blocks of a cluster start together, and each knows where the shared memory of the others is ([`Member`]). The cluster's barrier is for all
//! threads of it that have not ended.
//!
//! Barriers count threads. A barrier of all threads is complete when all that have not ended are there: as on hardware, threads that ended
//! do not count. One of a given number counts the lanes that are there, and with each warp that is there its lanes that have ended or
//! never were, as the ISA counts whole warps.

use std::{
    hash::{Hash, Hasher},
    sync::Arc,
};

use super::{
    fault::ExecError,
    warp::{Waiting, Warp},
    wgmma::{Agreement, WARPS},
};
use crate::races::ActorId;
use passmuster_ptx::{BarrierReduction, Instruction, Module, Operation};

/// Barriers of a block.
pub(super) const BARRIERS: usize = 16;

/// The most warps of a block.
pub(super) const MOST_WARPS: usize = 32;

/// A set of a block's threads.
pub(super) type Threads = [u32; MOST_WARPS];

/// One barrier between two completions.
#[derive(Clone, Copy, Debug, Default, Hash)]
struct Barrier {
    arrived: Threads,
    /// Threads whose predicate holds, of a reduction.
    holding: Threads,
    /// How many threads it is for; `None`: all.
    expected: Option<u32>,
    busy: bool,
}

/// In addresses of `.shared::cluster`, where the rank of the block is, with one added: a block's own offsets, which are such addresses too, have
/// zero there.
const RANK: u32 = 24;

/// A block's place in its cluster.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// Its rank: `%cluster_ctarank`.
    pub(super) rank: u32,
    /// Generic address of the shared memory of each block by rank, or 0.
    pub(super) shared: Arc<[u64]>,
}

impl Member {
    /// The generic address of one of `.shared::cluster`. What is of no block of the cluster is beyond the end of this block's memory.
    pub(super) fn generic(&self, address: u64) -> u64 {
        let block = (address >> RANK).checked_sub(1).and_then(|rank| self.shared.get(usize::try_from(rank).ok()?));
        let own = || self.shared[self.rank as usize].wrapping_add(if address >> 32 == 0 { address } else { u32::MAX.into() });
        block.map_or_else(own, |start| start + (address & ((1 << RANK) - 1)))
    }

    /// The rank of the block whose shared memory a generic address is in, and the offset.
    pub(super) fn place(&self, generic: u64) -> Option<(u32, u64)> {
        let within = |start: u64| start != 0 && generic.checked_sub(start).is_some_and(|offset| offset < 1 << RANK);
        let rank = self.shared.iter().position(|&start| within(start))?;
        Some((rank as u32, generic - self.shared[rank]))
    }

    /// The address in `.shared::cluster` of an offset of a block.
    pub(super) fn address(&self, rank: u32, offset: u64) -> u64 {
        u64::from(rank + 1) << RANK | offset
    }
}

/// What a block has besides warps.
#[derive(Debug)]
pub(super) struct Common {
    /// Linear index in the grid.
    pub(super) index: u32,
    /// Its coordinates.
    pub(super) at: [u32; 3],
    /// Number of its cluster.
    pub(super) cluster: u32,
    /// Generic address of its shared memory, or 0.
    pub(super) shared: u64,
    pub(super) member: Member,
    /// Who it is to the race check, where there is one.
    pub(super) actor: Option<ActorId>,
    barriers: [Barrier; BARRIERS],
    /// Barriers that were completed.
    pub(super) completed: u32,
    /// Launches that depend on this one may start as far as this block is concerned.
    pub(super) lets_dependents_start: bool,
    cluster_arrived: Threads,
    /// Threads whose arrival at the cluster's barrier is completed and which have not waited for it.
    cluster_passed: Threads,
    /// Of each warpgroup that has multiplied.
    agreements: Vec<Agreement>,
    /// Registers of a thread of each warp that has asked for a number of them, by `setmaxnreg`.
    registers: [u32; MOST_WARPS],
}

impl Common {
    pub(super) fn new(index: u32, at: [u32; 3], cluster: u32, member: Member) -> Common {
        let threads = [0; MOST_WARPS];
        Common {
            index,
            at,
            cluster,
            shared: member.shared[member.rank as usize],
            member,
            actor: None,
            barriers: [Barrier::default(); BARRIERS],
            completed: 0,
            lets_dependents_start: false,
            cluster_arrived: threads,
            cluster_passed: threads,
            agreements: Vec::new(),
            registers: [0; MOST_WARPS],
        }
    }

    /// What the warps of a warpgroup agree on.
    pub(super) fn agreement(&mut self, warpgroup: usize) -> &mut Agreement {
        if self.agreements.len() <= warpgroup {
            self.agreements.resize_with(warpgroup + 1, Agreement::default);
        }
        &mut self.agreements[warpgroup]
    }

    /// A warp that has started a product which others of its warpgroup have not, and the function and operation.
    pub(super) fn unlike(&self) -> Option<(usize, (usize, usize))> {
        let mut of_groups = self.agreements.iter().enumerate();
        of_groups.find_map(|(group, agreement)| agreement.unlike().map(|(warp, at)| (group * WARPS + warp, at)))
    }

    /// What is to come of those who have arrived at barriers.
    pub(super) fn hash_state(&self, hasher: &mut impl Hasher) {
        (&self.barriers, &self.cluster_arrived, &self.cluster_passed).hash(hasher);
    }

    /// Lanes of a warp arrive; `holding` are those whose predicate holds.
    pub(super) fn arrive(&mut self, id: u32, warp: usize, lanes: u32, holding: u32, expected: Option<u32>) -> Result<(), ExecError> {
        let Some(barrier) = self.barriers.get_mut(id as usize) else {
            return Err(ExecError::BarrierOperands(format!("barrier {id}: there are 0 to {}", BARRIERS - 1)));
        };
        if let Some(threads) = expected
            && (threads == 0 || threads % 32 != 0 || threads > 1024)
        {
            return Err(ExecError::BarrierOperands(format!("a barrier of {threads} threads: expected a multiple of 32, up to 1024")));
        }
        if barrier.busy && barrier.expected != expected {
            let text = |expected: Option<u32>| expected.map_or("all".to_owned(), |threads| threads.to_string());
            let (first, second) = (text(barrier.expected), text(expected));
            return Err(ExecError::BarrierOperands(format!("barrier {id} is for {first} threads, and here for {second}")));
        }
        barrier.busy = true;
        barrier.expected = expected;
        barrier.arrived[warp] |= lanes;
        barrier.holding[warp] = barrier.holding[warp] & !lanes | holding & lanes;
        Ok(())
    }

    /// Lanes arrive at the barrier of the cluster. Once they have, they must wait before they arrive again.
    pub(super) fn arrive_at_cluster(&mut self, warp: usize, lanes: u32) -> Result<(), ExecError> {
        if (self.cluster_arrived[warp] | self.cluster_passed[warp]) & lanes != 0 {
            return Err(ExecError::BarrierOperands("a thread arrives at the cluster's barrier again and has not waited there".into()));
        }
        self.cluster_arrived[warp] |= lanes;
        Ok(())
    }

    /// A warp asks for `count` registers for each of its threads, in a block of `threads` threads. A block has only what it was launched with. A warp that asks
    /// for more than the others leave waits for them, and for ever if they have asked for theirs. Before the driver compiles the kernel, only the most that
    /// a launch may give is known. A warp that has not asked counts with the fewest that it may have.
    pub(super) fn set_registers(&mut self, warp: usize, count: u32, threads: u32) -> Result<(), ExecError> {
        const REGISTERS: u32 = 1 << 16;
        const FEWEST: u32 = 24;
        self.registers[warp] = count;
        let most = (REGISTERS / threads / 8 * 8).min(256);
        let asked: u32 = self.registers.iter().take(threads.div_ceil(32) as usize).map(|&count| count.max(FEWEST)).sum();
        if asked * 32 > most * threads.next_multiple_of(32) {
            return Err(ExecError::Asynchronous {
                lane: None,
                why: format!(
                    "setmaxnreg {count}: the block's warps have asked for {} registers, and no launch of {threads} threads gives them more than {}, {most} for each: one waits for ever",
                    asked * 32,
                    most * threads.next_multiple_of(32)
                ),
            });
        }
        Ok(())
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
    /// Completes a barrier if all are there, and returns the threads that waited and now go on.
    ///
    /// # Errors
    /// The warp and the operation at which the barrier was misused.
    pub(super) fn complete<'m>(&mut self, id: u32, module: &'m Module) -> Result<Option<Threads>, (usize, &'m Operation, ExecError)> {
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
                    return Err((index, operation, ExecError::DivergentBarrier(id)));
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

    /// Whether all threads that have not ended have arrived at the barrier of the cluster, and whether any has.
    pub(super) fn at_cluster(&self) -> (bool, bool) {
        let arrived = &self.common.cluster_arrived;
        let all = self.warps.iter().zip(arrived).all(|(warp, arrived)| warp.live & !arrived == 0);
        (all, arrived.iter().any(|lanes| *lanes != 0))
    }

    /// The barrier of the cluster is complete: returns the warps that waited and now go on, as bits.
    pub(super) fn complete_cluster(&mut self) -> u32 {
        let Common { cluster_arrived: arrived, cluster_passed: passed, completed, .. } = &mut self.common;
        *completed += 1;
        passed.iter_mut().zip(&*arrived).for_each(|(passed, arrived)| *passed |= arrived);
        *arrived = [0; MOST_WARPS];
        let mut woken = 0;
        for (index, group) in
            self.warps.iter_mut().enumerate().flat_map(|(index, warp)| warp.groups.iter_mut().map(move |group| (index, group)))
        {
            // Who waits there and has not arrived goes on waiting.
            if group.waiting == Waiting::Cluster && passed[index] & group.lanes == group.lanes {
                group.waiting = Waiting::No;
                woken |= 1 << index;
            }
        }
        woken
    }
}
