//! What a run that did not end well says of its ranks, as data. Verdicts on injected faults go by this, and not by what messages say.

use serde::{Deserialize, Serialize};

use super::{MachineError, Stuck};

/// A rank, and what a run that did not end well says of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blamed {
    /// The rank; absent if it is the process that all ranks are in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
    /// What it did, or what befell it.
    pub how: How,
    /// The wait that says so: the first of those that gave up for this rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Stuck>,
}

/// What a rank did, or what befell it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// A wait in another rank's kernel gave up waiting for it.
    Awaited,
    /// It did not get to the end of its script.
    Unfinished,
    /// The script had it leave before it came to what others wait in.
    Absent,
    /// Its kernel trapped. GPUs do not tell that from other failures of a launch.
    Trapped,
    /// Its kernel accessed memory that is not there.
    IllegalAddress {
        /// The kernel, if the machine knows it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kernel: Option<String>,
    },
    /// Another call or kernel of it failed.
    Failed,
    /// A signal ended its process.
    Killed {
        /// Its number.
        signal: i32,
    },
    /// A signal has stopped its process.
    Stopped {
        /// Its number.
        signal: i32,
    },
    /// Its process exited.
    Exited {
        /// With this status.
        status: i32,
    },
    /// Its process panicked.
    Panicked,
    /// Its process gave up.
    GaveUp,
    /// Its process did not come in time.
    Late,
    /// Its process sent what is no message.
    Garbage,
    /// Its process left, or its connection ended, in another way.
    Lost,
    /// It could not share as much memory as the ranks need.
    Unshared,
    /// It was about to do something else than the other ranks.
    Differs {
        /// In this field: `count of call 0`.
        field: String,
    },
    /// Its address was in use.
    AddressInUse,
    /// It reports the failure of the job that the coordinator saw.
    Agrees,
    /// It reports nothing of that failure.
    Silent,
    /// It reports another failure, or that it was done.
    Disagrees,
}

impl Blamed {
    /// A rank, by what it did.
    pub fn new(rank: usize, how: How) -> Blamed {
        Blamed { rank: Some(rank), how, at: None }
    }

    /// The process that all ranks are in, by what it did.
    pub fn process(how: How) -> Blamed {
        Blamed { rank: None, how, at: None }
    }
}

impl MachineError {
    /// What it says of ranks: what it was made with, who is waited for, and who did not finish. One entry a rank and kind.
    pub fn blamed(&self) -> Vec<Blamed> {
        match self {
            MachineError::Hang { stuck, unfinished, blamed, .. } => {
                let mut all = blamed.to_vec();
                for wait in stuck {
                    if !all.iter().any(|other| other.how == How::Awaited && other.rank == Some(wait.peer)) {
                        all.push(Blamed { at: Some(wait.clone()), ..Blamed::new(wait.peer, How::Awaited) });
                    }
                }
                all.extend(unfinished.iter().map(|&rank| Blamed::new(rank, How::Unfinished)));
                all
            }
            MachineError::Fault { blamed, .. } | MachineError::Inconclusive { blamed, .. } => blamed.to_vec(),
            MachineError::Races { ended, .. } => ended.as_deref().map(MachineError::blamed).unwrap_or_default(),
            MachineError::Unshared { rank, .. } => vec![Blamed::new(*rank, How::Unshared)],
            MachineError::Differs { rank, field, .. } => vec![Blamed::new(*rank, How::Differs { field: field.clone() })],
            MachineError::NotSupported { .. } | MachineError::Invalid { .. } | MachineError::Finding { .. } => Vec::new(),
        }
    }

    /// The fault of one rank, of which no more is known than that a call or a kernel failed.
    pub fn fault(rank: usize, what: impl Into<String>, code: impl Into<String>) -> MachineError {
        MachineError::fault_of(vec![rank], How::Failed, what, code)
    }

    /// A fault that these ranks saw, for the same reason.
    pub fn fault_of(ranks: Vec<usize>, how: How, what: impl Into<String>, code: impl Into<String>) -> MachineError {
        let blamed = ranks.iter().map(|&rank| Blamed::new(rank, how.clone())).collect();
        MachineError::Fault { ranks, what: what.into(), code: code.into(), blamed }
    }

    /// A run that was given up of which nothing is known of any rank.
    pub fn inconclusive(reason: impl Into<String>) -> MachineError {
        MachineError::Inconclusive { reason: reason.into(), blamed: Box::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{Elapsed, Site};

    /// If this fails, a verdict does not know for whom a hang waited, or names a rank once for each of its blocks.
    #[test]
    fn hang_names_awaited_ranks_once() {
        let wait = |block, peer| Stuck { report: "a.stuck".into(), rank: 0, peer, block, site: Site::End, want: 3, saw: 2 };
        let stuck = vec![wait(0, 2), wait(1, 2), wait(0, 1)];
        let absent = Box::new([Blamed::new(1, How::Absent)]);
        let hang = MachineError::Hang {
            after: Elapsed::EmulatedNs(1),
            cause: String::new(),
            stuck,
            unfinished: [0].into(),
            standing: Vec::new(),
            blamed: absent,
        };
        let awaited = |peer| Blamed { at: Some(wait(0, peer)), ..Blamed::new(peer, How::Awaited) };
        let expected = [Blamed::new(1, How::Absent), awaited(2), awaited(1), Blamed::new(0, How::Unfinished)];
        assert_eq!(hang.blamed(), expected);
        let races = MachineError::Races { findings: vec!["a race".into()], waived: Vec::new(), ended: Some(Box::new(hang)) };
        assert_eq!(races.blamed(), expected);
    }
}
