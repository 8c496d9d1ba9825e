//! `all_gather/push`: every rank writes its input into every rank's output. See kernels/all_gather/push.cu.

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

/// Read the own input once, store it to all: (world - 1) x bytes out of each rank and into it, one trip between two barriers.
pub struct Push;

const NAME: &str = "push";
static MODULE: Module = module!("all_gather/push", sites);

impl Algorithm for Push {
    fn collective(&self) -> Collective {
        Collective::AllGather
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

    fn check_supported(&self, _: &Call) -> Result<(), String> {
        Ok(())
    }

    fn workspace(&self, _: DType, _: u32, _: u64) -> Vec<BufferSpec> {
        synchronisation(NAME)
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some(u64::from(call.world() - 1) * call.slot_bytes())
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let grid = blocks_for(call.slot_bytes().div_ceil(16), target.waiting_blocks);
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| {
            let args = vec![
                Arg::Address(call.input_of(rank)),
                Arg::U64(call.count),
                sync_argument(NAME, rank, call.world()),
                Arg::Peers(call.output.clone()),
            ];
            vec![launch(&MODULE, call, target, (grid, THREADS), args)]
        })
    }
}
