//! Named buffers and parts of them: how plans speak of memory without addresses.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Part of a named buffer. Every rank of a group owns one buffer of each name, all of the same size.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Region {
    /// Name of the buffer, unique in its group: `input`, `output`, `two_shot.signals`.
    pub buffer: String,
    /// Distance from the start of the buffer, in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Region {
    /// `bytes` bytes at `offset` of `buffer`.
    pub fn new(buffer: impl Into<String>, offset: u64, bytes: u64) -> Region {
        Region { buffer: buffer.into(), offset, bytes }
    }

    /// Whether the two share a byte of the same rank's memory.
    pub fn overlaps(&self, other: &Region) -> bool {
        self.buffer == other.buffer && self.offset < other.offset + other.bytes && other.offset < self.offset + self.bytes
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}..{}]", self.buffer, self.offset, u128::from(self.offset) + u128::from(self.bytes))
    }
}

/// What a buffer is for. Machines treat roles differently only where they must: a stuck report is read after a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Payload: inputs, outputs, staging. Its initial bytes are nobody's promise.
    Data,
    /// Words that peers write to signal, zero when the group opens. They belong to one group and one algorithm.
    Signals,
    /// Slots into which peers put data that says by itself that it has come, zero, which is no data, when the group opens.
    Slots,
    /// State that kernels keep from one launch to the next, zero when the group opens.
    State,
    /// Where a wait that gave up says so (`machine::stuck`), zero when the group opens.
    StuckReport,
    /// Nanoseconds to lose at each synchronisation site of a plan with [stalls](crate::algorithms::Target::stalls), zero when the group opens.
    Stalls,
}

/// A buffer that every rank of a group gets, in symmetric memory: all ranks can address it on all ranks, unless it is local.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferSpec {
    /// The name that regions use.
    pub name: String,
    /// Size in bytes on each rank.
    pub bytes: u64,
    /// What it is for.
    pub role: Role,
    /// What it holds when the group opens.
    pub fill: Fill,
    /// Whether only its own rank uses it: no peer gets its address, and where the machine can tell, none may touch it.
    pub local: bool,
    /// Bytes behind it that kernels may read and must not write, as the allocator of a framework leaves them: at most [`GUARD`](crate::machine::GUARD).
    pub readable: u64,
}

/// What a fresh buffer holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// Nobody's promise: to read it before it is written is a bug.
    Uninitialised,
    /// This byte throughout.
    Byte(u8),
    /// These bytes over and over: a word that is no flag.
    Repeated(Vec<u8>),
    /// For each rank, what it starts with; the rest is zero.
    OfRanks(Vec<Vec<u8>>),
}

impl Fill {
    /// What a buffer of `bytes` bytes holds on a rank, where it is not the same byte throughout.
    pub fn contents(&self, rank: usize, bytes: u64) -> Option<Vec<u8>> {
        let bytes = bytes as usize;
        match self {
            Fill::Uninitialised | Fill::Byte(_) => None,
            Fill::Repeated(pattern) => Some(pattern.iter().copied().cycle().take(bytes).collect()),
            Fill::OfRanks(ranks) => {
                let mut contents = ranks.get(rank).cloned().unwrap_or_default();
                contents.resize(bytes, 0);
                Some(contents)
            }
        }
    }
}

impl BufferSpec {
    /// A buffer of `bytes` bytes that peers can address: data uninitialised, all else zero.
    pub fn new(name: impl Into<String>, bytes: u64, role: Role) -> BufferSpec {
        let fill = if role == Role::Data { Fill::Uninitialised } else { Fill::Byte(0) };
        BufferSpec { name: name.into(), bytes, role, fill, local: false, readable: 0 }
    }

    /// All of the buffer.
    pub fn whole(&self) -> Region {
        Region::new(self.name.clone(), 0, self.bytes)
    }
}
