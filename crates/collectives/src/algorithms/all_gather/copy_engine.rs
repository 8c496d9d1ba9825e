//! `all_gather/copy_engine`: every rank's copy engines bring its input into every rank's output. Nothing is launched; or, of `copy_engine_barrier`, the
//! kernel in which ranks meet.

use crate::{
    algorithms::{
        Algorithm, Protocol, Target,
        copy_engine::{BARRIER, Meeting, exchange},
        slot,
    },
    collective::{Collective, DType},
    contract::Contract,
    kernels::Module,
    plan::{BufferSpec, Call, Plan},
};

/// One copy to each peer between two meetings: (world - 1) x bytes out of each rank and into it, and no SM used where streams
/// meet; out of place, a driver may copy the rank's own slot with one.
pub struct CopyEngine(Meeting);

/// Meets by streams.
pub const COPY_ENGINE: CopyEngine = CopyEngine(Meeting::Streams);

/// Meets by kernels, which is faster and takes an SM meanwhile.
pub const COPY_ENGINE_BARRIER: CopyEngine = CopyEngine(Meeting::Kernels);

impl Algorithm for CopyEngine {
    fn collective(&self) -> Collective {
        Collective::AllGather
    }

    fn name(&self) -> &'static str {
        self.0.algorithm()
    }

    fn protocol(&self) -> Protocol {
        self.0.protocol()
    }

    fn modules(&self) -> Vec<&'static Module> {
        match self.0 {
            Meeting::Streams => Vec::new(),
            Meeting::Kernels => vec![&BARRIER],
        }
    }

    fn contract(&self, _: &Call) -> Contract {
        Contract::COPIED
    }

    fn check_supported(&self, _: &Call) -> Result<(), String> {
        Ok(())
    }

    fn workspace(&self, _: DType, world: u32, _: u64) -> Vec<BufferSpec> {
        self.0.workspace(world)
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some(u64::from(call.world() - 1) * call.slot_bytes())
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        exchange(self.0, call, target, |sender, _| Some((call.input_of(sender), slot(&call.output, sender, call.slot_bytes()))))
    }
}
