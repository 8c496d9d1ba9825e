//! `reduce_scatter/multimem`: every rank has the switch reduce its slot. See kernels/reduce_scatter/multimem.cu.

use crate::{
    algorithms::{Algorithm, THREADS, Target, blocks_for, launch, multimem, plan_name, sync_argument, synchronisation},
    collective::{Collective, DType},
    contract::Contract,
    plan::{Arg, BufferSpec, Call, Plan},
};

/// Load the own slot reduced by the switch: world x bytes out of each rank and bytes into it, one trip between two barriers.
pub struct Multimem;

const NAME: &str = "multimem";
const MODULE: &str = "reduce_scatter/multimem";

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

    fn supports(&self, call: &Call) -> Result<(), String> {
        multimem::reduces(call)
    }

    fn workspace(&self, _: DType, _: u32, _: u64) -> Vec<BufferSpec> {
        synchronisation(NAME)
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let grid = blocks_for(call.slot_bytes().div_ceil(16), target.waiting_blocks);
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| {
            let args = vec![
                Arg::Multicast(call.input.clone()),
                Arg::Peers(call.input.clone()),
                Arg::Address(call.output_of(rank)),
                Arg::U64(call.count),
                sync_argument(NAME, rank, call.world()),
            ];
            vec![launch(MODULE, call, target, (grid, THREADS), args)]
        })
    }

    fn uses_multicast(&self) -> bool {
        true
    }
}
