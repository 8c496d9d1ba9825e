//! Symmetric memory that is used again without another rendezvous.
//!
//! Ranks that want to reach each other's memory must meet first, to exchange handles and map them: milliseconds, on the path of a training step.
//! A [`SymmetricPool`] has them meet once, when it is opened, and then hands out parts of what they have mapped.
//!
//! # What a pool has
//! *Memory* for inputs and outputs ([`SymmetricPool::allocate`]): at the same offset on every rank, so that ranks which make the same requests in the
//! same order need not tell each other. *Channels* ([`Channels`]): for each algorithm and each group of ranks as many workspaces of their own, signal
//! words among them, as calls may be in flight at once. Neither grows. A channel stays with its group: ranks count the calls on it, and those
//! that took no part in some would count differently.
//!
//! # What is in flight
//! [`SymmetricPool::start`] (of an all-to-all-v, [`SymmetricPool::start_all_to_all_v`]) makes the plan of a call on memory of the pool and takes a channel for it; the call is in flight until its [`InFlight`]
//! is dropped. Calls in flight at once never share a channel, be it that their streams or that their groups differ: where all of an algorithm's
//! are taken, the call is refused. So is one whose output is memory that another in flight reads or writes, and memory in flight is not
//! given back.
//!
//! Dropping it says that what uses its memory and its channel next comes after the call on every rank. That is so when the run is over, and
//! at once for what is enqueued behind it on the same stream of every rank: an algorithm waits, before it touches a peer's input or output, until that
//! peer's stream has come to the call, and no peer touches them after the call has ended there.
//!
//! ```
//! use passmuster_plan::{
//!     algorithms::{Algorithm, Target},
//!     collective::{Collective, DType, ReduceOp},
//!     machine::Machine,
//!     plan::{RankCall, Script, Step},
//!     pool::{Channels, SymmetricPool},
//! };
//! use std::{sync::Arc, time::Duration};
//!
//! // push is an all-gather.
//! fn gather(machine: &mut dyn Machine, push: &Arc<dyn Algorithm>) -> Result<(), Box<dyn std::error::Error>> {
//!     let channels = [Channels { algorithm: push.clone(), world: 4, dtype: DType::BF16, bytes: 4096, count: 2 }];
//!     let mut pool = SymmetricPool::open(machine, 4, 1 << 20, &channels)?;
//!     let (input, output) = (pool.allocate(200)?, pool.allocate(800)?);
//!     for rank in 0..4 {
//!         machine.write(pool.group(), rank, &input, &[rank as u8; 200])?;
//!     }
//!     let (collective, dtype, op) = (Collective::AllGather, DType::BF16, ReduceOp::Copy);
//!     let call = RankCall { collective, dtype, op, count: 100, root: 0, factor: None, parts: None, input, output: output.clone() };
//!     let target = Target { waiting_blocks: machine.waiting_blocks(4, 1), ..Target::default() };
//!     let gather = pool.start(push, &call, 4, &target)?;
//!     let step = Step::Enqueue { group: pool.group(), stream: 0, plan: gather.plan().clone() };
//!     machine.run(&Script { steps: vec![step] }, Duration::from_secs(10))?;
//!     drop(gather);
//!     assert_eq!(machine.read(pool.group(), 0, &output)?[600..], [3; 200]);
//!     Ok(pool.free(&output)?)
//! }
//! ```

mod free_list;

use std::sync::{Arc, Weak};

use free_list::{ALIGNMENT, FreeList};

use crate::{
    algorithms::{Algorithm, Target},
    collective::{Counts, DType},
    machine::{Machine, MachineError},
    plan::{BufferSpec, Call, CallError, Plan, RankCall, Region, Role},
};

/// Name of the buffer that allocations are parts of.
const MEMORY: &str = "pool";

/// How many calls of an algorithm in a group of ranks may be in flight at once, and how large they may be.
#[derive(Clone)]
pub struct Channels {
    /// Which.
    pub algorithm: Arc<dyn Algorithm>,
    /// The group: ranks 0 to `world - 1` of the pool's. Groups overlap.
    pub world: u32,
    /// Type of the elements.
    pub dtype: DType,
    /// Bytes of each rank's input, at most.
    pub bytes: u64,
    /// Calls in flight at once.
    pub count: u32,
}

/// Memory and channels in a group of a machine, for which its ranks have met once.
pub struct SymmetricPool {
    /// None until its buffers are opened.
    group: Option<usize>,
    world: u32,
    memory: FreeList,
    buffers: Vec<BufferSpec>,
    channels: Vec<Channel>,
}

