//! Plans: what every rank does for one collective call, as data.
//!
//! A plan holds no address and no handle. It can be printed, compared, run on GPUs (eagerly or captured into a graph) and interpreted.
//! This layer imports `collective` only.

mod call;
mod launch;
mod matmul;
mod region;
mod regions;
mod script;
mod tensor_map;

use std::{collections::HashMap, fmt};

use serde::{Deserialize, Serialize};

pub use call::{Call, CallError, Parts, RankCall};
pub use launch::{Arg, Dim3, Launch, ModuleVariable};
pub use matmul::{MatmulCall, MatmulError, Operands};
pub use region::{BufferSpec, Fill, Region, Role};
pub use script::{Departure, Script, Step};
#[doc(hidden)]
pub use tensor_map::{Edge, edges};
pub use tensor_map::{MapFault, MapLimit, Outside, TensorMap, TensorMapError};

/// The most ranks of a group: an NVLink domain of 72 GPUs. Kernels have room for the addresses of as many: `MAX_RANKS` of kernels/common/types.cuh.
pub const MAX_RANKS: usize = 72;

/// The most ranks on the GPUs of one host.
pub const MAX_WORLD: usize = 16;

/// Side streams of a plan at most.
pub const MAX_SIDES: usize = 3;

/// The ranks that write a value to a word of a rank, in a plan. Looked up once for each wait of it: among 72 ranks there are thousands of either.
#[derive(Default)]
pub struct Writers<'p>(HashMap<(usize, &'p Region, u32), Vec<usize>>);

impl Writers<'_> {
    /// The ranks that write a value to a rank's word, ascending. A wait for that value there waits for these ranks.
    pub fn of<'a>(&'a self, rank: usize, word: &'a Region, value: u32) -> &'a [usize] {
        self.0.get(&(rank, word, value)).map_or(&[], Vec::as_slice)
    }
}

/// What all ranks do for one call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What it is, for reports: `all_reduce/two_shot bf16 sum 1040`.
    pub name: String,
    /// Nodes that its ranks are on, as many on each, rank 0 and those after it on the first. Ranks that operations name are those of the node of the rank
    /// that does them, counted from 0: there are no others whose memory it could address.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub nodes: u32,
    /// It stands for one kernel of the caller, which lets launches that depend on it start at once: a programmatic launch that follows has waited
    /// for none of its operations, nor for those of another such plan right before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_caller: bool,
    /// For each rank, its operations in stream order.
    pub ranks: Vec<Vec<Op>>,
}

impl Plan {
    /// The same operations on every rank but for what depends on the rank.
    pub fn per_rank(name: impl Into<String>, world: u32, ops: impl Fn(u32) -> Vec<Op>) -> Plan {
        Plan { name: name.into(), nodes: 1, of_caller: false, ranks: (0..world).map(ops).collect() }
    }

    /// The same as one kernel of the caller ([`Plan::of_caller`]).
    #[must_use]
    pub fn by_caller(self) -> Plan {
        Plan { of_caller: true, ..self }
    }

    /// The first rank of a rank's node: what is added to ranks that its operations name.
    pub fn first_of_node(&self, rank: usize) -> usize {
        first_of_node(rank, self.world(), self.nodes as usize)
    }

    /// The rank that an operation of `rank` names, or it itself where it names none.
    pub fn rank_of(&self, rank: usize, named: Option<u32>) -> usize {
        named.map_or(rank, |named| self.first_of_node(rank) + named as usize)
    }

    /// Which ranks write the words of ranks, and what.
    pub fn writers(&self) -> Writers<'_> {
        let mut writers = Writers::default();
        for from in 0..self.world() {
            for op in self.operations(from) {
                if let Op::WriteValue { to, value, to_rank } = op {
                    let of_word = writers.0.entry((self.rank_of(from, *to_rank), to, *value)).or_default();
                    if of_word.last() != Some(&from) {
                        of_word.push(from);
                    }
                }
            }
        }
        writers
    }

    /// All operations of a rank in the order in which its host enqueues them: a fork, then what it forks.
    pub fn operations(&self, rank: usize) -> impl Iterator<Item = &Op> {
        self.ranks[rank].iter().flat_map(|op| std::iter::once(op).chain(op.forked()))
    }

    /// Whether a rank waits for another in it.
    fn waits(&self) -> bool {
        let waits = |op: &Op| match op {
            Op::Launch(launch) => launch.waits_for_peers,
            Op::WaitValue { .. } | Op::Nccl(_) => true,
            _ => false,
        };
        (0..self.world()).flat_map(|rank| self.operations(rank)).any(waits)
    }

    /// The kernel modules that it launches, as often as it does.
    pub fn modules(&self) -> impl Iterator<Item = String> {
        let launched = |op: &Op| if let Op::Launch(launch) = op { Some(launch.module.clone()) } else { None };
        (0..self.world()).flat_map(|rank| self.operations(rank)).filter_map(launched)
    }

    /// Number of ranks.
    pub fn world(&self) -> usize {
        self.ranks.len()
    }
}

