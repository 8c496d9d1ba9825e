//! The race check: happens-before by the PTX memory model, lane by lane, while the ranks run.
//!
//! [`Races`] sees what happens, in the order in which the emulator lets it happen: operations of streams, accesses, fences, barriers. It keeps
//! for each byte who accessed it last ([`shadow`]), and for each thread what is known to have happened before ([`clock`], [`actors`]). Two
//! accesses race (PTX ISA 8.7.1) if they overlap, one writes, they are not morally strong, and neither is ordered before the other. Memory itself
//! is sequentially consistent here, so the run goes on after a race, and what is found depends on the order of synchronisation
//! alone, not on values that a device might have shown. One run tells of the paths and the order that it took, and of no other.
//!
//! # Time
//! Each block counts its own time, which goes on where one of its threads publishes something and where a barrier completes. Threads share the
//! block's clock as of its last barrier until they acquire something themselves, and those that acquire alike share what they then know
//! ([`actors`]). What the block's own threads had done at its last barrier is one number beside the clock, added to what is published. Of operations
//! that are wholly known, a clock has but a number for each stream. `reference` is the same check without any of this, for tests.
//!
//! # Views
//! A clock is kept in several [`views`] at once: the memory model's, those with an assumption more, and those with something granted, from which a finding
//! says what is missing. They share what they have in common.
//!
//! # Profiles
//! In [`Profile::Ptx`] whatever the ISA does not order is a finding. In [`Profile::Hopper`] these are waived, and listed with the assumption's name:
//!
//! | assumption | what it says |
//! |---|---|
//! | `boundary` | what a rank's stream did before a kernel is published by every strong `.sys` write of that kernel, to every strong `.sys` read of it; and the end of a kernel acquires what its strong reads saw released. Not for a weak read of bytes that its block has read before without an acquire since: its SM may have kept them |
//! | `dependency` | the same of `griddepcontrol.wait`: what the launches did that it waits for is published by every strong `.sys` write that follows the wait |
//! | `retired` | reads that came before a barrier of the block are over when a strong `.sys` write after it is seen by a strong `.sys` read: a later write does not reach them |
//! | `vector` | aligned accesses of up to 16 bytes are not torn |
//! | `returned` | reads that are ordered before an asynchronous write of the same bytes have returned: it does not reach them, without a proxy fence |
//! | `lanes` | lanes of one instruction that store the same bytes to one place leave them there |
//! | `alias` | a place's multicast and its own address are coherent without a proxy fence |
//!
//! # How the ISA is read here
//! | of | the ISA (section) | read as |
//! |---|---|---|
//! | boundaries of kernels, stream order | not in chapter 8 | they synchronise, for all threads and all proxies of the rank; towards other ranks they are neither a release nor an acquire: that is `boundary` |
//! | `griddepcontrol.wait` | 9.7.13 | the launches that it waits for are done, and what they did is visible to this launch; towards other ranks it is neither a release nor an acquire: that is `dependency` |
//! | forks and joins of a plan | not in chapter 8 | what follows them on the one stream comes after what was done on the other |
//! | streams of a rank, hosts | not in chapter 8 | else no order but by memory; a host's delay orders nothing; all before the run is known to all |
//! | library calls | none | all ranks' streams are ordered before and after the call |
//! | copies, fills | none | weak, generic proxy, ordered by their stream |
//! | a stream's write of a word | none | a release at `.sys` of all that the stream did |
//! | a stream's wait for a word | none | an acquire at `.sys` by all that follows on the stream; on GPUs that takes the flush of remote writes |
//! | clusters | 8.5, 9.7.13 | scope `.cluster` is the blocks of one; `barrier.cluster` orders what came before an arrival that releases before what comes after a wait; threads that have ended take no part |
//! | two lanes of one instruction | 8.2, 8.9.2 | threads as any other; neither acquires what the other releases |
//! | `shfl`, `vote`, `match`, `redux`, `elect` | 9.7 | order nothing |
//! | `bar.sync`, `bar.red`, `bar.warp.sync` | 9.7.13 | order all participants; `bar.arrive` is a source only; threads that have ended take no part |
//! | `fence.sc` | 8.9.3, 8.10.4 | also a fence.acq_rel; ordered after all that came before it here and include each other |
//! | a strong read of what a strong write wrote | 8.9.5 | orders that write, and nothing before it, before what follows the read, also where atomics of the same scope have written over it in between: a Lamport slot may be reset by a weak store once the peer's store in it was seen, and a counter once all were counted |
//! | `red` | 8.9.2 | continues a release, never acquires |
//! | a failed `cas` | 8.2 | a strong read |
//! | volatile, `.mmio` | 8.2, 8.4 | relaxed at `.sys` |
//! | vectors, packed types | 8.2.2 | an access for each element; `.b128` is one |
//! | `ld.global.nc` | outside the model | must be ordered after what it reads before its kernel starts |
//! | strong operations on one place by different proxies | 8.6, 8.9.5 | coherent, so flags work; data needs `fence.proxy.alias` anywhere between, a kernel's boundary counts |
//!
//! # Not here
//! Local memory and parameters, which are a thread's own. The proxies of textures and constants. If threads of one block release on one location
//! with one scope, an acquire takes what all of them released there.

