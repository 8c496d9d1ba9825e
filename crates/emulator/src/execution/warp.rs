//! A warp: its registers, and where its lanes are.
//!
//! Lanes at one operation of one chain of calls are a group, and run together. A group splits where lanes go different ways. Groups
//! that come to the same operation are merged, and of those that can run the one that is deepest in calls, then the one with the smallest
//! program counter, goes first: with code as compilers lay it out, lanes meet again at the end of what divided them. A group that polls
//! is held back until the others have had their turn, so that lanes of one warp may wait for one another.

use std::hash::{Hash, Hasher};

use passmuster_ptx::Module;
use smallvec::{SmallVec, smallvec};

use super::{
    coverage::Looks,
    registers::{Bases, Registers, Row},
    wgmma::Products,
};

/// A function's frame: its slots, its parameter space and its local memory, each within the warp's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Frame {
    pub(super) function: usize,
    pub(super) bases: Bases,
    pub(super) parameters: usize,
    pub(super) local: u64,
}

/// A call that has not returned: the caller's frame, and the call's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Caller {
    pub(super) frame: Frame,
    pub(super) pc: usize,
}

/// What a group waits for, at the operation of its program counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Waiting {
    /// Nothing.
    No,
    /// Other lanes of its member mask.
    Lanes,
    /// A barrier of the block.
    Barrier(u32),
    /// The barrier of the cluster.
    Cluster,
}

/// Lanes that are at the same operation.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) lanes: u32,
    pub(super) pc: usize,
    pub(super) frame: Frame,
    pub(super) callers: Vec<Caller>,
    pub(super) waiting: Waiting,
    /// It polls, sleeps, or had more than its share.
    pub(super) held_back: bool,
    /// What it polls.
    pub(super) polled: Option<u64>,
}

impl Group {
    fn at_same(&self, other: &Group) -> bool {
        self.pc == other.pc && self.frame == other.frame && self.callers == other.callers
    }

    /// What goes first is smallest.
    fn order(&self) -> (std::cmp::Reverse<usize>, usize) {
        (std::cmp::Reverse(self.callers.len()), self.pc)
    }

    fn can_run(&self) -> bool {
        self.waiting == Waiting::No && !self.held_back
    }
}

/// What a group read last time at one operation and of these addresses: to recognise polling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Poll {
    pub(super) function: usize,
    pub(super) pc: usize,
    pub(super) lanes: u32,
    /// A digest of the addresses.
    pub(super) place: u64,
    /// A digest of what was there.
    pub(super) read: u64,
}

/// How many of them a warp remembers: a loop may look at a word of every peer in turn, by one operation or by one for each.
const POLLS: usize = 32;

/// Turns that may be cut short in the middle of one of several groups before the others go first.
pub(super) const CUTS: u32 = 16;

/// A warp.
#[derive(Clone, Debug)]
pub(super) struct Warp {
    pub(super) registers: Registers,
    /// Mostly one: a turn's way to it is short.
    pub(super) groups: SmallVec<[Group; 1]>,
    /// Lanes that have not ended.
    pub(super) live: u32,
    /// Parameter space of calls: a row of bytes of all lanes for each offset.
    pub(super) parameters: Vec<Row<u8>>,
    /// Generic addresses of the lanes' local memory, once it is used.
    pub(super) local: Option<Box<Row<u64>>>,
    /// Products of matrices, once there is one.
    pub(super) products: Option<Box<Products>>,
    polls: [Poll; POLLS],
    next_poll: usize,
    /// Turns that ended in the middle of one of several groups.
    pub(super) cut_short: u32,
    /// What lanes wait for, where somebody asks.
    pub(super) looks: Looks,
}

impl Warp {
    /// `threads` lanes at the start of an entry.
    pub(super) fn new(module: &Module, entry: usize, threads: u32) -> Warp {
        let function = &module.functions[entry];
        let mut registers = Registers::default();
        registers.reserve(Bases::default(), function.registers);
        let live = u32::MAX >> (32 - threads.clamp(1, 32));
        let frame = Frame { function: entry, ..Frame::default() };
        let group = Group { lanes: live, pc: 0, frame, callers: Vec::new(), waiting: Waiting::No, held_back: false, polled: None };
        let parameters =
            if function.param_bytes > function.input_bytes { vec![[0; 32]; function.param_bytes as usize] } else { Vec::new() };
        let (polls, products) = (Default::default(), None);
        Warp {
            registers,
            groups: smallvec![group],
            live,
            parameters,
            local: None,
            products,
            polls,
            next_poll: 0,
            cut_short: 0,
            looks: Looks::new(),
        }
    }