/// A workspace of an algorithm's and a group's own.
struct Channel {
    algorithm: Arc<dyn Algorithm>,
    world: u32,
    /// The workspace under the names that the algorithm has for it.
    workspace: Vec<BufferSpec>,
    /// Who has it.
    taken: Weak<Uses>,
}

/// The memory that a call in flight uses, on any of its ranks.
struct Uses {
    name: String,
    reads: Region,
    writes: Region,
}

/// A call in flight: it has its channel, and its memory is not given back, until this is dropped.
pub struct InFlight {
    plan: Arc<Plan>,
    _uses: Arc<Uses>,
}

impl InFlight {
    /// What all ranks do, on the pool's [group](SymmetricPool::group). It may be captured, and enqueued any number of times on one stream.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }
}

/// Why a pool did not do what it was asked. It is as it was before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// No free piece is large enough.
    #[error("no room for {asked} bytes: {free} bytes are free, {largest} of them in one piece")]
    Full {
        /// Bytes that were asked for.
        asked: u64,
        /// Bytes that are free.
        free: u64,
        /// Bytes of the largest free piece.
        largest: u64,
    },
    /// A region is no allocation, or no part of one.
    #[error("{argument} {region} {wanted}: {} allocations are live{}", .live.len(), list(.live))]
    NotAllocated {
        /// What it was given as.
        argument: &'static str,
        /// What was given.
        region: Region,
        /// What it must be, in words.
        wanted: &'static str,
        /// The allocations there are.
        live: Vec<Region>,
    },
    /// Memory is used by a call in flight.
    #[error("{argument} {region} is in use: {call} in flight {how} {used}")]
    InUse {
        /// What it was given as.
        argument: &'static str,
        /// What was given.
        region: Region,
        /// The call's name.
        call: String,
        /// `reads` or `writes`.
        how: &'static str,
        /// What the call uses.
        used: Box<Region>,
    },
    /// All channels of an algorithm and a group are taken, or there are none.
    #[error("{algorithm} has no free channel for {world} ranks: {count} were opened and {count} calls are in flight")]
    NoChannel {
        /// Collective and name.
        algorithm: String,
        /// Ranks of the group.
        world: u32,
        /// How many it has.
        count: usize,
    },
    /// A call needs a larger workspace than its channels have.
    #[error("{algorithm} needs {needed} bytes of {buffer}, its channels were opened with {opened}")]
    TooLarge {
        /// Collective and name.
        algorithm: String,
        /// Which buffer of its workspace.
        buffer: String,
        /// Bytes that the call needs.
        needed: u64,
        /// Bytes that there are.
        opened: u64,
    },
    /// The algorithm does not do this call in a pool.
    #[error("{algorithm} does not do this call: {reason}")]
    Unsupported {
        /// Collective and name.
        algorithm: String,
        /// Why.
        reason: String,
    },
    /// The call contradicts itself.
    #[error(transparent)]
    Call(#[from] CallError),
}

fn list(live: &[Region]) -> String {
    let named: Vec<String> = live.iter().take(8).map(Region::to_string).collect();
    let more = if live.len() > named.len() { ", ..." } else { "" };
    if named.is_empty() { String::new() } else { format!(", {}{more}", named.join(", ")) }
}

impl SymmetricPool {
    /// Has `world` ranks of the machine meet, and opens a pool of `bytes` bytes for allocations on each (rounded up to a multiple of 512) and with
    /// these channels. The machine's groups must stay open for as long as it is used.
    ///
    /// # Errors
    /// As [`Machine::open_group`]; `Invalid` for channels of more ranks than the pool has, or of fewer where the algorithm reaches all of a group.
    pub fn open(
        machine: &mut (impl Machine + ?Sized),
        world: u32,
        bytes: u64,
        channels: &[Channels],
    ) -> Result<SymmetricPool, MachineError> {
        let mut pool = SymmetricPool::laid_out(world, bytes, channels)?;
        pool.group = Some(machine.open_group(world as usize, &pool.buffers)?);
        Ok(pool)
    }

