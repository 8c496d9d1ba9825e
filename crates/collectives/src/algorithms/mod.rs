//! Algorithms: ways to do a collective, each with what it promises, what it supports and its plan.
//!
//! Nothing here knows which machine it will run on.

pub mod all_gather;
pub mod all_gather_matmul;
pub mod all_reduce;
pub mod all_to_all;
pub mod auto;
pub mod broadcast;
mod copy_engine;
mod foreign;
mod hold;
mod lines;
pub mod matmul;
pub mod matmul_reduce_scatter;
mod multimem;
mod nccl;
pub mod plain;
pub mod premul_sum;
pub mod reduce;
pub mod reduce_scatter;
pub mod reduction;
mod tensor_parallel;
pub mod tuning;

use std::sync::OnceLock;

pub use auto::Auto;
pub use copy_engine::gate;
pub use foreign::{Foreign, SpecError};
pub use hold::Holders;
pub use nccl::Nccl;
pub use plain::Plain;
pub use premul_sum::doing;
pub use reduction::entry;
use reduction::reduction;
pub use tensor_parallel::Half;

use crate::{
    collective::{Collective, DType},
    contract::Contract,
    plan::{Arg, BufferSpec, Build, Call, Launch, MAX_WORLD, Op, Plan, Region, Role},
};

/// One way to do a collective.
pub trait Algorithm: Sync {
    /// The collective it does.
    fn collective(&self) -> Collective;

    /// Its name, unique within the collective: `two_shot`.
    fn name(&self) -> &'static str;

    /// What it promises about the numbers of a call.
    fn contract(&self, call: &Call) -> Contract;

    /// Whether it does a call among no more ranks than it can have.
    ///
    /// # Errors
    /// The reason why not, for people.
    fn does(&self, call: &Call) -> Result<(), String>;

    /// Whether it can do a call at all.
    ///
    /// # Errors
    /// The reason why not, for people.
    fn supports(&self, call: &Call) -> Result<(), String> {
        if call.world() > self.most_ranks() {
            return Err(format!("{} has {} ranks at most, this call {}", self.name(), self.most_ranks(), call.world()));
        }
        self.does(call)
    }

    /// The largest group it can have: as many ranks as its kernels can address, more where it has none.
    fn most_ranks(&self) -> u32 {
        MAX_WORLD as u32
    }

    /// Buffers that it needs beside the caller's, for calls with up to `bytes` bytes of input of `dtype` elements. Their names start with
    /// the algorithm's.
    fn workspace(&self, dtype: DType, world: u32, bytes: u64) -> Vec<BufferSpec>;

    /// What all ranks do. A pure function of its arguments. `call` is one that the algorithm supports.
    fn plan(&self, call: &Call, target: &Target) -> Plan;

    /// Bytes that one call takes over the links of the rank that has most of them, in the busier direction, flags included; `None` where
    /// nobody says.
    fn link_bytes(&self, call: &Call) -> Option<u64> {
        let _ = call;
        None
    }

    /// Whether a call is a pre-multiplied sum and the kernels of its plan multiply what they load. Where they do not, [`doing`] gives them the products.
    fn multiplies(&self, call: &Call) -> bool {
        let _ = call;
        false
    }

    /// Why another algorithm should be chosen for a call although this one does it and does calls of this size well: what `auto` goes by beside sizes.
    fn gives_way(&self, call: &Call) -> Option<&'static str> {
        let _ = call;
        None
    }

    /// Whether it is somebody else's, here to be compared with.
    fn is_peer(&self) -> bool {
        false
    }

    /// Whether its kernels take multicast addresses, which not every machine has.
    fn uses_multicast(&self) -> bool {
        false
    }

    /// Whether inputs and outputs may lie in memory that peers cannot address.
    fn takes_any_memory(&self) -> bool {
        false
    }

    /// Environment variables that the machine's process must have been started with: how a vendor's library is forced onto one path.
    fn environment(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }
}

/// What a plan is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Which build of the kernels.
    pub build: Build,
    /// The most blocks of one rank that may wait for blocks of other ranks: they must all be resident at once.
    pub waiting_blocks: u32,
}

impl Default for Target {
    /// The release build on a device of its own.
    fn default() -> Target {
        Target { build: Build::Release, waiting_blocks: 128 }
    }
}

