//! What records keep of a measurement: the cases of a record of `bench`.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Fsdp, IN_PROCESSES, Method, SmFreeCheck, Summary, Workload, statistics::rounded};
use passmuster_harness::conformance::{Status, report::RecordCase};
use passmuster_plan::{machine::Condition, modules::FOREIGN};

impl RecordCase for Timing {}

/// One contender at one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Name of the algorithm.
    pub contender: String,
    /// What was timed.
    pub workload: Workload,
    /// How.
    pub method: Method,
    /// `pass` where there is a time and nothing was found.
    pub status: Status,
    /// Why there is no time, or what was found.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Microseconds of a call in a captured graph.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub microseconds: Option<Summary>,
    /// Microseconds of a call that the host enqueues, its launch included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eager: Option<Summary>,
    /// Microseconds of the products within a call that the host enqueues, where these are of interest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub products: Option<Summary>,
    /// Whether a gather gets done while blocks hold every SM; of gathers beside products.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<SmFreeCheck>,
    /// How often ranks met; of training steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rendezvous: Option<Rendezvous>,
    /// How hosts came to what they waited for; of pipelines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// GB/s at the median in a graph, as nccl-tests defines them; of collectives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algbw_busbw: Option<(f64, f64)>,
    /// What crosses the links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<Wire>,
    /// What was judged before, in the same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
    /// How the GPUs fared meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Conditions>,
}

/// Whose a contender is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Passmuster's own.
    Ours,
    /// Somebody else's.
    Peer,
    /// Nobody's in the contest: part of the work only, which the others are compared with, or a contender once more with ranks in processes of their own.
    Part,
}

/// Whose the contender of a name is.
pub fn side(workload: &Workload, contender: &str) -> Side {
    let of_peer = |name: &str| ["nccl_", "torch_"].iter().any(|peer| name.starts_with(peer));
    let peer = contender.starts_with(FOREIGN) || contender.split(['/', '+']).any(of_peer);
    let part = match workload {
        // Compared with the same in threads: it would have a second chance to be the fastest.
        Workload::Collective(_) => contender.ends_with(IN_PROCESSES),
        Workload::Matmul(of) => of.is_part(contender),
        // Controls.
        Workload::Pipeline(_) => ["apart/", "behind/"].iter().any(|order| contender.starts_with(order)),
        Workload::Fsdp(_) => contender == Fsdp::PRODUCTS.name(),
    };
    match (part, peer) {
        (true, _) => Side::Part,
        (false, true) => Side::Peer,
        (false, false) => Side::Ours,
    }
}

/// What a call takes over the links of the rank that has most of them, in the busier direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wire {
    /// Bytes, flags included.
    pub bytes: u64,
    /// GB/s at the median in a graph.
    pub gbps: f64,
}

/// How often the hosts of all ranks met, so that ranks could reach each other's memory, and for how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rendezvous {
    /// Times: when buffers were opened and, with NCCL, communicators joined and windows registered.
    pub met: u64,
    /// Steps that were taken on what that gave.
    pub steps: u64,
}

/// How hosts came to what they waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// Microseconds for which the host of a rank waited in one call, all its waits together: of the rank whose host waited longest.
    pub blocked: Summary,
    /// How often a host looked for something before it waited, in all rounds.
    pub looked: u64,
    /// How often it was not there yet.
    pub not_there: u64,
}

/// What was judged in the same run as the times were taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The id of a case, or what was looked at. For sizes above those that are worth judging again, a case of the same algorithm at the largest
    /// that is.
    pub case: String,
    /// What became of it.
    pub status: Status,
}

/// How the GPUs fared over the rounds of a measurement, looked at after each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// Least and greatest clock of the SMs, in MHz.
    pub sm_mhz: (u32, u32),
    /// Least and greatest clock of the memory, in MHz.
    pub memory_mhz: (u32, u32),
    /// The most that one GPU drew, in watts.
    pub watts: f64,
    /// The hottest, in degrees Celsius.
    pub celsius: u32,
    /// Why clocks were held down on any of them; empty where they were not.
    pub throttled: BTreeSet<String>,
}

impl Conditions {
    /// The extremes of all; `None` where nobody looked.
    pub fn of(all: &[Condition]) -> Option<Conditions> {
        let range = |of: fn(&Condition) -> u32| Some((all.iter().map(of).min()?, all.iter().map(of).max()?));
        Some(Conditions {
            sm_mhz: range(|condition| condition.sm_mhz)?,
            memory_mhz: range(|condition| condition.memory_mhz)?,
            watts: all.iter().map(|condition| condition.watts).fold(0.0, f64::max),
            celsius: all.iter().map(|condition| condition.celsius).max()?,
            throttled: all.iter().flat_map(|condition| condition.throttled.iter().cloned()).collect(),
        })
    }
}

impl Timing {
    /// A contender that has not been timed.
    pub fn new(contender: impl Into<String>, workload: impl Into<Workload>, method: Method) -> Timing {
        Timing {
            contender: contender.into(),
            workload: workload.into(),
            method,
            status: Status::NotRun,
            reason: String::new(),
            microseconds: None,
            eager: None,
            products: None,
            held: None,
            rendezvous: None,
            waits: None,
            algbw_busbw: None,
            wire: None,
            check: None,
            conditions: None,
        }
    }

    /// Enters the samples of all rounds, and `link_bytes` where the algorithm says what it takes over the links.
    pub fn enter(&mut self, graph: &[Vec<f64>], eager: &[Vec<f64>], link_bytes: Option<u64>) {
        (self.microseconds, self.eager) = (Summary::of(graph), Summary::of(eager));
        // A time of 0, as the emulator has it, is no bandwidth.
        let Some(median) = self.microseconds.as_ref().map(|times| times.median).filter(|&median| median > 0.0) else { return };
        self.algbw_busbw =
            self.workload.collective().map(|of| of.bandwidths(median)).map(|(algorithm, bus)| (rounded(algorithm), rounded(bus)));
        self.wire = link_bytes.map(|bytes| Wire { bytes, gbps: rounded(bytes as f64 / median / 1e3) });
    }

    /// Whose it is.
    pub fn side(&self) -> Side {
        side(&self.workload, &self.contender)
    }

    /// Whether it is a peer's.
    pub fn is_peer(&self) -> bool {
        self.side() == Side::Peer
    }

    /// Whether its results were judged in the same run and are right.
    pub fn is_judged(&self) -> bool {
        self.check.as_ref().is_some_and(|check| check.status == Status::Pass)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_the_extremes() {
        let of = |sm_mhz, watts, throttled: &[&str]| Condition {
            gpu: 0,
            sm_mhz,
            memory_mhz: 3201,
            watts,
            celsius: 40,
            throttled: throttled.iter().map(|&reason| reason.to_owned()).collect(),
        };
        let all = Conditions::of(&[of(1980, 300.0, &[]), of(1755, 690.5, &["sw_power_cap"]), of(1900, 400.0, &[])]).unwrap();
        assert_eq!((all.sm_mhz, all.memory_mhz, all.watts), ((1755, 1980), (3201, 3201), 690.5));
        assert_eq!(all.throttled, ["sw_power_cap".to_owned()].into());
        assert_eq!(Conditions::of(&[]), None);
    }
}
