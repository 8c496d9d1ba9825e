//! `all_gather/copy_engine`: every rank's copy engines bring its input into every rank's output. Nothing is launched.

use crate::{
    algorithms::{
        Algorithm, Protocol, Target,
        copy_engine::{exchange, words_of_exchange},
        slot,
    },
    collective::{Collective, DType},
    contract::Contract,
    plan::{BufferSpec, Call, Plan},
};

/// One copy to each peer between two meetings: (world - 1) x bytes out of each rank and into it, and no SM used; out of place,
/// a driver may copy the rank's own slot with one.
pub struct CopyEngine;

const NAME: &str = "copy_engine";

impl Algorithm for CopyEngine {
    fn collective(&self) -> Collective {
        Collective::AllGather
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
        Some(u64::from(call.world() - 1) * call.slot_bytes())
    }

    fn plan(&self, call: &Call, _: &Target) -> Plan {
        exchange(NAME, call, |sender, _| (call.input_of(sender), slot(&call.output, sender, call.slot_bytes())))
    }
}
