//! `all_reduce/two_shot_push`: every rank reduces its slice and pushes it to all, in LL lines. See
//! kernels/all_reduce/two_shot_push.cu.

use crate::lines;
use passmuster_plan::{
    algorithms::{
        Algorithm, Protocol, Target,
        kit::{launch, plan_name, reduction, sync_argument_of},
    },
    collective::{Collective, DType},
    contract::Contract,
    modules::{Module, OwnEntries},
    plan::{Arg, BufferSpec, Call, Plan},
};

/// Push the slices to their ranks, reduce the own one in rank order, push it to all: two trips and no barrier, 4 x (world - 1) / world x bytes into
/// each rank.
pub struct TwoShotPush;

const NAME: &str = "two_shot_push";
static MODULE: Module = module!("all_reduce/two_shot_push", sites).with_entries(OwnEntries::Sums);

/// The largest slice in bytes. Flags double what crosses the link, so it is no use long before that.
const MAX_SLICE: u64 = 1 << 20;

/// Bytes of the slice of each rank: whole lines.
fn slice(bytes: u64, world: u32) -> u64 {
    bytes.div_ceil(lines::PAYLOAD).div_ceil(u64::from(world)) * lines::PAYLOAD
}

impl Algorithm for TwoShotPush {
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
        lines::fits(NAME, "inputs", call.bytes(), MAX_SLICE * u64::from(call.world()))
    }

    fn workspace(&self, _: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        lines::buffers(NAME, world, slice(bytes, world).min(MAX_SLICE))
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some(4 * u64::from(call.world() - 1) * slice(call.bytes(), call.world()))
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let slice = slice(call.bytes(), call.world());
        let (grid, block) = lines::grid(slice, target.waiting_blocks);
        let buffers = lines::buffers(NAME, call.world(), slice);
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