    /// A pool for a group that is opened later, with [its buffers](SymmetricPool::buffers) among its own: what is planned without a machine.
    ///
    /// # Errors
    /// `Invalid`, as [`SymmetricPool::open`].
    pub fn laid_out(world: u32, bytes: u64, channels: &[Channels]) -> Result<SymmetricPool, MachineError> {
        let too_large = || MachineError::Invalid { reason: format!("a pool of {bytes} bytes is larger than any device") };
        let bytes = bytes.checked_next_multiple_of(ALIGNMENT).ok_or_else(too_large)?;
        let mut opened = Vec::new();
        for Channels { algorithm, world: of_group, dtype, bytes, count } in channels.iter().cloned() {
            let reaches_all = algorithm.uses_multicast() || algorithm.is_peer();
            if !(1..=world).contains(&of_group) || reaches_all && of_group < world {
                let allowed = if reaches_all { "it reaches all of a group, in a pool" } else { "the pool is" };
                let reason = format!("channels of {} for {of_group} ranks: {allowed} of {world}", name(&*algorithm));
                return Err(MachineError::Invalid { reason });
            }
            let workspace = algorithm.workspace(dtype, of_group, bytes);
            opened.extend((0..count).map(|_| Channel {
                algorithm: algorithm.clone(),
                world: of_group,
                workspace: workspace.clone(),
                taken: Weak::new(),
            }));
        }
        let mut buffers = vec![BufferSpec::new(MEMORY, bytes, Role::Data)];
        for (number, channel) in opened.iter().enumerate() {
            buffers.extend(channel.workspace.iter().map(|spec| BufferSpec { name: of_channel(number, &spec.name), ..spec.clone() }));
        }
        Ok(SymmetricPool { group: None, world, memory: FreeList::new(bytes), buffers, channels: opened })
    }

    /// What its group has: memory and channels.
    pub fn buffers(&self) -> &[BufferSpec] {
        &self.buffers
    }

    /// The machine's number of the group that the plans are for, and that the memory is read and written in.
    pub fn group(&self) -> usize {
        self.group.expect("a pool is laid out when its group is opened")
    }

    /// Bytes that are free on each rank: all together, and in the largest piece.
    pub fn free_bytes(&self) -> (u64, u64) {
        self.memory.free()
    }

    /// Memory for `bytes` bytes on every rank, at the same offset, a multiple of 512. It holds what was left there: to read it before it is written is a bug.
    ///
    /// # Errors
    /// [`PoolError::Full`].
    pub fn allocate(&mut self, bytes: u64) -> Result<Region, PoolError> {
        match self.memory.take(bytes) {
            Some(start) => Ok(Region::new(MEMORY, start, bytes)),
            None => {
                let (free, largest) = self.memory.free();
                Err(PoolError::Full { asked: bytes, free, largest })
            }
        }
    }

    /// Gives memory back, in any order. What uses it next must come after what was enqueued on it so far: see the [module](self).
    ///
    /// # Errors
    /// [`PoolError::NotAllocated`] where no allocation starts there, [`PoolError::InUse`] where a call in flight uses it.
    pub fn free(&mut self, region: &Region) -> Result<(), PoolError> {
        let argument = "allocation";
        let piece = self.piece(argument, region, "is not live")?;
        if piece.offset != region.offset {
            return Err(self.not_allocated(argument, region, "is only a part of one"));
        }
        for uses in self.in_flight() {
            for (how, used) in [("reads", &uses.reads), ("writes", &uses.writes)] {
                refuse_overlap(argument, &piece, &uses, how, used)?;
            }
        }
        self.memory.give_back(piece.offset);
        Ok(())
    }

    /// The call that ranks 0 to `world - 1` of the pool make when rank 0 passes `first`, in flight from now on; the others do nothing. Input and output
    /// are parts of allocations. Of a pre-multiplied sum, pass the algorithm that does these ([`Registry::for_operator`](crate::algorithms::Registry::for_operator)), as
    /// to the channel: it has products to keep.
    ///
    /// # Errors
    /// [`PoolError`], but for `Full`.
    pub fn start(&mut self, algorithm: &Arc<dyn Algorithm>, first: &RankCall, world: u32, target: &Target) -> Result<InFlight, PoolError> {
        let call = Call::uniform(first, world, &self.buffers[..1])?;
        self.begin(algorithm, &call, target)
    }

    /// The same for an all-to-all-v: `counts` has the elements that each rank sends to each, in place of the parts
    /// of `first`, whose `count` bounds them.
    ///
    /// # Errors
    /// As [`SymmetricPool::start`].
    pub fn start_all_to_all_v(
        &mut self,
        algorithm: &Arc<dyn Algorithm>,
        first: &RankCall,
        counts: &Counts,
        world: u32,
        target: &Target,
    ) -> Result<InFlight, PoolError> {
        let call = Call::with_counts(first, world, counts, &self.buffers[..1])?;
        self.begin(algorithm, &call, target)
    }

