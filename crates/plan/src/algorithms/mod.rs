//! Algorithms: ways to do a collective, each with what it promises, what it supports and its plan.
//!
//! Nothing here knows which machine it will run on.

mod foreign;
pub mod kit;
mod mutant;
mod nccl;
mod parallel;
pub(crate) mod reduction;
mod registry;
mod task;

use std::sync::Arc;

pub use foreign::{Files, Foreign, ForeignModule, ForeignTask, Kernels, References, SpecError, Specified};
pub use mutant::{Edit, Mutant, MutantKind};
pub use nccl::Nccl;
pub use parallel::{TensorParallel, TensorParallelFusion};
pub use registry::{Catalogue, Premul, Registry, RegistryError};
pub use task::TaskAlgorithm;

use crate::{
    collective::{Collective, DType},
    contract::Contract,
    modules::Module,
    plan::{BufferSpec, Call, MAX_RANKS, Plan},
};

/// One way to do a collective.
pub trait Algorithm: Send + Sync {
    /// The collective it does.
    fn collective(&self) -> Collective;

    /// Its name, unique within the collective: `two_shot`.
    fn name(&self) -> &str;

    /// The kernel modules that are its own. One that launches another algorithm's leaves it to that.
    fn modules(&self) -> Vec<&'static Module> {
        Vec::new()
    }

    /// How its ranks know that data is there.
    fn protocol(&self) -> Protocol {
        Protocol::Signals
    }

    /// What it promises about the numbers of a call.
    fn contract(&self, call: &Call) -> Contract;

    /// Assumptions about the hardware that its kernels mean to rest on, of [`ASSUMPTIONS`](crate::machine::ASSUMPTIONS), each with the reason. What a run needs beyond them is printed as not declared.
    fn assumes(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Whether it does a call among no more ranks than it can have.
    ///
    /// # Errors
    /// The reason why not, for people.
    fn check_supported(&self, call: &Call) -> Result<(), String>;

    /// Whether the plan of a supported call can be made for this target. Of our own kernels it can; a kernel from elsewhere may have no launch for so few waiting
    /// blocks, so ask before you plan one.
    ///
    /// # Errors
    /// The reason why not, for people.
    fn check_target(&self, call: &Call, target: &Target) -> Result<(), String> {
        let _ = (call, target);
        Ok(())
    }

    /// Whether it can do a call at all.
    ///
    /// # Errors
    /// The reason why not, for people.
    fn supports(&self, call: &Call) -> Result<(), String> {
        if call.world() > self.most_ranks() {
            return Err(format!("{} has {} ranks at most, this call {}", self.name(), self.most_ranks(), call.world()));
        }
        if call.nodes() > 1 && !self.spans_nodes() {
            return Err(format!("ranks of {} reach each other's memory, this call's are on {} nodes", self.name(), call.nodes()));
        }
        self.check_supported(call)
    }

    /// Whether its ranks may be on several nodes.
    fn spans_nodes(&self) -> bool {
        false
    }

    /// The largest group it can have: as many ranks as its kernels have room for.
    fn most_ranks(&self) -> u32 {
        MAX_RANKS as u32
    }

    /// Bytes behind an input that its kernels may read: 0 unless they load whole vectors past the end, as allocators of frameworks let them.
    fn readable_behind(&self) -> u64 {
        0
    }

    /// Buffers that it needs beside the caller's, for calls with up to `bytes` bytes of input of `dtype` elements. Their names start with
    /// the algorithm's.
    fn workspace(&self, dtype: DType, world: u32, bytes: u64) -> Vec<BufferSpec>;

    /// What all ranks do. A pure function of its arguments. `call` is one that the algorithm supports, `target` one that it [can be made for](Algorithm::check_target).
    fn plan(&self, call: &Call, target: &Target) -> Plan;

    /// Bytes that one call takes over the links of the rank that has most of them, in the busier direction, flags included; `None` where
    /// nobody says.
    fn link_bytes(&self, call: &Call) -> Option<u64> {
        let _ = call;
        None
    }

    /// The algorithm that does this one's pre-multiplied sums, where that is not a kernel that multiplies before this one: see [`Registry::for_operator`].
    fn of_products(&self) -> Option<Arc<dyn Algorithm>> {
        None
    }

    /// Whether a call is a pre-multiplied sum and the kernels of its plan multiply what they load. Where they do not, [`Registry::for_operator`] gives them the
    /// products.
    fn fuses_premul(&self, call: &Call) -> bool {
        let _ = call;
        false
    }

    /// Of one that is another algorithm by turns: the sizes at which its choice changes, in bytes of the larger of input and output, for each number of ranks for
    /// which somebody measured. Lists of cases have calls on both sides of each.
    fn switches(&self) -> Vec<(u32, u64)> {
        Vec::new()
    }

    /// Why another algorithm should be chosen for a call although this one does it and does calls of this size well: what `auto` goes by beside sizes.
    fn defer_reason(&self, call: &Call) -> Option<&'static str> {
        let _ = call;
        None
    }

    /// Whether it is somebody else's, here to be compared with.
    fn is_peer(&self) -> bool {
        false
    }

    /// Whether it is a kernel from elsewhere: made from a specification.
    fn is_foreign(&self) -> bool {
        false
    }

    /// Whether its kernels take multicast addresses, which not every machine has.
    fn uses_multicast(&self) -> bool {
        false
    }

    /// Whether inputs and outputs may lie in memory that peers cannot address.
    fn accepts_unregistered(&self) -> bool {
        false
    }

    /// Whether its plans differ by the [number of the call](Target::call): what is captured would repeat one.
    fn numbers_calls(&self) -> bool {
        false
    }

    /// Whether a call out of place may leave anything in its input.
    fn destroys_input(&self) -> bool {
        false
    }

    /// Environment variables that the machine's process must have been started with: how a vendor's library is forced onto one path.
    fn environment(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
}

