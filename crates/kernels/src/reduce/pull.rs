//! `reduce/pull`: the root reduces all inputs. See kernels/all_reduce/one_shot.cu.

use crate::all_reduce::one_shot;
use passmuster_plan::{
    algorithms::{
        Algorithm, Target,
        kit::{THREADS, blocks_for, launch, plan_name, reduction, sync_argument, synchronisation},
    },
    collective::{Collective, DType},
    contract::Contract,
    plan::{Arg, BufferSpec, Call, Plan, Region},
};

/// Pull all inputs to the root, reduce them in rank order: (world - 1) x bytes into the root, one trip between two barriers.
pub struct Pull;

const NAME: &str = "pull";

impl Algorithm for Pull {
    fn collective(&self) -> Collective {
        Collective::Reduce
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
        Some(u64::from(call.world() - 1) * call.bytes())
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        // Blocks meet their like: the ranks that reduce nothing have as many.
        let grid = blocks_for(call.bytes().div_ceil(16), target.waiting_blocks);
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| {
            let none = || Region::new(call.input.buffer.clone(), call.input.offset, 0);
            let (input, count) = if rank == call.root { (call.input.clone(), call.count) } else { (none(), 0) };
            let args = vec![
                Arg::Address(call.output.clone()),
                Arg::U64(count),
                reduction(&one_shot::MODULE, call),
                sync_argument(NAME, rank, call.world()),
                Arg::Peers(input),
            ];
            vec![launch(&one_shot::MODULE, call, target, (grid, THREADS), args)]
        })
    }
}