    fn begin(&mut self, algorithm: &Arc<dyn Algorithm>, call: &Call, target: &Target) -> Result<InFlight, PoolError> {
        let world = call.world();
        let unsupported = |reason: String| PoolError::Unsupported { algorithm: name(&**algorithm), reason };
        if call.collective != algorithm.collective() {
            return Err(unsupported(format!("it is of {}", call.collective)));
        }
        algorithm.supports(call).and_then(|()| algorithm.check_target(call, target)).map_err(unsupported)?;
        let uses = self.uses(call, &**algorithm)?;
        let number = self.free_channel(&**algorithm, world, &algorithm.workspace(call.dtype, world, call.bytes()))?;
        let mut plan = algorithm.plan(call, target);
        for region in plan.regions_mut().filter(|region| region.buffer != MEMORY) {
            region.buffer = of_channel(number, &region.buffer);
        }
        plan.ranks.resize(self.world as usize, Vec::new());
        let uses = Arc::new(uses);
        self.channels[number].taken = Arc::downgrade(&uses);
        Ok(InFlight { plan: Arc::new(plan), _uses: uses })
    }

    /// What a call uses, where that is live and no call in flight is in its way.
    fn uses(&self, call: &Call, algorithm: &dyn Algorithm) -> Result<Uses, PoolError> {
        // In place, the smaller region lies elsewhere in the larger one on each rank.
        let (input, output) = match call.in_place() {
            true if call.input.bytes > call.output.bytes => (&call.input, &call.input),
            true => (&call.output, &call.output),
            false => (&call.input, &call.output),
        };
        self.piece("input", input, "lies in no allocation")?;
        self.piece("output", output, "lies in no allocation")?;
        for uses in self.in_flight() {
            refuse_overlap("input", input, &uses, "writes", &uses.writes)?;
            refuse_overlap("output", output, &uses, "reads", &uses.reads)?;
            refuse_overlap("output", output, &uses, "writes", &uses.writes)?;
        }
        Ok(Uses { name: name(algorithm), reads: input.clone(), writes: output.clone() })
    }

    /// The first channel of an algorithm and a group that nobody has and that is large enough.
    fn free_channel(&self, algorithm: &dyn Algorithm, world: u32, needed: &[BufferSpec]) -> Result<usize, PoolError> {
        let is_it = |other: &dyn Algorithm| (other.collective(), other.name()) == (algorithm.collective(), algorithm.name());
        let is_one = |channel: &Channel| channel.world == world && is_it(&*channel.algorithm);
        let channels = || self.channels.iter().enumerate().filter(|(_, channel)| is_one(channel));
        let mut why = PoolError::NoChannel { algorithm: name(algorithm), world, count: channels().count() };
        for (number, channel) in channels().filter(|(_, channel)| channel.taken.strong_count() == 0) {
            let opened = |buffer: &str| channel.workspace.iter().find(|spec| spec.name == buffer).map_or(0, |spec| spec.bytes);
            let Some(spec) = needed.iter().find(|spec| spec.bytes > opened(&spec.name)) else { return Ok(number) };
            let (buffer, opened) = (spec.name.clone(), opened(&spec.name));
            why = PoolError::TooLarge { algorithm: name(algorithm), buffer, needed: spec.bytes, opened };
        }
        Err(why)
    }

    fn in_flight(&self) -> impl Iterator<Item = Arc<Uses>> {
        self.channels.iter().filter_map(|channel| channel.taken.upgrade())
    }

    /// The allocation that a region lies in.
    fn piece(&self, argument: &'static str, region: &Region, wanted: &'static str) -> Result<Region, PoolError> {
        let piece = self.memory.around(region.offset, region.bytes).filter(|_| region.buffer == MEMORY);
        let (start, length) = piece.ok_or_else(|| self.not_allocated(argument, region, wanted))?;
        Ok(Region::new(MEMORY, start, length))
    }

    fn not_allocated(&self, argument: &'static str, region: &Region, wanted: &'static str) -> PoolError {
        let live = self.memory.taken().map(|(start, length)| Region::new(MEMORY, start, length)).collect();
        PoolError::NotAllocated { argument, region: region.clone(), wanted, live }
    }
}

/// Collective and name.
fn name(algorithm: &dyn Algorithm) -> String {
    format!("{}/{}", algorithm.collective(), algorithm.name())
}

/// Name of a channel's buffer.
fn of_channel(number: usize, buffer: &str) -> String {
    format!("channel{number}.{buffer}")
}

fn refuse_overlap(argument: &'static str, region: &Region, uses: &Uses, how: &'static str, used: &Region) -> Result<(), PoolError> {
    if region.bytes == 0 || used.bytes == 0 || !region.overlaps(used) {
        return Ok(());
    }
    Err(PoolError::InUse { argument, region: region.clone(), call: uses.name.clone(), how, used: Box::new(used.clone()) })
}
