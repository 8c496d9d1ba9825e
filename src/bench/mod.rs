//! Timing: how long calls take on a machine, by device events around replays of a captured graph, the slowest rank of each.

mod statistics;

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

pub use statistics::{Summary, summarize};

use crate::{
    algorithms::{Algorithm, Target},
    collective::{Collective, DType, ReduceOp, Shape},
    machine::{Machine, MachineError},
    plan::{Build, Call, Script, Step},
};

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// How it is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Method {
    /// Calls in one graph.
    pub calls: u32,
    /// Timed replays of the graph.
    pub replays: u32,
    /// Replays before the first timed one.
    pub warm_up: u32,
}

impl Method {
    /// A method that keeps one measurement of `bytes` well under a second.
    pub fn for_bytes(bytes: u64) -> Method {
        Method { calls: if bytes >= 16 << 20 { 4 } else { 20 }, replays: 15, warm_up: 3 }
    }
}

/// Microseconds of one call in each timed replay: elapsed device time of the slowest rank over the number of calls. Inputs are
/// whatever the buffers hold; conformance is judged elsewhere.
///
/// # Errors
/// `NotSupported` where the algorithm cannot do the call, otherwise as [`Machine::run`].
pub fn measure(
    machine: &mut dyn Machine,
    algorithm: &dyn Algorithm,
    workload: &Workload,
    method: &Method,
    deadline: Duration,
) -> Result<Vec<f64>, MachineError> {
    let Workload { collective, dtype, op, world, bytes } = *workload;
    let slots = Shape::new(collective, world, 1).larger();
    // As nccl-tests does: slots are whole packs where they are not less than one.
    let (elements, pack) = (bytes / slots / dtype.size(), 16 / dtype.size());
    let shape = Shape::new(collective, world, if elements > pack { elements / pack * pack } else { elements });
    let (call, buffers) = Call::on_its_own(shape, dtype, op).map_err(|error| MachineError::Invalid { reason: error.to_string() })?;
    let mut buffers = buffers.to_vec();
    buffers.extend(algorithm.workspace(dtype, world, call.bytes()));
    algorithm.supports(&call).map_err(|reason| MachineError::NotSupported { reason })?;

    machine.close_groups();
    let target = Target { build: Build::Release, waiting_blocks: machine.waiting_blocks(world as usize, 1) };
    let group = machine.open_group(world as usize, &buffers)?;
    let plan = Arc::new(algorithm.plan(&call, &target));
    let mut steps = vec![Step::Capture { graph: 0, group, plans: vec![plan; method.calls as usize] }];
    let replay = || Step::Replay { graph: 0, stream: 0 };
    steps.extend((0..method.warm_up).map(|_| replay()));
    steps.push(Step::Mark);
    for _ in 0..method.replays {
        steps.extend([replay(), Step::Mark]);
    }
    let run = machine.run(&Script { steps }, deadline)?;
    let slowest = |ranks: &Vec<f64>| ranks.iter().copied().fold(0.0, f64::max);
    Ok(run.marks.iter().map(|ranks| slowest(ranks) / f64::from(method.calls)).collect())
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
}
