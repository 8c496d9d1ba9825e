//! What records keep of a measurement: the cases of a record of `bench`.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Method, Summary};
use crate::{
    collective::{Collective, DType, ReduceOp, Shape},
    conformance::Status,
    machine::Condition,
};

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Workload {
    /// The collective.
    pub collective: Collective,
    /// Type of the elements.
    pub dtype: DType,
    /// How they are combined.
    pub op: ReduceOp,
    /// Ranks.
    pub world: u32,
    /// Bytes of each rank's input or output, whichever is larger: what nccl-tests calls the size.
    pub bytes: u64,
}

impl Workload {
    /// The call in elements. As nccl-tests does: slots are whole packs of 16 bytes where they are not less than one.
    pub fn shape(&self) -> Shape {
        let slots = Shape::new(self.collective, self.world, 1).larger();
        let (elements, pack) = (self.bytes / slots / self.dtype.size(), 16 / self.dtype.size());
        Shape::new(self.collective, self.world, if elements > pack { elements / pack * pack } else { elements })
    }
}

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
    /// GB/s at the median in a graph, as nccl-tests defines them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algbw_busbw: Option<(f64, f64)>,
    /// What crosses the links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<Wire>,
    /// The case that was judged before, in the same run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
    /// How the GPUs fared meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conditions: Option<Conditions>,
}

/// What a call takes over the links of the rank that has most of them, in the busier direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wire {
    /// Bytes, flags included.
    pub bytes: u64,
    /// GB/s at the median in a graph.
    pub gbps: f64,
}

/// A case that was judged in the same run as the times were taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Its id. For sizes above those that are worth judging again, a case of the same algorithm at the largest that is.
    pub case: String,
    /// What became of it.
    pub status: Status,
}

/// How the GPUs fared over the rounds of a measurement, looked at after each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// Least and greatest clock of the multiprocessors, in MHz.
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
    pub fn new(contender: impl Into<String>, workload: Workload, method: Method) -> Timing {
        Timing {
            contender: contender.into(),
            workload,
            method,
            status: Status::NotRun,
            reason: String::new(),
            microseconds: None,
            eager: None,
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
        self.algbw_busbw = Some(bandwidths(&self.workload, median));
        self.wire = link_bytes.map(|bytes| Wire { bytes, gbps: bytes as f64 / median / 1e3 });
    }

    /// Whether it is a peer's.
    pub fn is_peer(&self) -> bool {
        self.contender.starts_with("nccl_")
    }

    /// Whether its results were judged in the same run and are right.
    pub fn is_judged(&self) -> bool {
        self.check.as_ref().is_some_and(|check| check.status == Status::Pass)
    }
}

/// Bytes over the time, in GB/s, times what of them crosses the slowest link: nccl-tests' algbw and busbw.
pub fn bandwidths(workload: &Workload, microseconds: f64) -> (f64, f64) {
    let algorithm = workload.bytes as f64 / microseconds / 1e3;
    let world = f64::from(workload.world);
    let factor = match workload.collective {
        Collective::AllReduce => 2.0 * (world - 1.0) / world,
        Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => (world - 1.0) / world,
        Collective::Broadcast | Collective::Reduce => 1.0,
    };
    (algorithm, algorithm * factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use approx::assert_relative_eq;
    use rstest::rstest;

    #[rstest]
    #[case::all_reduce(Collective::AllReduce, ReduceOp::Sum, 1355.0, 198.1, 346.7)]
    #[case::all_gather(Collective::AllGather, ReduceOp::Copy, 699.0, 384.0, 336.0)]
    #[case::reduce_scatter(Collective::ReduceScatter, ReduceOp::Sum, 753.0, 356.5, 311.9)]
    #[case::broadcast(Collective::Broadcast, ReduceOp::Copy, 699.0, 384.0, 384.0)]
    #[case::all_to_all(Collective::AllToAll, ReduceOp::Copy, 699.0, 384.0, 336.0)]
    fn bus_bandwidth_is_that_of_nccl_tests(
        #[case] collective: Collective,
        #[case] op: ReduceOp,
        #[case] microseconds: f64,
        #[case] algbw: f64,
        #[case] busbw: f64,
    ) {
        let workload = Workload { collective, dtype: DType::BF16, op, world: 8, bytes: 256 << 20 };
        let (algorithm, bus) = bandwidths(&workload, microseconds);
        assert_relative_eq!(algorithm, algbw, epsilon = 0.1);
        assert_relative_eq!(bus, busbw, epsilon = 0.1);
    }

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
