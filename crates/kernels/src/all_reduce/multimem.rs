//! `all_reduce/multimem`: every rank has the switch reduce its slice and write it to all. See kernels/all_reduce/multimem.cu.

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

/// Load the own slice reduced by the switch, store it to all: (1 + 1 / world) x bytes each way over each rank's link.
pub struct Multimem;

const NAME: &str = "multimem";
static MODULE: Module = module!("all_reduce/multimem", sites);

impl Algorithm for Multimem {
    fn collective(&self) -> Collective {
        Collective::AllReduce
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn modules(&self) -> Vec<&'static Module> {
        vec![&MODULE]
    }

    /// One rank computes each element and all get it.
    fn contract(&self, call: &Call) -> Contract {
        Contract { equal_across_ranks: true, ..multimem::contract(call) }
    }

    fn check_supported(&self, call: &Call) -> Result<(), String> {
        multimem::reduces(call)
    }

    fn workspace(&self, _: DType, _: u32, _: u64) -> Vec<BufferSpec> {
        synchronisation(NAME)
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let slice = call.bytes().div_ceil(16).div_ceil(u64::from(call.world()));
        let grid = blocks_for(slice, target.waiting_blocks);
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| {
            let args = vec![
                Arg::Multicast(call.input.clone()),
                Arg::Multicast(call.output.clone()),
                Arg::U64(call.count),
                sync_argument(NAME, rank, call.world()),
                Arg::Peers(call.input.clone()),
                Arg::Peers(call.output.clone()),
            ];
            vec![launch(&MODULE, call, target, (grid, THREADS), args)]
        })
    }

    fn uses_multicast(&self) -> bool {
        true
    }
}
