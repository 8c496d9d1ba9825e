//! `broadcast/pull`: every rank loads the root's input into its output. See kernels/broadcast/pull.cu.

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

/// Load the root's input, store it at home: (world - 1) x bytes out of the root, by all ranks' threads, one trip between two barriers.
pub struct Pull;

const NAME: &str = "pull";
static MODULE: Module = module!("broadcast/pull", sites);

impl Algorithm for Pull {
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

    fn check_supported(&self, _: &Call) -> Result<(), String> {
        Ok(())
    }

    fn workspace(&self, _: DType, _: u32, _: u64) -> Vec<BufferSpec> {
        synchronisation(NAME)
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some(u64::from(call.world() - 1) * call.bytes())
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let grid = blocks_for(call.bytes().div_ceil(16), target.waiting_blocks);
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| {
            let args = vec![
                Arg::Address(call.output.clone()),
                Arg::U64(call.count),
                Arg::U32(call.root),
                sync_argument(NAME, rank, call.world()),
                Arg::Peers(call.input.clone()),
            ];
            vec![launch(&MODULE, call, target, (grid, THREADS), args)]
        })
    }
}
