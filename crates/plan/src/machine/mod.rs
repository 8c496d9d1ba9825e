//! What plans run on. A machine owns groups of ranks and their buffers, runs scripts in bounded time, and says who is stuck.
//!
//! Machines know plans; nothing above knows which machine it has. What all of them do alike is here: `validation` refuses scripts that
//! contradict themselves, `layout` knows the buffers of a group, `arguments` turns a launch's arguments into bytes,
//! `compile` makes of a script what each rank's host does, `trace` writes down what happened when.

pub mod arguments;
mod blame;
pub mod compile;
mod deferred;
mod departure;
mod elapsed;
pub mod layout;
mod stuck;
pub mod trace;
pub mod validation;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use blame::{Blamed, How};
pub use deferred::{Deferred, Pending};
pub use departure::depart;
pub use elapsed::Elapsed;
pub(crate) use stuck::STUCK_FIELDS;
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
    /// GB/s that the links of one GPU carry in one direction, all together; absent where the machine does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_gbps: Option<f64>,
    /// Everything else worth recording, as name and value.
    pub notes: Vec<(String, String)>,
}

impl MachineInfo {
    /// What differs from the devices and the driver of another machine, for people: what that one has, and what this one has.
    pub fn differences(&self, other: &MachineInfo) -> Vec<String> {
        let driver = |machine: &MachineInfo| {
            let note = machine.notes.iter().find(|(name, _)| name == "driver_version").map(|(_, version)| version.clone());
            note.unwrap_or_else(|| machine.driver.clone())
        };
        let pairs = [
            ("GPU", self.gpu.clone(), other.gpu.clone()),
            ("number of GPUs", self.gpus.to_string(), other.gpus.to_string()),
            ("driver", driver(self), driver(other)),
        ];
        pairs.into_iter().filter(|(_, own, there)| own != there).map(|(what, own, there)| format!("{what} {there}, here {own}")).collect()
    }
}

/// How a device fares at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// Which of the machine's devices.
    pub gpu: usize,
    /// Clock of the SMs, in MHz.
    pub sm_mhz: u32,
    /// Clock of the memory, in MHz.
    pub memory_mhz: u32,
    /// What it draws, in watts.
    pub watts: f64,
    /// How hot it is, in degrees Celsius.
    pub celsius: u32,
    /// Why its clocks are held down, in NVML's words: `sw_power_cap`; empty where they are not.
    pub throttled: Vec<String>,
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
    /// A rank cannot share as much of its memory as the ranks need; nothing was enqueued and the machine is as good as before.
    #[error("not supported: {reason}")]
    Unshared {
        /// Which rank.
        rank: usize,
        /// How much, of what, and why not.
        reason: String,
    },
    /// A rank is about to do something else than the others; nothing was enqueued and the machine is as good as before.
    #[error("invalid: {reason}")]
    Differs {
        /// The rank: the first of the fewest that say the same.
        rank: usize,
        /// What they speak of: `count of call 0`.
        field: String,
        /// What it has, what another has, and in what.
        reason: String,
    },
    /// Ranks did not get to the end. The machine must not be used again.
    #[error("hang after {after}: {}", describe_hang(.cause, .stuck, .unfinished, .standing))]
    Hang {
        /// Time from the start of the run until it was given up, by the machine's own clock.
        after: Elapsed,
        /// What the machine knows of why it was given up, in a line; empty where all it knows is that time was up or that waits gave up.
        cause: String,
        /// Waits that gave up, or words that were never signalled.
        stuck: Vec<Stuck>,
        /// Ranks whose streams did not finish.
        unfinished: Box<[usize]>,
        /// Where the warps and streams that did not finish stand, where the machine can see it.
        standing: Vec<String>,
        /// What else is known of ranks than `stuck` and `unfinished` say: see [`MachineError::blamed`].
        #[serde(default)]
        blamed: Box<[Blamed]>,
    },
    /// The run was given up before its end, and nothing is known to be wrong: it may end if it is given more. The machine is as good as before, unless it
    /// runs in threads that may still be held up, as a CUDA machine does, which must not be used again.
    #[error("inconclusive: {reason}")]
    Inconclusive {
        /// Which limit was reached, how far the run came, and what gives it more.
        reason: String,
        /// What is known of ranks.
        #[serde(default)]
        blamed: Box<[Blamed]>,
    },
    /// A kernel or an operation used memory as it must not, in a way that leaves devices as they were. The run ended there.
    #[error("{}", describe_findings(.findings))]
    Finding {
        /// What was done, by which rank and where; at least one.
        findings: Vec<String>,
    },
    /// Accesses race. The run went on, to its end or to what ended it.
    #[error("{}{}", .ended.as_ref().map(|ended| format!("{ended}; besides, ")).unwrap_or_default(), describe_findings(.findings))]
    Races {
        /// Both accesses and what would have ordered them; at least one.
        findings: Vec<String>,
        /// What was found and is waived.
        waived: Vec<Waived>,
        /// What ended the run before its end.
        ended: Option<Box<MachineError>>,
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
        /// What each rank that it is about did, as data.
        #[serde(default)]
        blamed: Box<[Blamed]>,
    },
}

