//! `broadcast/push`: the root stores its input to the others in slices, which they pass on to each other. See kernels/broadcast/push.cu.

use passmuster_plan::{
    algorithms::{
        Algorithm, Target,
        kit::{PACK, THREADS, blocks_for, launch, plan_name, sync_argument, synchronisation},
    },
    collective::{Collective, DType},
    contract::Contract,
    modules::{Module, MutantCases},
    plan::{Arg, BufferSpec, Call, Plan},
};

/// Store a slice of the root's input to each other rank, which stores it to the rest: bytes out of the root and into each rank, tile by tile.
pub struct Push;

const NAME: &str = "push";
static MODULE: Module = module!("broadcast/push", sites).with_mutants(MutantCases { several: (3, 70_000), ..MutantCases::DEFAULT });

impl Algorithm for Push {
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
        Some(if call.world() > 1 { call.bytes() } else { 0 })
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let slice = call.bytes().div_ceil(PACK).div_ceil(u64::from(call.world()).saturating_sub(1).max(1));
        let grid = blocks_for(slice, target.waiting_blocks);
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| {
            let args = vec![
                Arg::Address(call.input.clone()),
                Arg::U64(call.count),
                Arg::U32(call.root),
                sync_argument(NAME, rank, call.world()),
                Arg::Peers(call.output.clone()),
            ];
            vec![launch(&MODULE, call, target, (grid, THREADS), args)]
        })
    }
}