/// Every algorithm of passmuster's own, and the peers. [`Auto`], which is one of them by turns, and [`Plain`] around it are found by name only.
pub fn all() -> &'static [&'static dyn Algorithm] {
    &[
        &all_reduce::OneShot,
        &all_reduce::TwoShot,
        &all_reduce::OneShotPush,
        &all_reduce::TwoShotPush,
        &all_reduce::Push,
        &all_reduce::CopyEngine,
        &all_reduce::Multimem,
        &all_reduce::MultimemOneShot,
        &Nccl::RING,
        &Nccl::TREE,
        &Nccl::SYMMETRIC_LL,
        &Nccl::SYMMETRIC_LD_ST,
        &all_gather::Push,
        &all_gather::Ll,
        &all_gather::CopyEngine,
        &all_gather::Multimem,
        &Nccl::ALL_GATHER_RING,
        &Nccl::ALL_GATHER_SYMMETRIC_ST,
        &reduce_scatter::Pull,
        &reduce_scatter::Push,
        &reduce_scatter::Ll,
        &reduce_scatter::Multimem,
        &Nccl::REDUCE_SCATTER_RING,
        &Nccl::REDUCE_SCATTER_SYMMETRIC_LD,
        &all_to_all::Push,
        &all_to_all::Ll,
        &all_to_all::CopyEngine,
        &Nccl::ALL_TO_ALL_SEND_RECV,
        &broadcast::Push,
        &broadcast::Pull,
        &broadcast::Multimem,
        &Nccl::BROADCAST_RING,
        &reduce::Pull,
        &reduce::TwoShot,
        &reduce::Push,
        &Nccl::REDUCE_RING,
    ]
}

/// Kernels from elsewhere, once they were made known.
static FOREIGN: OnceLock<Vec<&'static dyn Algorithm>> = OnceLock::new();

fn foreign() -> &'static [&'static dyn Algorithm] {
    FOREIGN.get().map_or(&[], Vec::as_slice)
}

/// Makes algorithms from elsewhere known to [`find`], and so to case ids, once in the life of the process. They live as long as it does.
///
/// # Errors
/// A name that is taken, or a second call of this function.
pub fn register(algorithms: Vec<Foreign>) -> Result<Vec<&'static Foreign>, String> {
    for (at, algorithm) in algorithms.iter().enumerate() {
        let same = |name: &str, collective| name == algorithm.name() && collective == algorithm.collective();
        if all().iter().any(|a| same(a.name(), a.collective())) || algorithms[..at].iter().any(|a| same(a.name(), a.collective())) {
            return Err(format!("there is an algorithm `{}` of {} already", algorithm.name(), algorithm.collective()));
        }
    }
    let registered: Vec<&'static Foreign> = algorithms.into_iter().map(|algorithm| &*Box::leak(Box::new(algorithm))).collect();
    let known = registered.iter().map(|&algorithm| algorithm as &dyn Algorithm).collect();
    FOREIGN.set(known).map_err(|_| "algorithms from elsewhere are registered once".to_owned())?;
    Ok(registered)
}

/// The algorithm called `name` for a collective.
///
/// # Errors
/// Names the algorithms there are.
pub fn find(collective: Collective, name: &str) -> Result<&'static dyn Algorithm, String> {
    let of_collective =
        || [all(), timed_only(), &Auto::ALL, &Plain::ALL, foreign()].concat().into_iter().filter(|a| a.collective() == collective);
    of_collective().find(|a| a.name() == name).ok_or_else(|| {
        let names: Vec<&str> = of_collective().map(|a| a.name()).collect();
        format!("unknown algorithm `{name}` of {collective}: expected one of {}", names.join(", "))
    })
}

/// Peers that are timed, and of which the lists have few cases or none: which way NCCL goes there is its own choice, and it says nothing where it cannot go
/// the one that was asked for, so that whoever uses them must see for himself.
pub fn timed_only() -> &'static [&'static dyn Algorithm] {
    &[
        &Nccl::ALL_REDUCE_SYMMETRIC,
        &Nccl::ALL_GATHER_SYMMETRIC,
        &Nccl::ALL_GATHER_COPY_ENGINE,
        &Nccl::REDUCE_SCATTER_SYMMETRIC,
        &Nccl::ALL_TO_ALL_SYMMETRIC,
        &Nccl::ALL_TO_ALL_COPY_ENGINE,
    ]
}

/// A plan's name for reports.
fn plan_name(algorithm: &str, call: &Call) -> String {
    let place = if call.in_place() { " in place" } else { "" };
    let root = if call.collective.has_root() { format!(" root={}", call.root) } else { String::new() };
    let parts = if call.counts().is_some() { " in parts" } else { "" };
    format!("{}/{algorithm} {} {} w={} n={}{root}{place}{parts}", call.collective, call.dtype, call.op, call.world(), call.count)
}

/// A launch of the kernel that `module` has for the call's type and operator, with so many blocks and threads of one, which waits for peers.
fn launch(module: &str, call: &Call, target: &Target, (grid, block): (u32, u32), args: Vec<Arg>) -> Op {
    Op::Launch(Launch {
        module: module.into(),
        entry: entry(module, call.dtype, call.op),
        build: target.build,
        grid,
        block,
        dynamic_shared: 0,
        waits_for_peers: true,
        args,
    })
}

