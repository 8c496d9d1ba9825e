//! What stops a launch, and where.

use std::{fmt, sync::Arc};

use crate::memory::{AccessError, LaneError};
use passmuster_ptx::{Position, PtxError};

/// The instruction at which a launch was stopped, and who executed it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultSite {
    /// Rank whose launch it is.
    pub rank: usize,
    /// Name of the kernel.
    pub entry: Arc<str>,
    /// Linear index of the block.
    pub block: u32,
    /// Warp of the block.
    pub warp: u32,
    /// Lane of the warp, where it is one.
    pub lane: Option<u32>,
    /// Line and column of the PTX.
    pub at: Position,
    /// File and line of the source, where the PTX tells.
    pub source: Option<(String, u32)>,
    /// The instruction's family, as [`Instruction::family`](passmuster_ptx::Instruction::family).
    pub family: &'static str,
}

impl fmt::Display for FaultSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FaultSite { rank, entry, block, warp, lane, at, source, family } = self;
        write!(f, "rank {rank} {entry}, block {block} warp {warp}")?;
        if let Some(lane) = lane {
            write!(f, " lane {lane}")?;
        }
        write!(f, ", {family} at PTX {at}")?;
        match source {
            Some((file, line)) => write!(f, " ({file}:{line})"),
            None => Ok(()),
        }
    }
}

/// A value that an instruction took from where there is none: it goes on, and what it computes means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct UndefinedValue {
    /// Which instruction, and the lowest lane that got such a value.
    pub place: FaultSite,
    /// The lane of its warp that it was taken from.
    pub from: u32,
    /// Threads of the block, if it has no such lane; else the lane did not take part.
    pub threads: Option<u32>,
}

impl fmt::Display for UndefinedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UndefinedValue { place, from, threads } = self;
        write!(f, "{place}: takes a value from lane {from}, ")?;
        match threads {
            Some(threads) => write!(f, "which a block of {threads} threads does not have: it is undefined"),
            None => f.write_str("which does not take part: it is undefined"),
        }
    }
}

/// What stops a launch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// An access that memory refuses.
    #[error("{place}: {error}{}", .hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default())]
    Memory {
        /// Where.
        place: Box<FaultSite>,
        /// Why.
        error: AccessError,
        /// What of the launch or the module may be the cause.
        hint: Option<String>,
    },
    /// `trap` was executed.
    #[error("{place}: the kernel trapped")]
    Trap {
        /// Where; the lowest lane.
        place: Box<FaultSite>,
    },
    /// An assertion of the kernel does not hold.
    #[error("{place}: {why}")]
    Assertion {
        /// Where.
        place: Box<FaultSite>,
        /// Its text, and its file and line.
        why: String,
    },
    /// Lanes of one warp met at an aligned barrier from different instructions (PTX ISA bar).
    #[error("{place}: lanes of the warp are at different instructions of aligned barrier {barrier}")]
    DivergentBarrier {
        /// Where some of the lanes are.
        place: Box<FaultSite>,
        /// The barrier.
        barrier: u32,
    },
    /// A barrier with operands that it cannot have.
    #[error("{place}: {why}")]
    BarrierOperands {
        /// Where.
        place: Box<FaultSite>,
        /// What is wrong with them.
        why: String,
    },
    /// Shared memory of a block that the cluster does not have, or an address of none of its blocks.
    #[error("{place}: {why}")]
    Cluster {
        /// Where.
        place: Box<FaultSite>,
        /// What is wrong.
        why: String,
    },
    /// An mbarrier or an asynchronous operation that is used as it must not be.
    #[error("{place}: {why}")]
    Asynchronous {
        /// Where; of what goes on beside threads, where it was started.
        place: Box<FaultSite>,
        /// What is wrong.
        why: String,
    },
    /// A lane executes an operation of a warp with a member mask that it is not in.
    #[error("{place}: the lane is not in its own member mask {mask:#010x}")]
    NotInMask {
        /// Where.
        place: Box<FaultSite>,
        /// The mask.
        mask: u32,
    },
    /// `brx.idx` past its list of targets.
    #[error("{place}: branch target {index} of {targets}")]
    BranchIndex {
        /// Where.
        place: Box<FaultSite>,
        /// The index.
        index: u32,
        /// How many targets there are.
        targets: usize,
    },
    /// A call through an address that is not that of a function which can be called so.
    #[error("{place}: {why}")]
    CallTarget {
        /// Where.
        place: Box<FaultSite>,
        /// What the address is.
        why: String,
    },
    /// Calls nested deeper than the emulator lets them.
    #[error("{place}: calls are nested more than {} deep", super::MOST_FRAMES)]
    StackOverflow {
        /// Where.
        place: Box<FaultSite>,
    },
    /// An instruction that is decoded and not executed.
    #[error("{place}: {what} is not emulated")]
    UnsupportedInstruction {
        /// Where.
        place: Box<FaultSite>,
        /// The instruction's family.
        family: &'static str,
        /// What of it.
        what: String,
    },
    /// The kernel may come to an instruction that the front end does not know.
    #[error("{0}")]
    UnknownInstruction(Box<PtxError>),
    /// A module or a launch that cannot be run at all.
    #[error("{0}")]
    BadLaunch(String),
}

