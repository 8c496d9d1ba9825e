//! What plans of algorithms are put together from: for those in this crate, and for those that others write in theirs.
//!
//! All of it goes with the headers under kernels/common/, which the kernels include.

use super::Target;
pub use super::reduction::{argument, entry, has_own_entry, reduction};
use crate::{
    modules::Module,
    plan::{Arg, BufferSpec, Call, Launch, MAX_RANKS, Op, Region, Role},
};

/// A plan's name for reports.
pub fn plan_name(algorithm: &str, call: &Call) -> String {
    let place = if call.in_place() { " in place" } else { "" };
    let root = if call.collective.has_root() { format!(" root={}", call.root) } else { String::new() };
    let parts = if call.counts().is_some() { " in parts" } else { "" };
    format!("{}/{algorithm} {} {} w={} n={}{root}{place}{parts}", call.collective, call.dtype, call.op, call.world(), call.count)
}

/// A launch of the kernel that `module` has for the call's type and operator, of `grid` blocks of `block` threads, which waits for peers. A block has at least
/// as many threads as there are ranks: in barriers each looks after one. Where the target wants stalls, it is of the module's text that
/// [has them](crate::modules::with_stalls).
pub fn launch(module: &Module, call: &Call, target: &Target, (grid, block): (u32, u32), args: Vec<Arg>) -> Op {
    Op::Launch(Launch {
        waits_for_peers: true,
        ..Launch::new(
            if target.stalls { module.name_with_stalls() } else { module.name.into() },
            entry(module, call.dtype, call.op),
            (grid, block),
            args,
        )
    })
}

/// Bytes of a pack: the widest access.
pub const PACK: u64 = 16;

/// Threads of a block in kernels that synchronise per block.
pub const THREADS: u32 = 512;

/// Threads of a block while there are blocks to spare.
const FEW_THREADS: u32 = 128;

/// The `Ranks` struct of kernels/common/abi.cuh: `count` ranks from the first on, going round.
#[derive(Clone, Copy)]
pub struct Ranks {
    /// The first of them.
    pub first: u32,
    /// How many.
    pub count: u32,
}

impl Ranks {
    /// As C++ declares them.
    pub(crate) const FIELDS: [&str; 2] = ["u32 first", "u32 count"];

    /// As an argument of a launch.
    pub fn argument(self) -> Arg {
        Arg::Struct(vec![Arg::U32(self.first), Arg::U32(self.count)])
    }
}

/// The most blocks that any kernel's signals are laid out for.
pub const MAX_BLOCKS: u32 = 128;

/// Buffers of an algorithm whose kernels use kernels/common/signals.cuh: its own signal pad, epochs, stuck report and stall times.
pub fn synchronisation(algorithm: &str) -> Vec<BufferSpec> {
    synchronisation_with(algorithm, ENTRIES * 4, u64::from(MAX_BLOCKS) * 4)
}

/// One for each (block, peer).
const ENTRIES: u64 = MAX_BLOCKS as u64 * MAX_RANKS as u64;

/// The same with a signal pad and epochs of these sizes in bytes.
pub fn synchronisation_with(algorithm: &str, signals: u64, epochs: u64) -> Vec<BufferSpec> {
    vec![
        BufferSpec::new(format!("{algorithm}.signals"), signals, Role::Signals),
        BufferSpec::new(format!("{algorithm}.epochs"), epochs, Role::State),
        BufferSpec::new(format!("{algorithm}.stuck"), 64 + ENTRIES * 16, Role::StuckReport),
        BufferSpec::new(format!("{algorithm}.stalls"), 32, Role::Stalls),
    ]
}

/// The `Sync` struct of kernels/common/abi.cuh.
pub fn sync_argument(algorithm: &str, rank: u32, world: u32) -> Arg {
    sync_argument_of(&synchronisation(algorithm), rank, world)
}

/// The same for the buffers of [`synchronisation_with`].
pub fn sync_argument_of(buffers: &[BufferSpec], rank: u32, world: u32) -> Arg {
    Arg::Struct(sync_struct(buffers, rank, world).map(|(_, _, arg)| arg).into())
}

/// The fields of `Sync`: how C++ declares each, what it is, and what a launch passes.
fn sync_struct(buffers: &[BufferSpec], rank: u32, world: u32) -> [(&'static str, &'static str, Arg); 7] {
    let [signals, epochs, stuck, stalls] = buffers else { unreachable!("four buffers synchronise") };
    [
        ("u32 rank", "", Arg::U32(rank)),
        ("u32 world", "", Arg::U32(world)),
        ("u32* epochs", "one word a block", Arg::Address(epochs.whole())),
        ("u32* stuck", "stuck report of this rank", Arg::Address(stuck.whole())),
        ("u32* stalls", "nanoseconds to lose at each site: tests alone read them", Arg::Address(stalls.whole())),
        ("u64 limit", "nanoseconds after which a wait gives up", Arg::WaitLimit),
        ("Peers pads", "signal pad of every rank", Arg::Peers(signals.whole())),
    ]
}

/// The declarations of `Sync`, and what each field is.
pub(crate) fn sync_fields() -> [(&'static str, &'static str); 7] {
    sync_struct(&synchronisation(""), 0, 0).map(|(field, what, _)| (field, what))
}

/// Blocks for `units` of work at one unit a thread, at least one: a call of zero elements still meets its peers.
pub fn blocks_for(units: u64, most: u32) -> u32 {
    units.div_ceil(u64::from(THREADS)).clamp(1, u64::from(most.min(MAX_BLOCKS))) as u32
}

/// Blocks, and threads of each, for `units` of work at one unit a thread: as many blocks as may wait before a block has more than 128 threads, which are a
/// warp for each of an SM's four schedulers. More SMs do the same in less time.
pub fn grid(units: u64, waiting_blocks: u32, most_threads: u32) -> (u32, u32) {
    let most = u64::from(waiting_blocks.min(MAX_BLOCKS));
    let mut block = FEW_THREADS;
    while block < most_threads && units.div_ceil(u64::from(block)) > most {
        block *= 2;
    }
    (units.div_ceil(u64::from(block)).clamp(1, most) as u32, block)
}

/// The slot of a rank in a region of slots of `bytes` bytes.
pub fn slot(of: &Region, rank: u32, bytes: u64) -> Region {
    Region::new(of.buffer.clone(), of.offset + u64::from(rank) * bytes, bytes)
}

/// Where an algorithm keeps a copy of `region` that peers may read while the region itself is overwritten. It keeps the region's
/// distance from a 16-byte boundary, so that packs stay packs.
pub fn staging(algorithm: &str, region: &Region) -> Region {
    Region::new(format!("{algorithm}.staging"), region.offset % PACK, region.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, threads take packs or lines one after the other, each with a trip of its own, where all could be under way at once.
    #[test]
    fn every_unit_has_a_thread_of_its_own_where_blocks_may_wait() {
        for (units, expected) in
            [(0, (1, 128)), (1, (1, 128)), (512, (4, 128)), (16384, (128, 128)), (32768, (128, 256)), (131_072, (128, 1024))]
        {
            assert_eq!(grid(units, 128, 1024), expected, "{units} units");
        }
        assert_eq!(grid(65536, 5, 1024), (5, 1024));
        assert_eq!(grid(1024, 1, 512), (1, 512));
        assert_eq!(grid(1 << 20, MAX_BLOCKS, 512), (MAX_BLOCKS, 512));
    }
}
