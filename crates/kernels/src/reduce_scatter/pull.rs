//! `reduce_scatter/pull`: every rank reduces its slot of all inputs. See kernels/all_reduce/one_shot.cu.

use crate::all_reduce::one_shot;
use passmuster_plan::{
    algorithms::{
        Algorithm, Target,
        kit::{THREADS, blocks_for, launch, plan_name, reduction, slot, sync_argument, synchronisation},
    },
    collective::{Collective, DType},
    contract::Contract,
    plan::{Arg, BufferSpec, Call, Op, Plan},
};

/// Pull the own slot from all, reduce it in rank order: (world - 1) slots into each rank and out of it, one trip between two barriers.
pub struct Pull;

const NAME: &str = "pull";

impl Algorithm for Pull {
    fn collective(&self) -> Collective {
        Collective::ReduceScatter
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn contract(&self, _: &Call) -> Contract {
        Contract::ORDERED
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
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| vec![launched(NAME, call, target, rank)])
    }
}

/// What a rank launches, with the signals of the algorithm of that name.
pub(super) fn launched(algorithm: &str, call: &Call, target: &Target, rank: u32) -> Op {
    let grid = blocks_for(call.slot_bytes().div_ceil(16), target.waiting_blocks);
    let args = vec![
        Arg::Address(call.output_of(rank)),
        Arg::U64(call.count),
        reduction(&one_shot::MODULE, call),
        sync_argument(algorithm, rank, call.world()),
        Arg::Peers(slot(&call.input, rank, call.slot_bytes())),
    ];
    launch(&one_shot::MODULE, call, target, (grid, THREADS), args)
}
