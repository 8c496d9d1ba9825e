//! What plans run on. A machine owns groups of ranks and their buffers, runs scripts in bounded time, and says who is stuck.
//!
//! Machines know plans; nothing above knows which machine it has.

mod stuck;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use stuck::{STUCK_ENTRIES, Site, Stuck, decode_stuck_report};

use crate::plan::{BufferSpec, Region, Script};

/// What a machine is, for records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineInfo {
    /// `cuda` or `emulator`.
    pub kind: String,
    /// Name of the devices, as the driver has it.
    pub gpu: String,
    /// Devices in use.
    pub gpus: usize,
    /// Version of the driver (NVML's form is not at hand: CUDA's integer, e.g. 13000).
    pub driver: String,
    /// Version of NCCL, empty where none was loaded.
    pub nccl: String,
    /// Everything else worth recording, as name and value.
    pub notes: Vec<(String, String)>,
}

/// Why a machine did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "error", rename_all = "snake_case")]
pub enum MachineError {
    /// The machine cannot do this; nothing was enqueued and it is as good as before.
    #[error("not supported: {reason}")]
    NotSupported {
        /// Why.
        reason: String,
    },
    /// The request contradicts itself or its group; nothing was enqueued and the machine is as good as before.
    #[error("invalid: {reason}")]
    Invalid {
        /// What, where, and what was allowed.
        reason: String,
    },
    /// Ranks did not get to the end. The machine must not be used again.
    #[error("hang after {after_ms} ms: {}", describe_stuck(.stuck, .unfinished))]
    Hang {
        /// Milliseconds from the start of the run until it was given up.
        after_ms: u64,
        /// Waits that gave up, or words that were never signalled.
        stuck: Vec<Stuck>,
        /// Ranks whose streams did not finish.
        unfinished: Vec<usize>,
    },
    /// A device reported a fault. The machine must not be used again.
    #[error("ranks {ranks:?}: {what} failed: {code}")]
    Fault {
        /// The ranks that saw it, the first to see it first. The devices of one process take each other down, so the first is often but
        /// not always the one whose kernel was at fault.
        ranks: Vec<usize>,
        /// The call that failed.
        what: String,
        /// The library's name for the error.
        code: String,
    },
}

fn describe_stuck(stuck: &[Stuck], unfinished: &[usize]) -> String {
    let mut parts: Vec<String> = Vec::new();
    if !unfinished.is_empty() {
        parts.push(format!("ranks {unfinished:?} did not finish"));
    }
    let mut culprits: Vec<usize> = stuck.iter().map(|s| s.peer).collect();
    culprits.sort_unstable();
    culprits.dedup();
    if !culprits.is_empty() {
        parts.push(format!("{} waits gave up, for ranks {culprits:?}", stuck.len()));
    }
    parts.extend(stuck.iter().take(4).map(Stuck::to_string));
    parts.join("; ")
}

/// What a finished run leaves besides the contents of the buffers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Device microseconds between consecutive marks of the script: `marks[interval][rank]`.
    pub marks: Vec<Vec<f64>>,
}

/// Ranks, their memory, and the means to run scripts on them.
pub trait Machine {
    /// What it is.
    fn info(&self) -> MachineInfo;

    /// The largest world size it can open.
    fn max_world(&self) -> usize;

    /// The most blocks of one rank that may wait for other ranks' blocks in a group of `world` ranks, `groups` of them at once.
    fn waiting_blocks(&self, world: usize, groups: usize) -> u32;

    /// Opens a group of `world` ranks with these buffers and returns its number. Data buffers hold the byte [`CANARY`] throughout, all
    /// others zeros; [`GUARD`] bytes of canary lie before and behind each buffer.
    ///
    /// # Errors
    /// `NotSupported` when there are too few devices or too little memory.
    fn open_group(&mut self, world: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError>;

    /// Closes all groups; their memory may be used again.
    fn close_groups(&mut self);

    /// Bytes of a region of one rank, when nothing runs.
    ///
    /// # Errors
    /// `Invalid` for a region that the group does not have.
    fn read(&mut self, group: usize, rank: usize, region: &Region) -> Result<Vec<u8>, MachineError>;

    /// Sets the bytes of a region of one rank, when nothing runs.
    ///
    /// # Errors
    /// `Invalid` for a region that the group does not have, or another length.
    fn write(&mut self, group: usize, rank: usize, region: &Region, bytes: &[u8]) -> Result<(), MachineError>;

    /// The first byte outside any buffer that lost its canary, if any: rank, buffer beside it, and distance in bytes from the buffer's start
    /// (negative before it).
    ///
    /// # Errors
    /// `Fault` when memory cannot be read.
    fn broken_canary(&mut self, group: usize) -> Result<Option<(usize, String, i64)>, MachineError>;

    /// Runs a script to its end on all ranks at once.
    ///
    /// # Errors
    /// `Invalid` or `NotSupported` before anything is enqueued; `Hang` when ranks are not done by `deadline` or a wait gave up; `Fault`.
    fn run(&mut self, script: &Script, deadline: Duration) -> Result<Run, MachineError>;
}

/// Bytes of canary on either side of every buffer.
pub const GUARD: u64 = 512;

/// What canaries and fresh data buffers hold: no zero, and no float's common NaN.
pub const CANARY: u8 = 0xc5;
