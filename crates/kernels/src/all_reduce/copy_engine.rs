//! `all_reduce/copy_engine`: copy engines bring slices together, each rank reduces its own, copy engines bring it to all. See
//! kernels/all_reduce/copy_engine.cu.

use crate::copy_engine::{announce, gather, peers, words_of_exchange};
use passmuster_plan::{
    algorithms::{
        Algorithm, Protocol, Target,
        kit::{MAX_BLOCKS, PACK, THREADS, blocks_for, entry, plan_name, reduction},
    },
    collective::{Collective, DType},
    contract::Contract,
    modules::Module,
    plan::{Arg, BufferSpec, Call, Launch, MAX_RANKS, Op, Plan, Region, Role},
};

/// Two shots without an SM on the wire: twice (world - 1) / world x bytes over each link by copy engines, and between them a kernel
/// that reduces what lies in its own rank's memory.
///
/// - brought: our copies of slices of our input, our word -> peer's wait. It may reduce. It may write our output, too: we have come to the call,
///   and in place we have no more need of what it overwrites.
/// - done: our copies of our slice of the result, our word -> peer's wait. Its output is whole. Our slots hold nothing that we still need: it
///   may write them in the next call, without asking first.
pub struct CopyEngine;

const NAME: &str = "copy_engine";
static MODULE: Module = module!("all_reduce/copy_engine");
const BROUGHT: u64 = 0;
const DONE: u64 = 1;

/// How inputs of `bytes` bytes are cut: into whole packs, of which all ranks but the last ones have the same number.
struct Slices {
    bytes: u64,
    each: u64,
}

impl Slices {
    fn new(bytes: u64, world: u32) -> Slices {
        Slices { bytes, each: bytes.div_ceil(PACK).div_ceil(world.into()) * PACK }
    }

    /// A rank's slice of a region.
    fn of(&self, region: &Region, rank: u32) -> Region {
        let begin = self.each.saturating_mul(rank.into()).min(self.bytes);
        let end = begin.saturating_add(self.each).min(self.bytes);
        Region::new(region.buffer.clone(), region.offset + begin, end - begin)
    }

    /// Where a rank takes in the slice of `from`, at the same distance from a pack's start as in `input`.
    fn slot(&self, input: &Region, of: u32, from: u32) -> Region {
        let Region { offset, bytes, .. } = self.of(input, of);
        Region::new(format!("{NAME}.slots"), u64::from(from) * (self.each + PACK) + offset % PACK, bytes)
    }
}

impl Algorithm for CopyEngine {
    fn collective(&self) -> Collective {
        Collective::AllReduce
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn modules(&self) -> Vec<&'static Module> {
        vec![&MODULE]
    }

    fn protocol(&self) -> Protocol {
        Protocol::StreamWords
    }

    fn contract(&self, _: &Call) -> Contract {
        Contract::ORDERED
    }

    fn check_supported(&self, _: &Call) -> Result<(), String> {
        Ok(())
    }

    fn workspace(&self, _: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        let slots = (Slices::new(bytes, world).each + PACK).saturating_mul(world.into());
        vec![words_of_exchange(NAME, world), BufferSpec::new(format!("{NAME}.slots"), slots, Role::Data)]
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some(2 * u64::from(call.world() - 1) * call.bytes() / u64::from(call.world()))
    }

    fn plan(&self, call: &Call, _: &Target) -> Plan {
        let world = call.world();
        let slices = Slices::new(call.bytes(), world);
        Plan::per_rank(plan_name(NAME, call), world, |rank| {
            let bring = |peer| {
                let (from, to) = (slices.of(&call.input, peer), slices.slot(&call.input, peer, rank));
                Op::Copy { from, to, to_rank: Some(peer) }
            };
            let mut ops: Vec<Op> = peers(rank, world).map(bring).collect();
            ops.extend(announce(NAME, BROUGHT, rank, world).chain(gather(NAME, BROUGHT, rank, world)));
            let result = slices.of(&call.output, rank);
            let input = |from| if from == rank { slices.of(&call.input, rank) } else { slices.slot(&call.input, rank, from) };
            ops.push(reduce(call, (0..world).map(input), result.clone()));
            ops.extend(peers(rank, world).map(|peer| Op::Copy { from: result.clone(), to: result.clone(), to_rank: Some(peer) }));
            ops.extend(announce(NAME, DONE, rank, world).chain(gather(NAME, DONE, rank, world)));
            ops
        })
    }
}

/// Reduces inputs of all ranks that lie in a rank's own memory, each at the same distance from a pack's start, in rank order.
pub(crate) fn reduce(call: &Call, inputs: impl Iterator<Item = Region>, output: Region) -> Op {
    let mut addresses: Vec<Arg> = inputs.map(Arg::Address).collect();
    addresses.resize(MAX_RANKS, Arg::U64(0));
    Op::Launch(Launch {
        module: MODULE.name.into(),
        entry: entry(&MODULE, call.dtype, call.op),
        grid: blocks_for(output.bytes.div_ceil(PACK), MAX_BLOCKS).into(),
        block: THREADS.into(),
        cluster: None,
        dynamic_shared: 0,
        waits_for_peers: false,
        programmatic: false,
        registers: None,
        variables: Vec::new(),
        args: vec![
            Arg::U64(output.bytes / call.dtype.size()),
            Arg::Address(output),
            reduction(&MODULE, call),
            Arg::U32(call.world()),
            Arg::Struct(addresses),
        ],
    })
}
