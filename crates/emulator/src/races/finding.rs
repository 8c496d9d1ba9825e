//! What was found: pairs of accesses, what would have ordered them, and what waives them.

use std::{collections::BTreeMap, fmt};

use super::{actors::Kind, shadow::Mode};
use crate::memory::AllocationId;

/// What is wrong with two accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// A data race (PTX ISA 8.7.1).
    Race,
    /// A race of strong operations of different sizes, which voids the model's axioms (PTX ISA 8.7.1).
    MixedSize,
    /// Both are strong, element by element, but a vector is not one access (PTX ISA 8.2.2).
    Tearing,
    /// Ordered, but by different addresses of one place without a proxy fence (PTX ISA 8.6).
    Alias,
    /// Ordered, but by the generic and then by the asynchronous proxy without a fence between (PTX ISA 8.6).
    Async,
    /// Ordered, but written by threads and then read as a tensor map without fences between (PTX ISA 8.6).
    TensorMap,
    /// A read through the non-coherent cache of what was written since the kernel started.
    NonCoherent,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Race => "race",
            Class::MixedSize => "race of different sizes",
            Class::Tearing => "torn vector",
            Class::Alias => "aliases without a fence",
            Class::Async => "proxies without a fence",
            Class::TensorMap => "tensor map without fences",
            Class::NonCoherent => "non-coherent read",
        })
    }
}

/// What would have ordered them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Missing {
    Scope,
    Release,
    Acquire,
    ReleaseAndAcquire,
    AliasFence,
    AsyncFence,
    MbarrierFence,
    TensorMapFences,
    Completion,
    Barrier,
    BetweenBlocks,
    BetweenStreams,
    BetweenRanks,
    KernelBoundary,
    Prerequisite,
    /// What of these was not asked.
    Order,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Missing::Scope => "a scope that includes both",
            Missing::Release => "a release",
            Missing::Acquire => "an acquire",
            Missing::ReleaseAndAcquire => "a release and an acquire",
            Missing::AliasFence => "fence.proxy.alias",
            Missing::AsyncFence => "fence.proxy.async",
            Missing::MbarrierFence => "fence.mbarrier_init or fence.proxy.async",
            Missing::TensorMapFences => "fence.proxy.tensormap, a release and then an acquire of this map,",
            Missing::Completion => "a wait for the asynchronous operation",
            Missing::Barrier => "a barrier",
            Missing::BetweenBlocks => "synchronisation between blocks",
            Missing::BetweenStreams => "synchronisation between streams",
            Missing::BetweenRanks => "synchronisation between ranks",
            Missing::KernelBoundary => "a kernel boundary",
            Missing::Prerequisite => "griddepcontrol.wait",
            Missing::Order => "order",
        })
    }
}

/// What is relied on that the PTX ISA does not promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Assumption {
    Boundary,
    Dependency,
    Vector,
    Lanes,
    Returned,
    Retired,
    Alias,
}

/// The names of all assumptions, as reports have them.
pub const ASSUMPTIONS: [&str; 7] = [
    Assumption::Boundary.name(),
    Assumption::Dependency.name(),
    Assumption::Retired.name(),
    Assumption::Vector.name(),
    Assumption::Lanes.name(),
    Assumption::Returned.name(),
    Assumption::Alias.name(),
];

impl Assumption {
    /// Its name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Assumption::Boundary => "boundary",
            Assumption::Dependency => "dependency",
            Assumption::Vector => "vector",
            Assumption::Lanes => "lanes",
            Assumption::Returned => "returned",
            Assumption::Retired => "retired",
            Assumption::Alias => "alias",
        }
    }
}

/// One of the two accesses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    pub(super) actor: u32,
    pub(super) thread: u16,
    pub(super) point: u32,
    pub(super) mode: Mode,
}

/// What makes findings the same: both instructions and the kernels or operations that they are of, and what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) kinds: [Kind; 2],
    pub(super) points: [u32; 2],
    pub(super) class: Class,
    pub(super) missing: Missing,
    pub(super) assumption: Option<Assumption>,
}

/// A finding: the first pair of accesses of many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) key: Key,
    /// The earlier and the later access.
    pub(super) sides: [Side; 2],
    pub(super) allocation: AllocationId,
    /// Bytes of the allocation that both accessed.
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) times: u64,
}

/// Distinct findings of a run that are kept in full; others are only counted. All waived findings are kept.
const MOST_FINDINGS: usize = 16;

/// All findings of a run, in the order in which they were first seen.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Where in `found` each is; `None` where there was no room for it.
    known: BTreeMap<Key, Option<usize>>,
    pub(super) found: Vec<Found>,
    /// Of those in `found`, those that nothing waives.
    told: usize,
    pub(super) left_out: LeftOut,
}

/// Findings that nothing waives and for which there was no room.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeftOut {
    /// Distinct ones.
    pub(super) findings: u64,
    /// How often they were seen.
    pub(super) times: u64,
}

impl Findings {
    /// Counts a finding, and keeps it if it is new and is waived or there is room.
    pub(super) fn add(&mut self, found: Found) {
        match self.known.get(&found.key) {
            Some(Some(at)) => self.found[*at].times += 1,
            Some(None) => self.left_out.times += 1,
            None => {
                let waived = found.key.assumption.is_some();
                let kept = waived || self.told < MOST_FINDINGS;
                self.known.insert(found.key, kept.then_some(self.found.len()));
                if kept {
                    self.told += usize::from(!waived);
                    self.found.push(found);
                } else {
                    self.left_out.findings += 1;
                    self.left_out.times += 1;
                }
            }
        }
    }
}
