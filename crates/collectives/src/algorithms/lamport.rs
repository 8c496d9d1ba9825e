//! What the launches of kernels share that send Lamport packs, whose own value says that they are there: see kernels/common/lamport.cuh.

use crate::{
    algorithms::{MAX_BLOCKS, PACK, Target, launch, reduction::has_own_entry, sync_argument_of, synchronisation_with},
    collective::ReduceOp,
    kernels::Module,
    plan::{Arg, BufferSpec, Call, Launch, Op, Role},
};

/// Packs of a tile, a warp's, and tiles of a chunk. Mirrors kernels/common/lines.cuh and lamport.cuh.
const TILE: u64 = 32;
const CHUNK: u64 = 8;

/// Threads of a block while there are blocks to spare, and the most: the entry `any` takes the registers of fewer.
const FEW_THREADS: u32 = 128;
const MOST_THREADS: u32 = 1024;
const MOST_THREADS_OF_ANY: u32 = 512;

/// Bytes that the packs of all ranks in one pad may have, of one parity. What is larger is better done otherwise.
const MOST_BYTES: u64 = 32 << 20;

/// Pads, counts and the rest of `algorithm` for calls that send each peer up to `bytes` bytes; last the pads of escapes.
pub(super) fn buffers(algorithm: &str, world: u32, bytes: u64) -> Vec<BufferSpec> {
    let chunks = bytes.min(most_bytes(world)).div_ceil(PACK * TILE * CHUNK);
    let pad = chunks * 2 * u64::from(world) * CHUNK * TILE * PACK;
    let mut buffers = synchronisation_with(algorithm, world, pad, chunks * CHUNK * 4);
    buffers[0].role = Role::Slots;
    buffers.push(BufferSpec::new(format!("{algorithm}.escapes"), 2 * pad, Role::Slots));
    buffers
}

/// The arguments that the kernels end with: their `Sync` struct and the pads of escapes.
pub(super) fn arguments(buffers: &[BufferSpec], rank: u32, world: u32) -> [Arg; 2] {
    let [synchronisation @ .., escapes] = buffers else { unreachable!("there are buffers") };
    [sync_argument_of(synchronisation, rank, world), Arg::Peers(escapes.whole())]
}

/// How the kernels are launched. They wait for what is in front of them on their stream themselves, before their first access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// As programmatic dependent launches: their blocks may be resident before what is in front of them is done.
    Dependent,
    /// When what is in front of them is done: as any other, to be compared with.
    Serial,
}

/// The launch of the kernel that `module` has for a call that sends each peer so many bytes: a pack a thread, in as many blocks as may wait and no more
/// threads than it takes.
pub(super) fn launch_of(module: &Module, call: &Call, target: &Target, start: Start, bytes: u64, args: Vec<Arg>) -> Op {
    let is_any = call.op != ReduceOp::Copy && !has_own_entry(module, call.dtype, call.op);
    let most_threads = if is_any { MOST_THREADS_OF_ANY } else { MOST_THREADS };
    let Op::Launch(launch) = launch(module, call, target, grid(bytes, target.waiting_blocks, most_threads), args) else {
        unreachable!("a launch is one")
    };
    Op::Launch(Launch { programmatic: start == Start::Dependent, ..launch })
}

/// Blocks and threads of one for so many bytes to each peer.
fn grid(bytes: u64, waiting_blocks: u32, most_threads: u32) -> (u32, u32) {
    let packs = bytes.div_ceil(PACK);
    let most = u64::from(waiting_blocks.min(MAX_BLOCKS));
    let mut block = FEW_THREADS;
    while block < most_threads && packs.div_ceil(u64::from(block)) > most {
        block *= 2;
    }
    (packs.div_ceil(u64::from(block)).clamp(1, most) as u32, block)
}

/// The most bytes that a call may send each peer.
fn most_bytes(world: u32) -> u64 {
    MOST_BYTES / u64::from(world)
}

/// Whether so many bytes to each peer are not too many.
///
/// # Errors
/// Says what the algorithm takes.
pub(super) fn fits(algorithm: &str, part: &str, bytes: u64, world: u32) -> Result<(), String> {
    let most = most_bytes(world);
    if bytes > most {
        return Err(format!("{algorithm} takes {part} of up to {most} bytes among {world} ranks, not of {bytes}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, threads take packs one after the other where all could be under way at once.
    #[test]
    fn every_pack_has_a_thread_of_its_own_where_blocks_may_wait() {
        for (packs, expected) in
            [(0, (1, 128)), (1, (1, 128)), (512, (4, 128)), (16384, (128, 128)), (32768, (128, 256)), (131_072, (128, 1024))]
        {
            assert_eq!(grid(packs * PACK, 128, MOST_THREADS), expected, "{packs} packs");
        }
        assert_eq!(grid(65536 * PACK, 5, MOST_THREADS), (5, 1024));
        assert_eq!(grid(16 << 20, MAX_BLOCKS, MOST_THREADS_OF_ANY), (MAX_BLOCKS, MOST_THREADS_OF_ANY));
    }
}
