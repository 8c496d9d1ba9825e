//! `reduce_scatter/multimem`: every rank has the switch reduce its slot. See kernels/all_reduce/multimem_one_shot.cu.

use crate::{all_reduce::multimem_one_shot, multimem};
use passmuster_plan::{
    algorithms::{
        Algorithm, Target,
        kit::{THREADS, blocks_for, launch, plan_name, slot, sync_argument, synchronisation},
    },
    collective::{Collective, DType},
    contract::Contract,
    plan::{Arg, BufferSpec, Call, Plan},
};

/// Load the own slot reduced by the switch: world x bytes out of each rank and bytes into it, one trip between two barriers.
pub struct Multimem;

const NAME: &str = "multimem";

impl Algorithm for Multimem {
    fn collective(&self) -> Collective {
        Collective::ReduceScatter
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn contract(&self, call: &Call) -> Contract {
        multimem::contract(call)
    }

    fn check_supported(&self, call: &Call) -> Result<(), String> {
        multimem::reduces(call)
    }

    fn workspace(&self, _: DType, _: u32, _: u64) -> Vec<BufferSpec> {
        synchronisation(NAME)
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let grid = blocks_for(call.slot_bytes().div_ceil(16), target.waiting_blocks);
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| {
            let input = slot(&call.input, rank, call.slot_bytes());
            let args = vec![
                Arg::Multicast(input.clone()),
                Arg::Address(call.output_of(rank)),
                Arg::U64(call.count),
                sync_argument(NAME, rank, call.world()),
                Arg::Peers(input),
            ];
            vec![launch(&multimem_one_shot::MODULE, call, target, (grid, THREADS), args)]
        })
    }

    fn uses_multicast(&self) -> bool {
        true
    }
}
