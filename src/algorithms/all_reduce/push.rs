//! `all_reduce/push`: every rank stores its parts of the others' slices at them, which reduce them and push the results. See kernels/all_reduce/push.cu.

use crate::{
    algorithms::{Algorithm, PACK, THREADS, Target, blocks_for, launch, plan_name, reduction, sync_argument, synchronisation},
    collective::{Collective, DType},
    contract::Contract,
    plan::{Arg, BufferSpec, Call, Op, Plan, Region, Role},
};

/// Two shots of stores alone: twice (world - 1) / world x bytes over each link, tile by tile, and as much scratch memory as the input takes.
pub struct Push;

const NAME: &str = "push";
const MODULE: &str = "all_reduce/push";

impl Algorithm for Push {
    fn collective(&self) -> Collective {
        Collective::AllReduce
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

    fn workspace(&self, _: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        workspace(bytes, world)
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some(2 * u64::from(call.world() - 1) * call.bytes() / u64::from(call.world()))
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let slices = Slices { count: call.count, receivers: call.world(), origin: 0 };
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| vec![launched(call, target, rank, slices)])
    }
}

/// What the kernel needs for inputs of so many bytes: slots of one slice for each rank, in whole packs.
pub(in crate::algorithms) fn workspace(bytes: u64, world: u32) -> Vec<BufferSpec> {
    let mut buffers = synchronisation(NAME);
    buffers.push(BufferSpec::new(format!("{NAME}.slots"), bytes.saturating_add(PACK * u64::from(world)), Role::Data));
    buffers
}

/// What the kernel does with slices.
#[derive(Clone, Copy)]
pub(in crate::algorithms) struct Slices {
    /// Elements of all of them, one slice a rank.
    pub(in crate::algorithms) count: u64,
    /// Who gets the sum of a slice: so many ranks, of which the first is its owner.
    pub(in crate::algorithms) receivers: u32,
    /// Bytes of the sum that the output does not begin with.
    pub(in crate::algorithms) origin: u64,
}

/// What a rank launches.
pub(in crate::algorithms) fn launched(call: &Call, target: &Target, rank: u32, slices: Slices) -> Op {
    let world = u64::from(call.world());
    let slice = (slices.count * call.dtype.size()).div_ceil(PACK).div_ceil(world);
    let args = vec![
        Arg::Peers(call.input.clone()),
        Arg::Peers(call.output_of(rank)),
        Arg::U64(slices.count),
        reduction(MODULE, call),
        Arg::U64(slices.origin),
        Arg::Peers(Region::new(format!("{NAME}.slots"), 0, slice * PACK * world)),
        Arg::U32(slices.receivers),
        sync_argument(NAME, rank, call.world()),
    ];
    // Half of a block's threads send, the others reduce.
    launch(MODULE, call, target, (blocks_for(2 * slice, target.waiting_blocks), THREADS), args)
}