/// One operation on a rank's stream. It starts when the one before it on that stream is done.
///
/// Dependencies between streams of a plan are forks and joins rather than events of their own: whatever is forked is joined, so that every plan
/// can be captured and none leaves work behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
// Calls of the library have an `op` of their own.
#[serde(tag = "operation", rename_all = "snake_case")]
pub enum Op {
    /// Starts a kernel.
    Launch(Launch),
    /// Copies from this rank's memory to its own or to a peer's. Both regions have the same length. A machine may do copies that follow each other
    /// at once, or in any order, where none touches what another writes; what comes after finds all of them done.
    Copy {
        /// Source.
        from: Region,
        /// Destination.
        to: Region,
        /// Whose of its node's memory that is in; this rank's own where it is none's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to_rank: Option<u32>,
    },
    /// Sets every byte of a region.
    Fill {
        /// What is set.
        region: Region,
        /// To which value.
        byte: u8,
    },
    /// Writes one 32-bit word in stream order, when all before it can be seen by every rank.
    WriteValue {
        /// Four bytes, aligned to four.
        to: Region,
        /// What is written.
        value: u32,
        /// Whose of its node's memory that is in; this rank's own where it is none's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to_rank: Option<u32>,
    },
    /// Holds the stream until a 32-bit word of this rank has a value. Nothing but a write of that value ends the wait: it has no limit of
    /// its own, and occupies no SM.
    WaitValue {
        /// Four bytes, aligned to four.
        at: Region,
        /// What is waited for.
        value: u32,
    },
    /// A call of the vendor's library; machines without it do what the reference does.
    Nccl(NcclCall),
    /// A product by the vendor's library; machines without it do what the reference does.
    Matmul(MatmulCall),
    /// Hands operations to a side stream of the plan. They start when all before this one is done, and what was handed to that stream before;
    /// what follows here goes on beside them.
    Fork {
        /// Which of the plan's side streams: 1 to [`MAX_SIDES`].
        stream: usize,
        /// What. No forks, and no joins.
        ops: Vec<Op>,
    },
    /// Waits for all that was handed to a side stream. A plan joins whatever it forks.
    Join {
        /// Which.
        stream: usize,
    },
    /// Copies a region to memory of the host, which does not wait: that is what [`Step::Await`] is for. Fetches of a rank are counted from 0 in the
    /// order of enqueuing. Not in what is captured.
    Fetch {
        /// What; at least a byte.
        from: Region,
    },
    /// Notes the time at this point of its stream: the run reports microseconds from each mark to the next in the order of enqueuing, steps of
    /// the script included. Not in what is captured.
    Mark,
}

impl Op {
    /// Hands a collective's operations to a side stream. What these would hand to side streams of their own comes in line: side streams do not fork.
    pub fn beside(stream: usize, ops: &[Op]) -> Op {
        let in_line = |op: &Op| match op {
            Op::Fork { ops, .. } => ops.clone(),
            Op::Join { .. } => Vec::new(),
            op => vec![op.clone()],
        };
        Op::Fork { stream, ops: ops.iter().flat_map(in_line).collect() }
    }

    /// What it hands to a side stream.
    pub fn forked(&self) -> &[Op] {
        match self {
            Op::Fork { ops, .. } => ops,
            _ => &[],
        }
    }
}

/// An operation of NCCL, or of the reference where there is no NCCL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NcclCall {
    /// What this rank passes.
    #[serde(flatten)]
    pub call: RankCall,
    /// Whether both buffers are registered as symmetric windows.
    pub windows: bool,
    /// Whether it is among the ranks of one index, one of each node, rather than all of the group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub across_nodes: bool,
}

impl NcclCall {
    /// A call among all ranks of the group.
    pub fn of_all(call: RankCall, windows: bool) -> NcclCall {
        NcclCall { call, windows, across_nodes: false }
    }
}

/// The first rank of the node of `rank`, among `world` ranks on `nodes` nodes.
pub fn first_of_node(rank: usize, world: usize, nodes: usize) -> usize {
    let of_node = (world / nodes).max(1);
    rank / of_node * of_node
}

fn one() -> u32 {
    1
}

fn is_one(number: &u32) -> bool {
    *number == 1
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        for (rank, ops) in self.ranks.iter().enumerate() {
            for op in ops {
                writeln!(f, "  rank {rank}: {op}")?;
                for forked in op.forked() {
                    writeln!(f, "  rank {rank}:   {forked}")?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Launch(launch) => write!(f, "{launch}"),
            Op::Copy { from, to, to_rank } => write!(f, "copy {from} -> {to}{}", OfRank(*to_rank)),
            Op::Fill { region, byte } => write!(f, "fill {region} with {byte:#04x}"),
            Op::WriteValue { to, value, to_rank } => write!(f, "write {value} -> {to}{}", OfRank(*to_rank)),
            Op::WaitValue { at, value } => write!(f, "wait until {at} is {value}"),
            Op::Nccl(NcclCall { call, windows, across_nodes }) => {
                let windows = if *windows { ", windows" } else { "" };
                let among = if *across_nodes { ", across nodes" } else { "" };
                let RankCall { collective, dtype, op, count, root, factor, ref parts, ref input, ref output } = *call;
                let root = if collective.has_root() { format!(" root {root}") } else { String::new() };
                let factor = factor.map(|bits| format!(" factor {bits:#x}")).unwrap_or_default();
                let parts =
                    parts.as_ref().map(|Parts { sent, received }| format!(" sent {sent:?} received {received:?}")).unwrap_or_default();
                write!(f, "nccl {collective} {dtype} {op} {count}{root}{factor}{parts} {input} -> {output}{windows}{among}")
            }
            Op::Matmul(call) => write!(f, "{call}"),
            Op::Fork { stream, .. } => write!(f, "fork to side stream {stream}"),
            Op::Join { stream } => write!(f, "join side stream {stream}"),
            Op::Fetch { from } => write!(f, "fetch {from}"),
            Op::Mark => f.write_str("mark"),
        }
    }
}

/// Whose region it is, where it is a peer's.
struct OfRank(Option<u32>);

impl fmt::Display for OfRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |rank| write!(f, " of rank {rank}"))
    }
}