/// Bytes of a pack: the widest access.
const PACK: u64 = 16;

/// Threads of a block in kernels that synchronise per block.
const THREADS: u32 = 512;

/// The `Ranks` struct of kernels/common/slices.cuh: so many ranks from the first on, going round.
#[derive(Clone, Copy)]
struct Ranks {
    first: u32,
    count: u32,
}

impl Ranks {
    fn argument(self) -> Arg {
        Arg::Struct(vec![Arg::U32(self.first), Arg::U32(self.count)])
    }
}

/// The most blocks that any kernel's signals are laid out for.
const MAX_BLOCKS: u32 = 128;

/// Buffers of an algorithm whose kernels use kernels/common/signals.cuh: its own signal pad, epochs, stuck report and stall times.
fn synchronisation(algorithm: &str) -> Vec<BufferSpec> {
    synchronisation_with(algorithm, ENTRIES * 4, u64::from(MAX_BLOCKS) * 4)
}

/// One entry for each (block, peer).
const ENTRIES: u64 = MAX_BLOCKS as u64 * MAX_WORLD as u64;

/// The same with a signal pad and epochs of these sizes in bytes.
fn synchronisation_with(algorithm: &str, signals: u64, epochs: u64) -> Vec<BufferSpec> {
    vec![
        BufferSpec::new(format!("{algorithm}.signals"), signals, Role::Signals),
        BufferSpec::new(format!("{algorithm}.epochs"), epochs, Role::State),
        BufferSpec::new(format!("{algorithm}.stuck"), 64 + ENTRIES * 16, Role::StuckReport),
        BufferSpec::new(format!("{algorithm}.stalls"), 32, Role::Stalls),
    ]
}

/// The `Sync` struct of kernels/common/signals.cuh.
fn sync_argument(algorithm: &str, rank: u32, world: u32) -> Arg {
    sync_argument_of(&synchronisation(algorithm), rank, world)
}

/// The same for the buffers of [`synchronisation_with`].
fn sync_argument_of(buffers: &[BufferSpec], rank: u32, world: u32) -> Arg {
    let [signals, epochs, stuck, stalls] = buffers else { unreachable!("four buffers synchronise") };
    Arg::Struct(vec![
        Arg::Peers(signals.whole()),
        Arg::Address(epochs.whole()),
        Arg::Address(stuck.whole()),
        Arg::Address(stalls.whole()),
        Arg::WaitLimit,
        Arg::U32(rank),
        Arg::U32(world),
    ])
}

/// Blocks for `units` of work at one unit a thread, at least one: a call of zero elements still meets its peers.
fn blocks_for(units: u64, most: u32) -> u32 {
    units.div_ceil(u64::from(THREADS)).clamp(1, u64::from(most.min(MAX_BLOCKS))) as u32
}

/// The slot of a rank in a region of slots of so many bytes.
fn slot(of: &Region, rank: u32, bytes: u64) -> Region {
    Region::new(of.buffer.clone(), of.offset + u64::from(rank) * bytes, bytes)
}

/// Where an algorithm keeps a copy of `region` that peers may read while the region itself is overwritten. It keeps the region's
/// distance from a 16-byte boundary, so that packs stay packs.
fn staging(algorithm: &str, region: &Region) -> Region {
    Region::new(format!("{algorithm}.staging"), region.offset % PACK, region.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{collective::Shape, plan::MAX_RANKS};

    /// If this fails, a kernel would be given fewer addresses than its group has ranks, or copies by copy engines end where kernels do.
    #[test]
    fn more_ranks_than_kernels_address_are_for_copy_engines() {
        let call = |collective: Collective, world| {
            Call::on_its_own(Shape::new(collective, world, 8), DType::BF16, collective.operators()[0]).map(|(call, _)| call)
        };
        let [most, more] = [MAX_WORLD as u32, MAX_RANKS as u32];
        for &algorithm in all() {
            let (collective, name) = (algorithm.collective(), algorithm.name());
            let does = |world| algorithm.supports(&call(collective, world).unwrap());
            let copies = name == "copy_engine" && collective != Collective::AllReduce;
            assert!(copies == does(more).is_ok() && copies == does(most + 1).is_ok(), "{collective}/{name}");
            if !copies && does(most).is_ok() {
                assert_eq!(does(more).unwrap_err(), format!("{name} has {most} ranks at most, this call {more}"));
            }
        }
        let error = call(Collective::AllGather, more + 1).unwrap_err();
        assert_eq!(error.to_string(), "world size 65 is not supported: a group has 1 to 64 ranks");
    }
}