    /// What decides what it does next, as long as memory stays as it is. Which groups are held back, and how soon others will be, is among it: a
    /// state that comes again has then let each group run.
    pub(super) fn hash_state(&self, hasher: &mut impl Hasher) {
        self.registers.hash(hasher);
        self.parameters.hash(hasher);
        (self.cut_short % CUTS).hash(hasher);
        self.products.iter().for_each(|products| products.hash_state(hasher));
        for group in &self.groups {
            (group.lanes, group.pc, group.frame, &group.callers, group.waiting, group.held_back).hash(hasher);
        }
    }

    /// Whether a group waits for nothing.
    pub(super) fn is_runnable(&self) -> bool {
        self.groups.iter().any(|group| group.waiting == Waiting::No)
    }

    /// Lets groups that were held back run again, where none other can.
    pub(super) fn begin_turn(&mut self) {
        if !self.groups.iter().any(Group::can_run) {
            self.groups.iter_mut().for_each(|group| group.held_back = false);
        }
    }

    /// The group that goes first, merged with those that are where it is; `None` if none can run.
    pub(super) fn next(&mut self) -> Option<usize> {
        if let [only] = &self.groups[..] {
            return only.can_run().then_some(0);
        }
        let able = self.groups.iter().enumerate().filter(|(_, group)| group.can_run());
        let mut first = able.min_by_key(|(_, group)| group.order())?.0;
        let mut other = 0;
        while other < self.groups.len() {
            let candidate = &self.groups[other];
            let mergeable = matches!(candidate.waiting, Waiting::No | Waiting::Lanes);
            if other == first || !mergeable || !candidate.at_same(&self.groups[first]) {
                other += 1;
                continue;
            }
            self.groups[first].lanes |= candidate.lanes;
            self.groups.swap_remove(other);
            if first == self.groups.len() {
                first = other;
            }
        }
        self.groups[first].polled = None;
        Some(first)
    }

    /// The program counter at which a group must look out for others again.
    pub(super) fn until(&self, current: usize) -> usize {
        let depth = self.groups[current].callers.len();
        let others = self.groups.iter().enumerate();
        let others = others.filter(|(index, group)| *index != current && !group.held_back && group.callers.len() == depth);
        let others = others.filter(|(_, group)| matches!(group.waiting, Waiting::No | Waiting::Lanes));
        others.map(|(_, group)| group.pc).filter(|&pc| pc > self.groups[current].pc).min().unwrap_or(usize::MAX)
    }

    /// Splits lanes off a group into one of their own, at the same operation; returns the index of theirs.
    pub(super) fn split(&mut self, index: usize, lanes: u32) -> usize {
        let group = &mut self.groups[index];
        if group.lanes == lanes {
            return index;
        }
        group.lanes &= !lanes;
        let own = Group { lanes, ..group.clone() };
        self.groups.push(own);
        self.groups.len() - 1
    }

    /// Ends lanes of a group. Those that wait for lanes of a mask look again who is left.
    pub(super) fn end(&mut self, index: usize, lanes: u32) {
        self.live &= !lanes;
        self.groups[index].lanes &= !lanes;
        if self.groups[index].lanes == 0 {
            self.groups.swap_remove(index);
        }
        self.groups.iter_mut().filter(|group| group.waiting == Waiting::Lanes).for_each(|group| group.waiting = Waiting::No);
    }

    /// What its lanes read last with what may poll, of all places that it remembers, in no order.
    pub(super) fn polls(&self) -> &[Poll] {
        &self.polls
    }

    /// Notes what lanes read; whether they read the same there before.
    pub(super) fn read_again(&mut self, poll: Poll) -> bool {
        let same_place = |known: &&mut Poll| Poll { read: poll.read, ..**known } == poll;
        if let Some(known) = self.polls.iter_mut().find(same_place) {
            return std::mem::replace(known, poll) == poll;
        }
        self.polls[self.next_poll] = poll;
        self.next_poll = (self.next_poll + 1) % POLLS;
        false
    }
}
