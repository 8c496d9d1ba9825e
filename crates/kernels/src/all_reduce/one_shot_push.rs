//! `all_reduce/one_shot_push`: every rank pushes its input to all in LL lines. See kernels/all_reduce/one_shot_push.cu.

use crate::lines;
use passmuster_plan::{
    algorithms::{
        Algorithm, Protocol, Target,
        kit::{launch, plan_name, reduction, sync_argument_of},
    },
    collective::{Collective, DType},
    contract::Contract,
    modules::Module,
    plan::{Arg, BufferSpec, Call, Plan},
};

/// Push everything to all, reduce in rank order what the peers have pushed: one trip and no barrier, 2 x (world - 1) x bytes into each rank.
pub struct OneShotPush;

const NAME: &str = "one_shot_push";
static MODULE: Module = module!("all_reduce/one_shot_push", sites);

/// The largest input in bytes. Flags double what crosses the link, so it is no use long before that.
const MAX_BYTES: u64 = 512 << 10;

impl Algorithm for OneShotPush {
    fn collective(&self) -> Collective {
        Collective::AllReduce
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn modules(&self) -> Vec<&'static Module> {
        vec![&MODULE]
    }

    fn protocol(&self) -> Protocol {
        Protocol::Lines
    }

    fn contract(&self, _: &Call) -> Contract {
        Contract::ORDERED
    }

    fn check_supported(&self, call: &Call) -> Result<(), String> {
        lines::fits(NAME, "inputs", call.bytes(), MAX_BYTES)
    }

    fn workspace(&self, _: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        lines::buffers(NAME, world, bytes.min(MAX_BYTES))
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some(2 * u64::from(call.world() - 1) * call.bytes())
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let (grid, block) = lines::grid(call.bytes(), target.waiting_blocks);
        let buffers = lines::buffers(NAME, call.world(), call.bytes());
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| {
            let args = vec![
                Arg::Address(call.input.clone()),
                Arg::Address(call.output.clone()),
                Arg::U32(call.count as u32),
                reduction(&MODULE, call),
                sync_argument_of(&buffers, rank, call.world()),
            ];
            vec![launch(&MODULE, call, target, (grid, block), args)]
        })
    }
}