/// Places of warps and streams that the one-line description of a hang names.
const NAMED_PLACES: usize = 4;

fn describe_hang(cause: &str, stuck: &[Stuck], unfinished: &[usize], standing: &[String]) -> String {
    let mut parts: Vec<String> = Vec::new();
    if !cause.is_empty() {
        parts.push(cause.to_owned());
    }
    if !unfinished.is_empty() {
        parts.push(format!("ranks {unfinished:?} did not finish"));
    }
    let mut culprits: Vec<usize> = stuck.iter().map(|s| s.peer).collect();
    culprits.sort_unstable();
    culprits.dedup();
    if !culprits.is_empty() {
        parts.push(format!("{} waits gave up, for ranks {culprits:?}", stuck.len()));
    }
    parts.extend(stuck.iter().take(NAMED_PLACES).map(Stuck::to_string));
    parts.extend(standing.iter().take(NAMED_PLACES).cloned());
    parts.join("; ")
}

fn describe_findings(findings: &[String]) -> String {
    match findings {
        [] => "a finding without a description".into(),
        [one] => one.clone(),
        [first, others @ ..] => format!("{first}; and {} more", others.len()),
    }
}

/// What a finished run leaves besides the contents of the buffers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Device microseconds between consecutive marks of the script: `marks[interval][rank]`.
    pub marks: Vec<Vec<f64>>,
    /// What each rank fetched, in the order of enqueuing: `fetched[rank][fetch]`.
    pub fetched: Vec<Vec<Fetched>>,
    /// What the machine found and waives, each with the assumption that it rests on.
    pub waived: Vec<Waived>,
    /// Undefined values that kernels took, where the machine sees them, each with the place: wrong results may come of them.
    pub undefined: Vec<String>,
    /// Why it is not known whether the vendor's library took the path that was asked for; none where it did, or nothing was asked.
    pub unchecked_path: Option<String>,
}

/// The note of a machine that does not know which path the vendor's library took: why.
pub const UNCHECKED_PATH: &str = "nccl_path_unchecked";

/// What a rank's host got by a [fetch](crate::plan::Op::Fetch).
#[derive(Clone, Debug, PartialEq)]
pub struct Fetched {
    /// What was there.
    pub bytes: Vec<u8>,
    /// Where the host first needed it, if it did while the script ran.
    pub awaited: Option<Awaited>,
}

/// How a host came to what it fetched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Awaited {
    /// Whether it was there when the host first looked.
    pub was_there: bool,
    /// Microseconds for which the host then waited.
    pub blocked: f64,
}

/// A finding that an assumption about the hardware waives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waived {
    /// Name of the assumption.
    pub assumption: String,
    /// What is waived, in general: findings of other runs may be the same.
    pub what: String,
    /// The first of it in full.
    pub first: String,
    /// How often it was seen.
    pub times: u64,
    /// Where, most often first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Needed>,
}

/// The assumptions about the hardware that a machine may waive findings by.
pub const ASSUMPTIONS: [&str; 7] = ["boundary", "dependency", "retired", "vector", "lanes", "returned", "alias"];

/// Where an assumption about the hardware is needed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needed {
    /// The lines of both accesses, in the source if the PTX tells: `a.cu:12 and then a.cu:40`.
    pub at: String,
    /// How often.
    pub times: u64,
}

impl Needed {
    /// Adds places to others, most often first.
    pub fn add(all: &mut Vec<Needed>, more: impl IntoIterator<Item = Needed>) {
        for place in more {
            match all.iter_mut().find(|known| known.at == place.at) {
                Some(known) => known.times += place.times,
                None => all.push(place),
            }
        }
        all.sort_by(|a, b| b.times.cmp(&a.times).then_with(|| a.at.cmp(&b.at)));
    }
}

impl Waived {
    /// Adds what another run waived to a list: the same findings are counted together.
    pub fn add(all: &mut Vec<Waived>, more: Vec<Waived>) {
        for waived in more {
            match all.iter_mut().find(|known| (&known.assumption, &known.what) == (&waived.assumption, &waived.what)) {
                Some(known) => {
                    known.times += waived.times;
                    Needed::add(&mut known.places, waived.places);
                }
                None => all.push(waived),
            }
        }
    }
}

/// Ranks, their memory, and the means to run scripts on them.
pub trait Machine {
    /// What it is.
    fn info(&self) -> MachineInfo;

    /// How its devices fare just now; empty where it cannot tell.
    fn conditions(&self) -> Vec<Condition> {
        Vec::new()
    }

    /// Bytes of its devices' memory in use just now, by whomever; absent where it has no devices, or cannot tell.
    fn device_bytes(&self) -> Option<u64> {
        None
    }

    /// The largest world size it can open.
    fn max_world(&self) -> usize;

