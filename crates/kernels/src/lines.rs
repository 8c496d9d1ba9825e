//! Collectives whose kernels send LL lines, which carry their flag beside the data: see kernels/common/lines.cuh. Each kernel has a page of its own.

use passmuster_plan::{
    algorithms::{
        Algorithm, Protocol, Target,
        kit::{THREADS, grid, launch, plan_name, reduction, sync_argument_of, synchronisation_with},
    },
    collective::{Collective, Counts, DType},
    contract::Contract,
    modules::Module,
    plan::{Arg, BufferSpec, Call, Plan},
};

/// Bytes of data in a line, and bytes of the line.
pub(super) const PAYLOAD: u64 = 8;
const LINE: u64 = 16;

/// Lines of one tile of a pad.
pub(crate) const TILE: u64 = 32;

/// A collective in LL lines: every rank pushes its data straight to the ranks that need it, and waits for theirs. No barrier.
pub struct Lines {
    collective: Collective,
    name: &'static str,
    module: &'static Module,
    /// The most bytes that a trip takes to one peer. Flags double what crosses the link, so lines are no use long before that.
    most: u64,
    trips: Trips,
    parts: Option<PartsKernel>,
}

/// How often data cross the link one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trips {
    /// What a rank has for a peer goes to it.
    One = 1,
    /// Of an all_reduce: first to the rank whose slice it is, then the sum of the slice to all.
    Two = 2,
}

/// The kernel of calls with a count for each pair of ranks, and its last two arguments for a rank: the parts that it sends, and those that it gets.
type PartsKernel = (&'static Module, fn(&Call, &Counts, u32) -> [Arg; 2]);

impl Lines {
    /// In one trip, of up to `most` bytes to each peer.
    pub(super) const fn new(collective: Collective, name: &'static str, module: &'static Module, most: u64) -> Lines {
        Lines { collective, name, module, most, trips: Trips::One, parts: None }
    }

    /// The same in two trips.
    pub(super) const fn in_two_trips(self) -> Lines {
        Lines { trips: Trips::Two, ..self }
    }

    /// The same with a kernel for calls with a count for each pair of ranks.
    pub(super) const fn with_parts(self, kernel: PartsKernel) -> Lines {
        Lines { parts: Some(kernel), ..self }
    }

    /// What one trip brings a peer of an input or slot of `bytes` bytes. A slice is whole lines.
    fn bytes_of_trip(&self, world: u32, bytes: u64) -> u64 {
        match self.trips {
            Trips::One => bytes,
            Trips::Two => bytes.div_ceil(PAYLOAD).div_ceil(u64::from(world)) * PAYLOAD,
        }
    }

    /// The most bytes that an input, slot or part may have.
    fn most_bytes(&self, world: u32) -> u64 {
        match self.trips {
            Trips::One => self.most,
            Trips::Two => self.most * u64::from(world),
        }
    }

    /// Pads, counts and the rest for calls that take up to `bytes` bytes to each peer.
    fn buffers(&self, world: u32, bytes: u64) -> Vec<BufferSpec> {
        let tiles = bytes.div_ceil(PAYLOAD).div_ceil(TILE);
        synchronisation_with(self.name, tiles * 2 * u64::from(world) * TILE * LINE, tiles * TILE * 4)
    }
}

impl Algorithm for Lines {
    fn collective(&self) -> Collective {
        self.collective
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn modules(&self) -> Vec<&'static Module> {
        [self.module].into_iter().chain(self.parts.map(|(module, _)| module)).collect()
    }

    fn protocol(&self) -> Protocol {
        Protocol::Lines
    }

    fn contract(&self, call: &Call) -> Contract {
        if call.op.reduces() { Contract::ORDERED } else { Contract::COPIED }
    }

    fn check_supported(&self, call: &Call) -> Result<(), String> {
        let (name, bytes, most) = (self.name, longest(call), self.most_bytes(call.world()));
        if bytes > most {
            let part = match self.collective {
                _ if call.counts().is_some() => "parts",
                Collective::AllReduce => "inputs",
                _ => "slots",
            };
            return Err(format!("{name} takes {part} of up to {most} bytes, not of {bytes}"));
        }
        Ok(())
    }

    fn workspace(&self, _: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        self.buffers(world, self.bytes_of_trip(world, bytes / self.collective.slots(world).0).min(self.most))
    }

    fn link_bytes(&self, call: &Call) -> Option<u64> {
        let data = self.bytes_of_trip(call.world(), longest(call));
        Some(self.trips as u64 * u64::from(call.world() - 1) * data * LINE / PAYLOAD)
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let world = call.world();
        let bytes = self.bytes_of_trip(world, longest(call));
        let buffers = self.buffers(world, bytes);
        Plan::per_rank(plan_name(self.name, call), world, |rank| {
            let mut args = vec![Arg::Address(call.input_of(rank)), Arg::Address(call.output_of(rank))];
            let sync = sync_argument_of(&buffers, rank, world);
            let module = match call.counts().zip(self.parts) {
                Some((counts, (module, parts))) => {
                    args.extend([Arg::U32(bytes.div_ceil(PAYLOAD) as u32), sync]);
                    args.extend(parts(call, counts, rank));
                    module
                }
                None => {
                    args.push(Arg::U32(call.count as u32));
                    args.extend(call.op.reduces().then(|| reduction(self.module, call)));
                    args.push(sync);
                    self.module
                }
            };
            vec![launch(module, call, target, grid(bytes.div_ceil(PAYLOAD), target.waiting_blocks, THREADS), args)]
        })
    }
}

/// Bytes of a slot, or of the longest part of any two ranks: all ranks have the lines of that, as lines want it.
fn longest(call: &Call) -> u64 {
    call.counts().map_or(call.slot_bytes(), |counts| counts.longest() * call.dtype.size())
}
