//! What the launches of kernels share that send lines which carry their flag: see kernels/common/lines.cuh.

use passmuster_plan::{
    algorithms::kit::{MAX_BLOCKS, THREADS, synchronisation_with},
    plan::BufferSpec,
};

/// Bytes of data in a line, and bytes of the line.
pub(super) const PAYLOAD: u64 = 8;
const LINE: u64 = 16;

/// Lines of one tile of a pad.
pub(crate) const TILE: u64 = 32;

/// Threads of a block while there are blocks to spare: a warp for each of an SM's four schedulers. Each thread stores and loads a line
/// for each peer, and more SMs do that in less time.
const FEW_THREADS: u32 = 128;

/// Pads, counts and the rest of `algorithm` for calls that send each peer up to `bytes` bytes.
pub(super) fn buffers(algorithm: &str, world: u32, bytes: u64) -> Vec<BufferSpec> {
    let tiles = bytes.div_ceil(PAYLOAD).div_ceil(TILE);
    synchronisation_with(algorithm, tiles * 2 * u64::from(world) * TILE * LINE, tiles * TILE * 4)
}

/// Blocks, and threads of each, for `bytes` bytes to each peer: a line a thread, in as many blocks as may wait and no more threads than it takes.
pub(super) fn grid(bytes: u64, waiting_blocks: u32) -> (u32, u32) {
    let lines = bytes.div_ceil(PAYLOAD);
    let most = u64::from(waiting_blocks.min(MAX_BLOCKS));
    let mut block = FEW_THREADS;
    while block < THREADS && lines.div_ceil(u64::from(block)) > most {
        block *= 2;
    }
    (lines.div_ceil(u64::from(block)).clamp(1, most) as u32, block)
}

/// Whether `bytes` bytes to each peer are no more than `most`.
///
/// # Errors
/// Says what the algorithm takes.
pub(super) fn fits(algorithm: &str, part: &str, bytes: u64, most: u64) -> Result<(), String> {
    if bytes > most {
        return Err(format!("{algorithm} takes {part} of up to {most} bytes, not of {bytes}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, threads take lines one after the other, each with a trip of its own, where all could be under way at once.
    #[test]
    fn every_line_has_a_thread_of_its_own_where_blocks_may_wait() {
        for (lines, expected) in
            [(0, (1, 128)), (1, (1, 128)), (1024, (8, 128)), (8192, (64, 128)), (32768, (128, 256)), (65536, (128, 512))]
        {
            assert_eq!(grid(lines * PAYLOAD, 128), expected, "{lines} lines");
        }
        assert_eq!(grid(65536 * PAYLOAD, 5), (5, 512));
        assert_eq!(grid(1024 * PAYLOAD, 1), (1, 512));
        assert_eq!(grid(512 << 10, MAX_BLOCKS), (MAX_BLOCKS, THREADS));
    }
}
