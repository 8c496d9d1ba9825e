//! `reduce/two_shot`: the ranks beside the root pull one slice each, and push the sums to the root. See kernels/all_reduce/two_shot.cu.

use crate::all_reduce::two_shot;
use passmuster_plan::{
    algorithms::{
        Algorithm, Target,
        kit::{Ranks, plan_name, synchronisation},
    },
    collective::{Collective, DType},
    contract::Contract,
    plan::{BufferSpec, Call, Plan},
};

use super::owners;

/// Pull a slice from all, reduce it in rank order, push it to the root: bytes into the root and out of it, one trip between two barriers. The root of two
/// ranks pulls everything itself.
pub struct TwoShot;

const NAME: &str = "two_shot";

impl Algorithm for TwoShot {
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
        Some(if call.world() > 1 { call.bytes() } else { 0 })
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let (root, world) = (call.root, call.world());
        Plan::per_rank(plan_name(NAME, call), world, |rank| {
            vec![two_shot::launched(call, target, rank, owners(root, world), Ranks { first: root, count: 1 })]
        })
    }
}
