//! Blocks that hold SMs: whether what is enqueued meanwhile gets done says whether it needs one. See kernels/conformance/hold.cu.

use std::{sync::Arc, time::Duration};

use passmuster_plan::device::DeviceModel;
use passmuster_plan::plan::{Arg, BufferSpec, Launch, Op, Plan, Region, Role, Step};

/// Blocks on each rank that hold SMs: how many, with how much shared memory each, and for how long at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holders {
    /// Blocks of a rank.
    pub blocks: u32,
    /// Bytes of dynamic shared memory of each.
    pub shared: u32,
    /// After which time they give up.
    pub limit: Duration,
}

impl Holders {
    /// The word that a block leaves that was told to go.
    pub const TOLD: u32 = 1;
    /// The word that a block leaves that gave up.
    pub const GAVE_UP: u32 = 2;

    /// One block on each of `sms` SMs. It has all the shared memory there is but the KiB that each block is charged besides: from compute
    /// capability 9.0 on, no other block fits beside it.
    pub const fn of_all(sms: u32, limit: Duration) -> Holders {
        Holders { blocks: sms, shared: DeviceModel::MEASURED.shared_per_block, limit }
    }

    /// What a group of theirs has.
    pub fn buffers(&self) -> [BufferSpec; 3] {
        [("holding", 1), ("told", 1), ("outcomes", self.blocks)]
            .map(|(name, words)| BufferSpec::new(name, 4 * u64::from(words), Role::State))
    }

    /// Where a rank's blocks leave how they came to go: a word each.
    pub fn outcomes(&self) -> Region {
        let [.., outcomes] = self.buffers();
        outcomes.whole()
    }

    /// Has the blocks of `world` ranks hold on stream 0, in their group `held`, and a plan of another group done on stream 1 when all of a rank's
    /// blocks do. `tells` them to go when it is done there.
    pub fn around(&self, held: usize, world: u32, (group, plan): (usize, Arc<Plan>), tells: bool) -> Vec<Step> {
        let [holding, told, outcomes] = self.buffers().map(|buffer| buffer.whole());
        let each = |stream, name: &str, op: Op| {
            let plan = Arc::new(Plan::per_rank(name, world, |_| vec![op.clone()]));
            Step::Enqueue { group: held, stream, plan }
        };
        let hold = Op::Launch(Launch {
            module: "conformance/hold".into(),
            entry: "hold".into(),
            grid: self.blocks.into(),
            block: 1.into(),
            cluster: None,
            dynamic_shared: self.shared,
            waits_for_peers: false,
            programmatic: false,
            registers: None,
            variables: Vec::new(),
            args: vec![
                Arg::Address(holding.clone()),
                Arg::Address(told.clone()),
                Arg::Address(outcomes),
                Arg::U64(self.limit.as_nanos() as u64),
            ],
        });
        let mut steps = vec![
            each(0, "hold", hold),
            each(1, "all hold", Op::WaitValue { at: holding, value: self.blocks }),
            Step::Enqueue { group, stream: 1, plan },
        ];
        steps.extend(tells.then(|| each(1, "tell", Op::WriteValue { to: told, value: 1, to_rank: None })));
        steps
    }
}
