//! `all_to_all/copy_engine`: every rank's copy engines bring the slots of its input into its slot of every rank's output. Nothing is launched.

use crate::{
    algorithms::{
        Algorithm, Protocol, Target,
        all_to_all::link_bytes,
        copy_engine::{exchange, words_of_exchange},
        slot,
    },
    collective::{Collective, DType},
    contract::Contract,
    plan::{BufferSpec, Call, Plan, Region},
};

/// One copy to each peer between two meetings: (world - 1) x slots out of each rank and into it, and no SM used, but where a
/// driver copies the rank's own slot with one.
pub struct CopyEngine;

const NAME: &str = "copy_engine";

impl Algorithm for CopyEngine {
    fn collective(&self) -> Collective {
        Collective::AllToAll
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn protocol(&self) -> Protocol {
        Protocol::StreamWords
    }

    fn contract(&self, _: &Call) -> Contract {
        Contract::COPIED
    }

    fn check_supported(&self, _: &Call) -> Result<(), String> {
        Ok(())
    }

    fn workspace(&self, _: DType, world: u32, _: u64) -> Vec<BufferSpec> {
        vec![words_of_exchange(NAME, world)]
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some(link_bytes(call))
    }

    fn plan(&self, call: &Call, _: &Target) -> Plan {
        let Some(counts) = call.counts() else {
            let bytes = call.slot_bytes();
            return exchange(NAME, call, |sender, receiver| (slot(&call.input, receiver, bytes), slot(&call.output, sender, bytes)));
        };
        let size = call.dtype.size();
        exchange(NAME, call, |sender, receiver| {
            let part = |of: &Region, at: u64| Region::new(of.buffer.clone(), of.offset + at * size, counts.of(sender, receiver) * size);
            (part(&call.input, counts.sent_at(sender, receiver)), part(&call.output, counts.received_at(sender, receiver)))
        })
    }
}
