//! `reduce_scatter/push`: every rank stores its parts of the others' slots at them, which reduce them. See kernels/all_reduce/push.cuh.

use crate::{Pull, all_reduce::push};
use passmuster_plan::{
    algorithms::{
        Algorithm, Target,
        kit::{Ranks, plan_name},
    },
    collective::{Collective, DType},
    contract::Contract,
    plan::{BufferSpec, Call, Plan},
};

use super::PULL;

/// Store each peer's slot of the input at it, where it is reduced in rank order: (world - 1) slots into each rank and out of it, tile by tile, and as much
/// scratch memory as the input takes. Slots that are no whole packs are pulled.
pub struct Push;

const NAME: &str = "push";

/// Of slots that are no whole packs.
const PULLED: Pull = PULL.reused_for(Collective::ReduceScatter, NAME);

impl Algorithm for Push {
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

    fn workspace(&self, _: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        push::workspace(bytes, world, world)
    }

    fn fuses_premul(&self, call: &Call) -> bool {
        push::fuses_premul(call)
    }

    /// With one pack of each rank under way its reducers are what all wait for.
    fn defer_reason(&self, call: &Call) -> Option<&'static str> {
        (!push::has_own_entry(call.dtype)).then_some("the kernel of push has no entry of its own for the type")
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some(u64::from(call.world() - 1) * call.slot_bytes())
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let world = call.world();
        // Slices of the kernel's are slots where all of them begin with a pack.
        let slices_are_slots = push::in_packs(call);
        Plan::per_rank(plan_name(NAME, call), world, |rank| {
            vec![if slices_are_slots {
                let origin = u64::from(rank) * call.slot_bytes();
                let count = u64::from(world) * call.count;
                push::launched(
                    call,
                    target,
                    rank,
                    push::Slices { count, owners: Ranks { first: 0, count: world }, receivers: Ranks { first: rank, count: 1 }, origin },
                )
            } else {
                PULLED.launched(call, target, rank, &call.input)
            }]
        })
    }
}