    /// The most blocks of one rank that may wait for other ranks' blocks in a group of `world` ranks, `groups` of them at once.
    fn waiting_blocks(&self, world: usize, groups: usize) -> u32;

    /// The same where a case asks for more than usual.
    fn most_waiting_blocks(&self, world: usize, groups: usize) -> u32 {
        self.waiting_blocks(world, groups)
    }

    /// How often the hosts of its ranks have met so far, so that ranks could reach each other's memory: to open a group and, where the vendor's
    /// library wants it, to join a communicator or to register memory with one.
    fn rendezvous(&self) -> u64;

    /// Whether calls of `elements` elements, those of all ranks' inputs together, are too many for this machine to be worth the time:
    /// `NotSupported` says why. Most machines take what fits into memory.
    ///
    /// # Errors
    /// `NotSupported`.
    fn check_budget(&self, elements: u64) -> Result<(), MachineError> {
        let _ = elements;
        Ok(())
    }

    /// The same for products that kernels of this project compute. `multiplications` counts those of elements, on all ranks and in all calls together.
    ///
    /// # Errors
    /// `NotSupported`.
    fn check_multiplications(&self, multiplications: u64) -> Result<(), MachineError> {
        let _ = multiplications;
        Ok(())
    }

    /// Opens a group of `world` ranks with these buffers and returns its number. Each holds its fill, [`CANARY`] where that is nobody's
    /// promise; [`GUARD`] bytes of canary lie before and behind each buffer.
    ///
    /// # Errors
    /// `NotSupported` when there are too few devices or too little memory.
    fn open_group(&mut self, world: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError>;

    /// The same for ranks on `nodes` nodes, as many on each, in rank order: they address each other's memory within a node, and have the vendor's library
    /// between nodes.
    ///
    /// # Errors
    /// As [`Machine::open_group`]; `NotSupported` where the machine's ranks are not on `nodes` nodes.
    fn open_nodes(&mut self, world: usize, nodes: usize, buffers: &[BufferSpec]) -> Result<usize, MachineError> {
        match nodes {
            1 => self.open_group(world, buffers),
            _ => Err(MachineError::NotSupported { reason: format!("{nodes} nodes: all ranks of this machine are on one") }),
        }
    }

    /// Closes all groups; their memory may be used again.
    fn close_groups(&mut self);

    /// Bytes of a region of one rank, when nothing runs.
    ///
    /// # Errors
    /// `Invalid` for a region that the group does not have.
    fn read(&mut self, group: usize, rank: usize, region: &Region) -> Result<Vec<u8>, MachineError>;

    /// The same without waiting for it, where the machine can: the bytes are those that are there now.
    ///
    /// # Errors
    /// As [`Machine::read`]; what goes wrong on the way is said where the value is used.
    fn fetch(&mut self, group: usize, rank: usize, region: &Region) -> Result<Deferred<Vec<u8>>, MachineError> {
        self.read(group, rank, region).map(Deferred::ready)
    }

    /// Sets the bytes of a region of one rank, when nothing runs.
    ///
    /// # Errors
    /// `Invalid` for a region that the group does not have, or another length.
    fn write(&mut self, group: usize, rank: usize, region: &Region, bytes: &[u8]) -> Result<(), MachineError>;

    /// The first byte outside any buffer that lost its canary, if any: rank, buffer beside it, and distance in bytes from the buffer's start
    /// (negative before it). `None` also on a machine that refuses every access outside a buffer.
    ///
    /// # Errors
    /// `Fault` when memory cannot be read.
    fn broken_canary(&mut self, group: usize) -> Result<Option<(usize, String, i64)>, MachineError>;

    /// Runs a script to its end on all ranks at once.
    ///
    /// # Errors
    /// `Invalid` or `NotSupported` before anything is enqueued; `Hang` when ranks are not done by `deadline` or a wait gave up; `Fault`;
    /// `Finding` and `Races` where the machine sees how memory is used.
    fn run(&mut self, script: &Script, deadline: Duration) -> Result<Run, MachineError>;
}

/// Bytes of canary on either side of every buffer.
pub const GUARD: u64 = 512;

/// The most bytes of a group's buffers on one rank: more than any device has, and far from where sums of offsets overflow.
pub const MOST_GROUP_BYTES: u64 = 1 << 46;

/// What canaries and fresh data buffers hold: no zero, and no float's common NaN.
pub const CANARY: u8 = 0xc5;

/// Times by interval and rank from times by rank and interval. A rank that left before a mark has no number there.
pub fn intervals(of_rank: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let most = of_rank.iter().map(Vec::len).max().unwrap_or(0);
    (0..most).map(|interval| of_rank.iter().map(|times| times.get(interval).copied().unwrap_or(f64::NAN)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_that_left_have_no_times() {
        let marks = intervals(&[vec![1.0, 2.0], vec![3.0]]);
        assert_eq!(marks[0], [1.0, 3.0]);
        assert!(marks[1][0] == 2.0 && marks[1][1].is_nan());
        assert!(intervals(&[]).is_empty());
    }
}
