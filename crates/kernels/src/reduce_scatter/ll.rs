//! `reduce_scatter/ll`: every rank pushes each peer its slot in LL lines. See kernels/reduce_scatter/ll.cu.

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

/// Push the slots to their ranks, reduce what the peers have pushed in rank order: one trip and no barrier, 2 x (world - 1) slots into each rank.
pub struct Ll;

const NAME: &str = "ll";
static MODULE: Module = module!("reduce_scatter/ll", sites);

/// The largest slot in bytes. Flags double what crosses the link, so it is no use long before that.
const MAX_SLOT: u64 = 256 << 10;

impl Algorithm for Ll {
    fn collective(&self) -> Collective {
        Collective::ReduceScatter
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
        lines::fits(NAME, "slots", call.slot_bytes(), MAX_SLOT)
    }

    fn workspace(&self, _: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        lines::buffers(NAME, world, (bytes / u64::from(world)).min(MAX_SLOT))
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some(2 * u64::from(call.world() - 1) * call.slot_bytes())
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let (grid, block) = lines::grid(call.slot_bytes(), target.waiting_blocks);
        let buffers = lines::buffers(NAME, call.world(), call.slot_bytes());
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| {
            let args = vec![
                Arg::Address(call.input.clone()),
                Arg::Address(call.output_of(rank)),
                Arg::U32(call.count as u32),
                reduction(&MODULE, call),
                sync_argument_of(&buffers, rank, call.world()),
            ];
            vec![launch(&MODULE, call, target, (grid, block), args)]
        })
    }
}
