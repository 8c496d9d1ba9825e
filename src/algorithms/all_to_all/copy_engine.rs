//! `all_to_all/copy_engine`: every rank's copy engines bring the slots of its input into its slot of every rank's output. Nothing is launched.

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

/// One copy to each peer between two meetings: (world - 1) x slots out of each rank and into it, and no multiprocessor used, but where a
/// driver copies the rank's own slot with one.
///
/// - ready: peer's stream, in order -> our wait. Its output may be written.
/// - done: our copies, our word -> peer's wait. Its output holds our slot.
pub struct CopyEngine;

const NAME: &str = "copy_engine";
const READY: u64 = 0;
const DONE: u64 = 1;

impl Algorithm for CopyEngine {
    fn collective(&self) -> Collective {
        Collective::AllToAll
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
        let slot = |of: &Region, rank: u32| Region::new(of.buffer.clone(), of.offset + u64::from(rank) * bytes, bytes);
        Plan::per_rank(plan_name(NAME, call), world, |rank| {
            let copy = |of: u32, to_rank| Op::Copy { from: slot(&call.input, of), to: slot(&call.output, rank), to_rank };
            let mut ops: Vec<Op> = announce(NAME, READY, rank, world).chain(gather(NAME, READY, rank, world)).collect();
            ops.extend(peers(rank, world).map(|peer| copy(peer, Some(peer))));
            ops.extend(announce(NAME, DONE, rank, world));
            // While the peers' last copies are under way.
            ops.push(copy(rank, None));
            ops.extend(gather(NAME, DONE, rank, world));
            ops
        })
    }
}
