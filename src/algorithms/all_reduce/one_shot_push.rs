//! `all_reduce/one_shot_push`: every rank pushes its input to all in lines that carry their flag. See kernels/all_reduce/one_shot_push.cu.

use super::{average, entry, plan_name};
use crate::{
    algorithms::{Algorithm, MAX_BLOCKS, THREADS, Target, sync_argument_of, synchronisation_with},
    collective::{Collective, DType},
    contract::Contract,
    plan::{Arg, BufferSpec, Call, Launch, Op, Plan},
};

/// Push everything to all, reduce in rank order what the peers have pushed: one trip and no barrier, 2 x (world - 1) x bytes into each rank.
pub struct OneShotPush;

const NAME: &str = "one_shot_push";

/// The largest input in bytes. Flags double what crosses the link, so it is no use long before that.
const MAX_BYTES: u64 = 512 << 10;

/// Bytes of data in a line, and bytes of the line. Mirrors kernels/common/lines.cuh, as [`TILE`] does.
const PAYLOAD: u64 = 8;
const LINE: u64 = 16;

/// Lines of one tile of a pad.
const TILE: u64 = 32;

/// Threads of a block while there are blocks to spare: a warp for each of a multiprocessor's four schedulers. Each thread stores and loads a line
/// for each peer, and more multiprocessors do that in less time.
const FEW_THREADS: u32 = 128;

/// Pads, counts and the rest for calls of up to `bytes` bytes.
fn buffers(world: u32, bytes: u64) -> Vec<BufferSpec> {
    let tiles = bytes.min(MAX_BYTES).div_ceil(PAYLOAD).div_ceil(TILE);
    synchronisation_with(NAME, tiles * 2 * u64::from(world) * TILE * LINE, tiles * TILE * 4)
}

/// Blocks and threads of one for so many lines: a line a thread, in as many blocks as may wait and no more threads than it takes.
fn shape(lines: u64, waiting_blocks: u32) -> (u32, u32) {
    let most = u64::from(waiting_blocks.min(MAX_BLOCKS));
    let mut block = FEW_THREADS;
    while block < THREADS && lines.div_ceil(u64::from(block)) > most {
        block *= 2;
    }
    (lines.div_ceil(u64::from(block)).clamp(1, most) as u32, block)
}

impl Algorithm for OneShotPush {
    fn collective(&self) -> Collective {
        Collective::AllReduce
    }

    fn name(&self) -> &'static str {
        NAME
    }

    fn contract(&self, _: &Call) -> Contract {
        Contract::ORDERED
    }

    fn supports(&self, call: &Call) -> Result<(), String> {
        if call.bytes() > MAX_BYTES {
            return Err(format!("{NAME} takes inputs of up to {MAX_BYTES} bytes, not of {}", call.bytes()));
        }
        Ok(())
    }

    fn workspace(&self, _: DType, world: u32, bytes: u64) -> Vec<BufferSpec> {
        buffers(world, bytes)
    }

    fn plan(&self, call: &Call, target: &Target) -> Plan {
        let (grid, block) = shape(call.bytes().div_ceil(PAYLOAD), target.waiting_blocks);
        let buffers = buffers(call.world(), call.bytes());
        Plan::per_rank(plan_name(NAME, call), call.world(), |rank| {
            vec![Op::Launch(Launch {
                module: "all_reduce/one_shot_push".into(),
                entry: entry(NAME, call),
                build: target.build,
                grid,
                block,
                dynamic_shared: 0,
                waits_for_peers: true,
                args: vec![
                    Arg::Address(call.input.clone()),
                    Arg::Address(call.output.clone()),
                    Arg::U32(call.count as u32),
                    average(call),
                    sync_argument_of(&buffers, rank, call.world()),
                ],
            })]
        })
    }
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
            assert_eq!(shape(lines, 128), expected, "{lines} lines");
        }
        assert_eq!(shape(65536, 5), (5, 512));
        assert_eq!(shape(1024, 1), (1, 512));
        assert_eq!(shape(MAX_BYTES / PAYLOAD, MAX_BLOCKS), (MAX_BLOCKS, THREADS));
    }
}