/// How the ranks of an algorithm know that each other's data is there. Lists of cases go by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Protocol {
    /// Kernels signal and wait: barriers between ranks.
    Signals,
    /// LL: kernels poll lines that carry their flag beside the data.
    Lines,
    /// Lamport: kernels poll packs whose own value says that they are there.
    Packs,
    /// Streams write words and wait for them. Copy engines move the data: no kernel waits, and none could be late.
    StreamWords,
    /// Kernels of one block signal and wait. Copy engines move the data between them.
    CopyBarriers,
}

impl Protocol {
    /// Whether kernels poll the data itself: ranks wait for all of it, and large calls differ from small ones in time only.
    pub fn polls_data(self) -> bool {
        matches!(self, Protocol::Lines | Protocol::Packs)
    }

    /// Whether copy engines move the data, which know neither types nor operators.
    pub fn is_by_copy_engine(self) -> bool {
        matches!(self, Protocol::StreamWords | Protocol::CopyBarriers)
    }
}

/// What a plan is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Whether kernels are launched that look up how long to lose at each [site](crate::machine::Site): cases that have a rank late inside a kernel need it.
    pub stalls: bool,
    /// The most blocks of one rank that may wait for blocks of other ranks: they must all be resident at once.
    pub waiting_blocks: u32,
    /// How many calls of the algorithm its group has made before: what hosts pass as an epoch. Only plans of those that
    /// [number their calls](Algorithm::numbers_calls) differ by it.
    pub call: u64,
    /// Elements of a slot of the largest call that the group's buffers are for; of this call where none is said.
    pub most_count: Option<u64>,
}

impl Default for Target {
    /// The first call, without stalls, on a device of its own.
    fn default() -> Target {
        Target { stalls: false, waiting_blocks: 128, call: 0, most_count: None }
    }
}

/// Names that algorithms had before, and have now: ids of old reports have them.
const RENAMED: [(&str, &str); 1] = [("plain", "unregistered")];

/// What the algorithm is called now that had a name before.
pub fn renamed(then: &str) -> Option<&'static str> {
    RENAMED.iter().find(|(name, _)| *name == then).map(|(_, now)| *now)
}
