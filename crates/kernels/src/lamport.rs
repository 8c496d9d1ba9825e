//! Collectives whose kernels send Lamport packs, whose own value says that they are there: see kernels/common/lamport.cuh. Each kernel has a page of its own.

use crate::lines::{TILE, Trips};
use passmuster_plan::{
    algorithms::{
        Algorithm, Protocol, Target,
        kit::{PACK, grid, has_own_entry, launch, plan_name, reduction, sync_argument_of, synchronisation_with},
    },
    collective::{Collective, DType},
    contract::Contract,
    modules::{Module, MutantCases},
    plan::{Arg, BufferSpec, Call, Launch, Op, Plan, Role},
};

/// Tiles of a chunk.
pub(crate) const CHUNK: u64 = 8;

/// The most threads of a block: the entry `any` takes the registers of fewer.
const MOST_THREADS: u32 = 1024;
const MOST_THREADS_OF_ANY: u32 = 512;

/// Bytes that the packs of all ranks in one pad may have, of one parity. What is larger is better done otherwise: all_reduce of 16 MiB takes 70 us so,
/// and 56 by one_shot (two H100).
const MOST_BYTES: u64 = 16 << 20;

/// What mutants of kernels that copy are judged on: of integers more inputs have words that packs cannot carry.
pub(super) const COPIES: MutantCases = MutantCases { dtype: DType::I32, several: (2, 4500), rare_words: true, ..MutantCases::DEFAULT };

/// Of kernels that reduce, which have no entry of their own for integers. In types narrower than f32 the NaN that stands for an empty slot takes several
/// elements of one rank, which few inputs have.
pub(super) const SUMS: MutantCases = MutantCases { dtype: DType::F32, ..COPIES };

/// A collective in Lamport packs: every rank pushes its data straight to whom they are for, and waits for theirs. No barrier and no flag.
pub struct Lamport {
    collective: Collective,
    /// As it ships, and as it is to be compared with.
    names: [&'static str; 2],
    module: &'static Module,
    trips: Trips,
    start: Start,
}

/// How the kernels are launched. They wait for what is in front of them on their stream themselves, before their first access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// As programmatic dependent launches: their blocks may be resident before what is in front of them is done.
    Dependent,
    /// When what is in front of them is done: as any other, to be compared with.
    Serial,
}

impl Lamport {
    /// With dependent launches, under the first of these names; the other one is for the same without.
    pub(super) const fn new(collective: Collective, names: [&'static str; 2], module: &'static Module) -> Lamport {
        Lamport { collective, names, module, trips: Trips::One, start: Start::Dependent }
    }

    /// The same in two trips.
    pub(super) const fn in_two_trips(self) -> Lamport {
        Lamport { trips: Trips::Two, ..self }
    }

    /// The same without dependent launches.
    pub(super) const fn serial(self) -> Lamport {
        Lamport { start: Start::Serial, ..self }
    }

    /// The name of its buffers and plans.
    const fn shipped(&self) -> &'static str {
        self.names[0]
    }

    /// What one trip brings a peer of an input or slot of `bytes` bytes.
    fn bytes_of_trip(&self, world: u32, bytes: u64) -> u64 {
        match self.trips {
            Trips::One => bytes,
            Trips::Two => bytes.div_ceil(PACK).div_ceil(u64::from(world)) * PACK,
        }
    }

    /// How many packs of one place there are in a pad, of one parity: one of each rank a trip.
    fn sources(&self, world: u32) -> u64 {
        self.trips as u64 * u64::from(world)
    }

    /// The most bytes that an input or slot may have.
    fn most_bytes(&self, world: u32) -> u64 {
        match self.trips {
            Trips::One => MOST_BYTES / u64::from(world),
            Trips::Two => MOST_BYTES / 2,
        }
    }

    /// Pads, counts and the rest for calls with inputs or slots of up to `bytes` bytes; last the pads of escapes.
    fn buffers(&self, world: u32, bytes: u64) -> Vec<BufferSpec> {
        let bytes = self.bytes_of_trip(world, bytes.min(self.most_bytes(world)));
        let chunks = bytes.div_ceil(PACK * TILE * CHUNK);
        let pad = chunks * 2 * self.sources(world) * CHUNK * TILE * PACK;
        let mut buffers = synchronisation_with(self.shipped(), pad, chunks * CHUNK * 4);
        buffers[0].role = Role::Slots;
        buffers.push(BufferSpec::new(format!("{}.escapes", self.shipped()), 2 * pad, Role::Slots));
        buffers
    }

    /// The launch of a rank: a pack a thread, in as many blocks as may wait and no more threads than it takes.
    fn launch(&self, call: &Call, target: &Target, args: Vec<Arg>) -> Op {
        let is_any = call.op.reduces() && !has_own_entry(self.module, call.dtype, call.op);
        let most_threads = if is_any { MOST_THREADS_OF_ANY } else { MOST_THREADS };
        let packs = self.bytes_of_trip(call.world(), call.slot_bytes()).div_ceil(PACK);
        let grid = grid(packs, target.waiting_blocks, most_threads);
        let Op::Launch(launch) = launch(self.module, call, target, grid, args) else { unreachable!("a launch is one") };
        Op::Launch(Launch { programmatic: self.start == Start::Dependent, ..launch })
    }
}

impl Algorithm for Lamport {
    fn collective(&self) -> Collective {
        self.collective
    }

    fn name(&self) -> &'static str {
        self.names[usize::from(self.start == Start::Serial)]
    }

    fn modules(&self) -> Vec<&'static Module> {
        vec![self.module]
    }

    fn protocol(&self) -> Protocol {
        Protocol::Packs
    }

    fn contract(&self, call: &Call) -> Contract {
        if call.op.reduces() { Contract::ORDERED } else { Contract::COPIED }
    }

    fn check_supported(&self, call: &Call) -> Result<(), String> {
        let (name, world, bytes) = (self.shipped(), call.world(), call.slot_bytes());
        if call.counts().is_some() {
            return Err(format!("{name} takes slots of one length, not a count for each pair of ranks"));
        }
        let most = self.most_bytes(world);
        if bytes > most {
            let part = if self.collective.slots(world).0 == 1 { "inputs" } else { "slots" };
            return Err(format!("{name} takes {part} of up to {most} bytes among {world} ranks, not of {bytes}"));
        }
        Ok(())
    }

    fn workspace(&self, _: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        self.buffers(world, bytes / self.collective.slots(world).0)
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        Some(self.trips as u64 * u64::from(call.world() - 1) * self.bytes_of_trip(call.world(), call.slot_bytes()))
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let world = call.world();
        let buffers = self.buffers(world, call.slot_bytes());
        let [synchronisation @ .., escapes] = buffers.as_slice() else { unreachable!("there are buffers") };
        Plan::per_rank(plan_name(self.shipped(), call), world, |rank| {
            let mut args = vec![Arg::Address(call.input_of(rank)), Arg::Address(call.output_of(rank)), Arg::U32(call.count as u32)];
            args.extend(call.op.reduces().then(|| reduction(self.module, call)));
            args.extend(self.collective.has_root().then_some(Arg::U32(call.root)));
            args.extend([sync_argument_of(synchronisation, rank, world), Arg::Peers(escapes.whole())]);
            vec![self.launch(call, target, args)]
        })
    }
}