mod actors;
mod asynchronous;
mod check;
mod clock;
mod finding;
mod instruction;
mod operation;
#[cfg(test)]
mod reference;
mod release;
mod report;
mod shadow;
mod synchronise;
mod tensor_maps;
#[cfg(test)]
mod tests;
mod views;
mod writers;

use std::sync::Arc;

pub use actors::{ActorId, Lanes, OperationId};
pub(crate) use asynchronous::{FlightId, Proxy};
pub use finding::ASSUMPTIONS;
pub(crate) use instruction::{At, Effect, Touch};
pub use operation::Known;
pub use report::Report;
pub use writers::Writer;

use actors::{Actor, Block, Operation};
use asynchronous::Asynchronous;
use check::Conflict;
use finding::Findings;
use shadow::Shadow;
use synchronise::Sequential;
use tensor_maps::MapFences;
#[cfg(test)]
use views::View;
use views::Views;

use passmuster_ptx::Module;

use super::memory::AllocationId;

/// What the race check takes for granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// Nothing but the PTX ISA.
    Ptx,
    /// Also how Hopper behaves: what only that orders is listed as waived, with the assumption's name.
    #[default]
    Hopper,
    /// Races are not looked for.
    Off,
}

impl std::fmt::Display for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Profile::Ptx => "ptx",
            Profile::Hopper => "hopper",
            Profile::Off => "off",
        })
    }
}

/// A kernel whose instructions are known by number.
#[derive(Debug)]
struct Code {
    module: Arc<Module>,
    /// The module's name.
    name: Arc<str>,
    entry: Arc<str>,
    /// Number of the first instruction of each function.
    functions: Vec<u32>,
}

/// The race check of one run.
#[derive(Debug)]
pub struct Races {
    profile: Profile,
    /// Streams of each rank.
    streams_of_rank: usize,
    /// What each stream knows, rank by rank.
    streams: Vec<Arc<Views>>,
    /// How many operations each stream has started.
    started: Vec<u32>,
    /// The last operation of each stream, and what was known where it started.
    last: Vec<Option<(OperationId, Arc<Views>)>>,
    /// Whether the next operation of each stream is one with its last.
    one_with_the_last: Vec<bool>,
    operations: Vec<Operation>,
    actors: Vec<Actor>,
    /// By actor; blocks that run.
    blocks: Vec<Option<Box<Block>>>,
    codes: Vec<Code>,
    points: u32,
    shadow: Shadow,
    /// States of locations so far.
    states: u64,
    sequential: Sequential,
    asynchronous: Asynchronous,
    map_fences: MapFences,
    findings: Findings,
    /// Memory whose first write ends the check: waits that give up tell it there.
    ends_with: Vec<AllocationId>,
    ended: bool,
    /// What an access under way conflicts with.
    conflicts: Vec<Conflict>,
}

impl Races {
    /// For a run of `ranks` ranks with `streams` streams each. Once something is written to an allocation of `ends_with`, nothing is checked
    /// any more. `None` if the profile asks for no check.
    pub fn new(profile: Profile, ranks: usize, streams: usize, ends_with: Vec<AllocationId>) -> Option<Races> {
        let nothing = Arc::<Views>::default();
        (profile != Profile::Off).then(|| Races {
            profile,
            streams_of_rank: streams,
            streams: vec![nothing; ranks * streams],
            started: vec![0; ranks * streams],
            last: vec![None; ranks * streams],
            one_with_the_last: vec![false; ranks * streams],
            operations: Vec::new(),
            actors: Vec::new(),
            blocks: Vec::new(),
            codes: Vec::new(),
            points: 0,
            shadow: Shadow::default(),
            states: 0,
            sequential: Sequential::new(ranks),
            asynchronous: Asynchronous::default(),
            map_fences: MapFences::default(),
            findings: Findings::default(),
            ends_with,
            ended: false,
            conflicts: Vec::new(),
        })
    }

    fn operation_of(&self, actor: u32) -> &Operation {
        &self.operations[self.actors[actor as usize].operation as usize]
    }

    fn block(&mut self, actor: ActorId) -> Option<&mut Block> {
        self.blocks[actor.0 as usize].as_deref_mut()
    }
}
