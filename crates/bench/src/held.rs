//! Whether a collective that only copies needs an SM: it is enqueued while blocks hold all of them, until it is done or they have had
//! enough. What gets done then was copied by copy engines, whatever a library says of itself.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::job::{Job, Numbers};
use passmuster_kernels::Holders;
use passmuster_plan::{
    machine::{Machine, MachineError},
    plan::{Script, Step},
};

/// Whether a gather gets done while blocks hold every SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmFreeCheck {
    /// In place: nothing is copied within a device. None where only calls out of place are timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place: Option<bool>,
    /// Out of place: every rank copies what it sends into its own slot, too.
    pub out_of_place: bool,
}

/// How long blocks hold at most: long enough for any gather.
pub(super) const LIMIT: Duration = Duration::from_millis(300);

/// Whether the first call of a job gets done while blocks hold. It is made once before: what is loaded and connected at first use needs
/// SMs of its own.
///
/// # Errors
/// As [`Machine::run`].
pub(super) fn gets_done(machine: &mut dyn Machine, job: &Job, holders: &Holders, deadline: Duration) -> Result<bool, MachineError> {
    let group = machine.open_group(job.world as usize, &job.buffers)?;
    let held = machine.open_group(job.world as usize, &holders.buffers())?;
    let call = Arc::new(job.plans[0].clone());
    let warm = [Arc::new(job.fill(Numbers::Normal)), call.clone()].map(|plan| Step::Enqueue { group, stream: 1, plan });
    machine.run(&Script { steps: warm.to_vec() }, deadline)?;
    machine.run(&Script { steps: holders.around(held, job.world, (group, call), true) }, deadline)?;
    let mut all = true;
    for rank in 0..job.world as usize {
        let words = machine.read(held, rank, &holders.outcomes())?;
        all &= words.chunks_exact(4).all(|word| word == Holders::TOLD.to_le_bytes());
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{How, Late, MatmulWorkload, OverlapContender, Scenario, devices::Devices, method::delay};
    use passmuster_harness::emulator::{Emulator, EmulatorOptions};
    use passmuster_plan::collective::DType;

    /// The emulator has room for all blocks, so that every gather gets done, but one that takes longer than the blocks hold.
    #[test]
    fn blocks_hold_until_they_are_told_or_have_had_enough() {
        let workload = MatmulWorkload {
            scenario: Scenario::Overlap,
            dtype: DType::BF16,
            world: 2,
            n: 8,
            k: 8,
            m: 8,
            gathered: 1024,
            out_of_place: false,
        };
        let see = |name: &str, in_place, microseconds| {
            let mut machine = Emulator::new(EmulatorOptions::of(&passmuster_harness::registry(passmuster_kernels::catalogue())));
            let arm: OverlapContender = name.parse().unwrap();
            assert_eq!(arm.how, How::Gather);
            let mut job = arm.gather(&workload, in_place, &Devices::of(&machine, 2)).unwrap();
            job.plans[0].ranks[1].insert(0, delay(Late { rank: 1, microseconds }));
            let holders = Holders { blocks: 3, shared: 1024, limit: Duration::from_micros(100) };
            gets_done(&mut machine, &job, &holders, Duration::from_secs(60)).unwrap()
        };
        for name in ["gather/copy_engine", "gather/push", "gather/nccl_copy_engine"] {
            for in_place in [true, false] {
                assert!(see(name, in_place, 0), "{name}");
            }
        }
        assert!(!see("gather/copy_engine", true, 200));
    }
}
