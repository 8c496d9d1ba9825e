//! `broadcast/multimem`: the root has the switch write its input into every rank's output. See kernels/broadcast/multimem.cu.

use crate::multimem;
use passmuster_plan::{
    algorithms::{
        Algorithm, Target,
        kit::{THREADS, blocks_for, launch, plan_name, sync_argument, synchronisation},
    },
    collective::{Collective, DType},
    contract::Contract,
    modules::Module,
    plan::{Arg, BufferSpec, Call, Plan},
};

/// Read the input once, store it to all by the switch: bytes out of the root and into each rank, one trip between two barriers.
pub struct Multimem;

const NAME: &str = "multimem";
static MODULE: Module = module!("broadcast/multimem", sites);

impl Algorithm for Multimem {
    fn collective(&self) -> Collective {
        Collective::Broadcast
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn modules(&self) -> Vec<&'static Module> {
        vec![&MODULE]
    }

    fn contract(&self, _: &Call) -> Contract {
        Contract::COPIED
    }

    fn check_supported(&self, call: &Call) -> Result<(), String> {
        multimem::has_ranks(call)
    }

    fn workspace(&self, _: DType, _: u32, _: u64) -> Vec<BufferSpec> {
        synchronisation(NAME)
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let grid = blocks_for(call.bytes().div_ceil(16), target.waiting_blocks);
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| {
            let args = vec![
                Arg::Address(call.input.clone()),
                Arg::Multicast(call.output.clone()),
                Arg::U64(call.count),
                Arg::U32(call.root),
                sync_argument(NAME, rank, call.world()),
                Arg::Peers(call.output.clone()),
            ];
            vec![launch(&MODULE, call, target, (grid, THREADS), args)]
        })
    }

    fn uses_multicast(&self) -> bool {
        true
    }
}
