//! `all_to_all/copy_engine`: every rank's copy engines bring the slots of its input into its slot of every rank's output. Nothing is
//! launched; or, of `copy_engine_barrier`, the kernel in which ranks meet.

use crate::{
    algorithms::{
        Algorithm, Protocol, Target,
        all_to_all::link_bytes,
        copy_engine::{Meeting, exchange},
        slot,
    },
    collective::{Collective, DType},
    contract::Contract,
    plan::{BufferSpec, Call, Plan, Region},
};

/// One copy to each peer between two meetings: (world - 1) x slots out of each rank and into it, and no SM used where streams meet, but
/// where a driver copies the rank's own slot with one.
pub struct CopyEngine(Meeting);

/// Meets by streams.
pub const COPY_ENGINE: CopyEngine = CopyEngine(Meeting::Streams);

/// Meets by kernels, which is faster and takes an SM meanwhile.
pub const COPY_ENGINE_BARRIER: CopyEngine = CopyEngine(Meeting::Kernels);

impl Algorithm for CopyEngine {
    fn collective(&self) -> Collective {
        Collective::AllToAll
    }

    fn name(&self) -> &'static str {
        self.0.algorithm()
    }

    fn protocol(&self) -> Protocol {
        self.0.protocol()
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
        Some(link_bytes(call))
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let Some(counts) = call.counts() else {
            let bytes = call.slot_bytes();
            return exchange(self.0, call, target, |sender, receiver| {
                Some((slot(&call.input, receiver, bytes), slot(&call.output, sender, bytes)))
            });
        };
        let size = call.dtype.size();
        exchange(self.0, call, target, |sender, receiver| {
            let part = |of: &Region, at: u64| Region::new(of.buffer.clone(), of.offset + at * size, counts.of(sender, receiver) * size);
            Some((part(&call.input, counts.sent_at(sender, receiver)), part(&call.output, counts.received_at(sender, receiver))))
        })
    }
}
