//! `reduce/push`: the ranks beside the root reduce one slice each and store the sums at the root. See kernels/all_reduce/push.cuh.

use crate::all_reduce::push;
use passmuster_plan::{
    algorithms::{
        Algorithm, Target,
        kit::{Ranks, plan_name},
    },
    collective::{Collective, DType},
    contract::Contract,
    plan::{BufferSpec, Call, Plan},
};

use super::owners;

/// Store each peer's slice of the input at it, where it is reduced in rank order, and the sum of the own one at the root: bytes into each rank and out of
/// it, tile by tile, and about as much scratch memory. The root of two ranks takes in all of the other's and reduces it itself.
pub struct Push;

const NAME: &str = "push";

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

    fn check_supported(&self, _: &Call) -> Result<(), String> {
        Ok(())
    }

    fn workspace(&self, _: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        push::workspace(bytes, world, owners(0, world).count)
    }

    fn fuses_premul(&self, call: &Call) -> bool {
        push::fuses_premul(call)
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some(if call.world() > 1 { call.bytes() } else { 0 })
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let (world, root) = (call.world(), call.root);
        let slices = push::Slices { count: call.count, owners: owners(root, world), receivers: Ranks { first: root, count: 1 }, origin: 0 };
        Plan::per_rank(plan_name(NAME, call), world, |rank| vec![push::launched(call, target, rank, slices)])
    }
}