/// A [`Fault`] before it is known where it is.
#[derive(Debug)]
pub(super) enum ExecError {
    Access(Option<u32>, AccessError),
    /// An access to shared memory in a block that has none.
    NoShared(u32, AccessError),
    Trap(u32),
    DivergentBarrier(u32),
    BarrierOperands(String),
    Cluster {
        lane: u32,
        why: String,
    },
    Asynchronous {
        lane: Option<u32>,
        why: String,
    },
    NotInMask {
        lane: u32,
        mask: u32,
    },
    BranchIndex {
        lane: u32,
        index: u32,
        targets: usize,
    },
    CallTarget {
        lane: u32,
        why: String,
    },
    Assertion {
        lane: u32,
        why: String,
    },
    StackOverflow,
    Unsupported(String),
}

impl From<LaneError> for ExecError {
    fn from(error: LaneError) -> ExecError {
        ExecError::Access(Some(error.lane as u32), error.error)
    }
}

impl ExecError {
    /// That a form of an instruction is not emulated.
    pub(super) fn unsupported(what: impl Into<String>) -> ExecError {
        ExecError::Unsupported(what.into())
    }

    /// The fault, at a place without a lane.
    #[cold]
    pub(super) fn at(self, place: FaultSite) -> Fault {
        let family = place.family;
        let of = |lane: Option<u32>| Box::new(FaultSite { lane, ..place });
        match self {
            ExecError::Access(lane, error) => Fault::Memory { place: of(lane.or(place.lane)), error, hint: None },
            ExecError::NoShared(lane, error) => {
                let hint =
                    Some("the block has no shared memory: the launch gives 0 bytes of extern shared memory, see `dynamic_shared`".into());
                Fault::Memory { place: of(Some(lane)), error, hint }
            }
            ExecError::Trap(lane) => Fault::Trap { place: of(Some(lane)) },
            ExecError::DivergentBarrier(barrier) => Fault::DivergentBarrier { place: of(None), barrier },
            ExecError::BarrierOperands(why) => Fault::BarrierOperands { place: of(None), why },
            ExecError::Cluster { lane, why } => Fault::Cluster { place: of(Some(lane)), why },
            // What goes on beside threads has the lane that started it in its place.
            ExecError::Asynchronous { lane, why } => Fault::Asynchronous { place: of(lane.or(place.lane)), why },
            ExecError::NotInMask { lane, mask } => Fault::NotInMask { place: of(Some(lane)), mask },
            ExecError::BranchIndex { lane, index, targets } => Fault::BranchIndex { place: of(Some(lane)), index, targets },
            ExecError::Assertion { lane, why } => Fault::Assertion { place: of(Some(lane)), why },
            ExecError::CallTarget { lane, why } => Fault::CallTarget { place: of(Some(lane)), why },
            ExecError::StackOverflow => Fault::StackOverflow { place: of(None) },
            ExecError::Unsupported(what) => Fault::UnsupportedInstruction { place: of(None), family, what },
        }
    }
}
