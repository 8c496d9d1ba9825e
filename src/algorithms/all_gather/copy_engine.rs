//! `all_gather/copy_engine`: every rank's copy engines bring its input into every rank's output. Nothing is launched.

use crate::{
    algorithms::{
        Algorithm, Target,
        copy_engine::{announce, gather, peers, words},
        plan_name,
    },
    collective::{Collective, DType},
    contract::Contract,
    plan::{BufferSpec, Call, Op, Plan, Region},
};

/// One copy to each peer between two meetings: (world - 1) x bytes out of each rank and into it, and no multiprocessor used; out of place,
/// a driver may copy the rank's own slot with one.
///
/// - ready: peer's stream, in order -> our wait. Its output may be written.
/// - done: our copies, our word -> peer's wait. Its output holds our slot.
pub struct CopyEngine;

const NAME: &str = "copy_engine";
const READY: u64 = 0;
const DONE: u64 = 1;

impl Algorithm for CopyEngine {
    fn collective(&self) -> Collective {
        Collective::AllGather
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn contract(&self, _: &Call) -> Contract {
        Contract::COPIED
    }

    fn supports(&self, _: &Call) -> Result<(), String> {
        Ok(())
    }

    fn workspace(&self, _: DType, _: u32, _: u64) -> Vec<BufferSpec> {
        vec![words(NAME, 2)]
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some(u64::from(call.world() - 1) * call.slot_bytes())
    }

    fn plan(&self, call: &Call, _: &Target) -> Plan {
        let (world, bytes) = (call.world(), call.slot_bytes());
        Plan::per_rank(plan_name(NAME, call), world, |rank| {
            let from = call.input_of(rank);
            let to = Region::new(call.output.buffer.clone(), call.output.offset + u64::from(rank) * bytes, bytes);
            let copy = |to_rank| Op::Copy { from: from.clone(), to: to.clone(), to_rank };
            let mut ops: Vec<Op> = announce(NAME, READY, rank, world).chain(gather(NAME, READY, rank, world)).collect();
            ops.extend(peers(rank, world).map(|peer| copy(Some(peer))));
            ops.extend(announce(NAME, DONE, rank, world));
            // While the peers' last copies are under way.
            ops.extend((!call.in_place()).then(|| copy(None)));
            ops.extend(gather(NAME, DONE, rank, world));
            ops
        })
    }
}
