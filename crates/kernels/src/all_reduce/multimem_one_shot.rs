//! `all_reduce/multimem_one_shot`: every rank has the switch reduce all of the input. See kernels/all_reduce/multimem_one_shot.cu.

use crate::multimem;
use passmuster_plan::{
    algorithms::{
        Algorithm, Target,
        kit::{THREADS, blocks_for, launch, plan_name, staging, sync_argument, synchronisation},
    },
    collective::{Collective, DType},
    contract::Contract,
    modules::Module,
    plan::{Arg, BufferSpec, Call, Op, Plan, Role},
};

/// Load everything reduced by the switch: one trip, bytes into each rank and world x bytes out of it.
pub struct MultimemOneShot;

const NAME: &str = "multimem_one_shot";
pub(crate) static MODULE: Module = module!("all_reduce/multimem_one_shot", sites);

impl Algorithm for MultimemOneShot {
    fn collective(&self) -> Collective {
        Collective::AllReduce
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn modules(&self) -> Vec<&'static Module> {
        vec![&MODULE]
    }

    /// Every rank computes each element for itself: sums may differ from rank to rank.
    fn contract(&self, call: &Call) -> Contract {
        multimem::contract(call)
    }

    fn check_supported(&self, call: &Call) -> Result<(), String> {
        multimem::reduces(call)
    }

    fn workspace(&self, _: DType, _: u32, bytes: u64) -> Vec<BufferSpec> {
        let mut buffers = synchronisation(NAME);
        buffers.push(BufferSpec::new(format!("{NAME}.staging"), bytes + 16, Role::Data));
        buffers
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        // In place, results would overwrite what peers still read: they read a copy instead.
        let input = if call.in_place() { staging(NAME, &call.input) } else { call.input.clone() };
        let grid = blocks_for(call.bytes().div_ceil(16), target.waiting_blocks);
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| {
            let args = vec![
                Arg::Multicast(input.clone()),
                Arg::Address(call.output.clone()),
                Arg::U64(call.count),
                sync_argument(NAME, rank, call.world()),
                Arg::Peers(input.clone()),
            ];
            let launch = launch(&MODULE, call, target, (grid, THREADS), args);
            if call.in_place() {
                vec![Op::Copy { from: call.input.clone(), to: input.clone(), to_rank: None }, launch]
            } else {
                vec![launch]
            }
        })
    }

    fn uses_multicast(&self) -> bool {
        true
    }
}
