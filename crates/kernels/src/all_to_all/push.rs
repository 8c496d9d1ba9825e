//! `all_to_all/push`: every rank writes its slot for each rank into that rank's output. See kernels/all_to_all/push.cu.

use crate::all_to_all::{bytes_for_each, link_bytes};
use passmuster_plan::{
    algorithms::{
        Algorithm, Target,
        kit::{THREADS, blocks_for, launch, plan_name, sync_argument, synchronisation},
    },
    collective::{Collective, Counts, DType},
    contract::Contract,
    modules::{Calls, Module},
    plan::{Arg, BufferSpec, Call, Plan},
};

/// Store to each rank what is its: (world - 1) slots out of each rank and into it, one trip between two barriers.
pub struct Push;

const NAME: &str = "push";
static MODULE: Module = module!("all_to_all/push", sites);
/// The kernel of all-to-all-v.
static MODULE_V: Module = module!("all_to_all/push_v", sites).of_calls(Calls::AllToAllV);

impl Algorithm for Push {
    fn collective(&self) -> Collective {
        Collective::AllToAll
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn modules(&self) -> Vec<&'static Module> {
        vec![&MODULE, &MODULE_V]
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
        Some(link_bytes(call))
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let grid = blocks_for(call.slot_bytes().div_ceil(16), target.waiting_blocks);
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| {
            let (input, output) = (Arg::Address(call.input.clone()), Arg::Peers(call.output.clone()));
            let sync = sync_argument(NAME, rank, call.world());
            let (module, args) = match call.counts() {
                Some(counts) => (&MODULE_V, vec![input, sync, parts(counts, call, rank), output]),
                None => (&MODULE, vec![input, Arg::U64(call.count), sync, output]),
            };
            vec![launch(module, call, target, (grid, THREADS), args)]
        })
    }
}

/// The `Parts` struct of kernels/all_to_all/push_v.cu.
fn parts(counts: &Counts, call: &Call, rank: u32) -> Arg {
    let bytes = bytes_for_each(call, |peer| counts.of(rank, peer));
    let from = bytes_for_each(call, |peer| counts.sent_at(rank, peer));
    let to = bytes_for_each(call, |peer| counts.received_at(rank, peer));
    Arg::Struct([bytes, from, to].concat())
}
