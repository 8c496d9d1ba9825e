//! Whether a gather needs a multiprocessor: it is enqueued while blocks hold all of them, until it is done or they have had enough. What gets
//! done then was copied by copy engines, whatever a library says of itself. See kernels/conformance/hold.cu.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::job::{Job, Numbers};
use crate::{
    machine::{Machine, MachineError},
    plan::{Arg, BufferSpec, Build, Launch, Op, Plan, Role, Script, Step},
};

/// Whether a gather gets done while blocks hold every multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// In place: nothing is copied within a device.
    pub in_place: bool,
    /// Out of place: every rank copies what it sends into its own slot, too.
    pub out_of_place: bool,
}

/// Blocks that hold: so many on each rank, each with so many bytes of shared memory and for so long at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holders {
    pub(super) blocks: u32,
    pub(super) shared: u32,
    pub(super) limit: Duration,
}

/// How a block that was told went. Mirrors kernels/conformance/hold.cu.
const TOLD: u32 = 1;

impl Holders {
    /// One block on each of so many multiprocessors, with the shared memory that no other fits beside on Hopper: all but the KiB that each block
    /// is charged besides. Long enough for any gather.
    pub(super) const fn of_all(multiprocessors: u32) -> Holders {
        Holders { blocks: multiprocessors, shared: 227 << 10, limit: Duration::from_millis(300) }
    }

    fn words(&self) -> [BufferSpec; 3] {
        [("holding", 1), ("told", 1), ("outcomes", self.blocks)]
            .map(|(name, words)| BufferSpec::new(name, 4 * u64::from(words), Role::State))
    }

    fn hold(&self) -> Op {
        let [holding, told, outcomes] = self.words().map(|buffer| Arg::Address(buffer.whole()));
        Op::Launch(Launch {
            module: "conformance/hold".into(),
            entry: "hold".into(),
            build: Build::Release,
            grid: self.blocks,
            block: 1,
            dynamic_shared: self.shared,
            waits_for_peers: false,
            args: vec![holding, told, outcomes, Arg::U64(self.limit.as_nanos() as u64)],
        })
    }

    /// Whether the first call of a job gets done while the blocks hold. It is made once before: what is loaded and connected at first use needs
    /// multiprocessors of its own.
    ///
    /// # Errors
    /// As [`Machine::run`].
    pub(super) fn see(&self, machine: &mut dyn Machine, job: &Job, deadline: Duration) -> Result<bool, MachineError> {
        let group = machine.open_group(job.world as usize, &job.buffers)?;
        let held = machine.open_group(job.world as usize, &self.words())?;
        let [holding, told, outcomes] = self.words().map(|buffer| buffer.whole());
        let call = Arc::new(job.plans[0].clone());
        let warm = [Arc::new(job.fill(Numbers::Normal)), call.clone()].map(|plan| Step::Enqueue { group, stream: 1, plan });
        machine.run(&Script { steps: warm.to_vec() }, deadline)?;
        let each = |name: &str, op: Op| Arc::new(Plan::per_rank(name, job.world, |_| vec![op.clone()]));
        let steps = vec![
            Step::Enqueue { group: held, stream: 0, plan: each("hold", self.hold()) },
            Step::Enqueue { group: held, stream: 1, plan: each("all hold", Op::WaitValue { at: holding, value: self.blocks }) },
            Step::Enqueue { group, stream: 1, plan: call },
            Step::Enqueue { group: held, stream: 1, plan: each("tell", Op::WriteValue { to: told, value: 1, to_rank: None }) },
        ];
        machine.run(&Script { steps }, deadline)?;
        let mut all = true;
        for rank in 0..job.world as usize {
            let words = machine.read(held, rank, &outcomes)?;
            all &= words.chunks_exact(4).all(|word| word == TOLD.to_le_bytes());
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bench::{Arm, How, Late, MatmulWorkload, Scenario, contender::Devices, method::delay},
        collective::DType,
        emulator::{Emulator, EmulatorOptions},
    };

    /// The emulator has room for all blocks, so that every gather gets done, but one that takes longer than the blocks hold.
    #[test]
    fn blocks_hold_until_they_are_told_or_have_had_enough() {
        let workload = MatmulWorkload { scenario: Scenario::Overlap, dtype: DType::BF16, world: 2, n: 8, k: 8, m: 8, gathered: 1024 };
        let see = |name: &str, in_place, microseconds| {
            let mut machine = Emulator::new(EmulatorOptions::default());
            let arm: Arm = name.parse().unwrap();
            assert_eq!(arm.how, How::Gather);
            let mut job = arm.gather(&workload, in_place, &Devices::of(&machine, 2)).unwrap();
            job.plans[0].ranks[1].insert(0, delay(Late { rank: 1, microseconds }));
            let holders = Holders { blocks: 3, shared: 1024, limit: Duration::from_micros(100) };
            holders.see(&mut machine, &job, Duration::from_secs(60)).unwrap()
        };
        for name in ["gather/copy_engine", "gather/push", "gather/nccl_copy_engine"] {
            for in_place in [true, false] {
                assert!(see(name, in_place, 0), "{name}");
            }
        }
        assert!(!see("gather/copy_engine", true, 200));
    }
}
