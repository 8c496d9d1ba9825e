//! `reduce/push`: every rank stores its input at the root, which reduces them. See kernels/reduce/push.cu.

use crate::{
    algorithms::{Algorithm, PACK, THREADS, Target, all_reduce, blocks_for, launch, plan_name, sync_argument, synchronisation},
    collective::{Collective, DType},
    contract::Contract,
    plan::{Arg, BufferSpec, Call, Plan, Region, Role},
};

/// Store the input to a slot at the root, where a second kernel reduces the slots in rank order: (world - 1) x bytes into the root, one trip between two
/// barriers, and no load that waits for a link.
pub struct Push;

const NAME: &str = "push";
const MODULE: &str = "reduce/push";

/// Where the root takes in the input of `from`, at the same distance from a pack's start.
fn slot(input: &Region, from: u32) -> Region {
    Region::new(format!("{NAME}.slots"), u64::from(from) * (input.bytes.next_multiple_of(PACK) + PACK) + input.offset % PACK, input.bytes)
}

impl Algorithm for Push {
    fn collective(&self) -> Collective {
        Collective::Reduce
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn contract(&self, _: &Call) -> Contract {
        Contract::ORDERED
    }

    fn supports(&self, _: &Call) -> Result<(), String> {
        Ok(())
    }

    /// Slots for all ranks at every rank: any may be the root.
    fn workspace(&self, _: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        let slots = bytes.saturating_add(2 * PACK).saturating_mul(world.into());
        let mut buffers = synchronisation(NAME);
        buffers.push(BufferSpec::new(format!("{NAME}.slots"), slots, Role::Data));
        buffers
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some(u64::from(call.world() - 1) * call.bytes())
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let grid = blocks_for(call.bytes().div_ceil(PACK), target.waiting_blocks);
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| {
            let args = vec![
                Arg::Address(call.input.clone()),
                Arg::Peers(slot(&call.input, rank)),
                Arg::U64(call.bytes()),
                Arg::U32(call.root),
                sync_argument(NAME, rank, call.world()),
            ];
            let mut ops = vec![launch(MODULE, call, target, (grid, THREADS), args)];
            if rank == call.root {
                let inputs = (0..call.world()).map(|from| if from == rank { call.input.clone() } else { slot(&call.input, from) });
                ops.push(all_reduce::copy_engine::reduce(call, inputs, call.output.clone()));
            }
            ops
        })
    }
}
