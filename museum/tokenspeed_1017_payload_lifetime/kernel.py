"""tokenspeed 1017: a one-shot all-reduce overwrites its payload for the next call while peers still read it.

Each block copies its tiles of the input to the rank's payload, which peers can read, says so, waits for theirs and adds. Epochs are counted
for each block; the grid is the same in every call, so that a tile is always of the same block.

  ready: tl.debug_barrier, release of the epoch to every peer, acquire of theirs, tl.debug_barrier. It publishes the payload.
  done:  tl.debug_barrier, release of the epoch to every peer: our reads of its payload are over. The next call acquires all peers' before
         it writes.
  bug:   nobody says done. A rank that is ahead overwrites what others read: ready says that a payload was written, not that it was read.
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "foreign"))
import ahead_of_time
import triton
import triton.language as tl

BLOCKS = tl.constexpr(8)


@triton.jit
def signal(pads, epoch, rank, world):
    tl.debug_barrier()
    for peer in range(world):
        pad = tl.load(pads + peer).to(tl.pointer_type(tl.int32))
        tl.atomic_xchg(pad + rank * BLOCKS + tl.program_id(0), epoch, sem="release", scope="sys")


@triton.jit
def wait(pads, epoch, rank, world):
    own = tl.load(pads + rank).to(tl.pointer_type(tl.int32))
    for peer in range(world):
        while tl.atomic_add(own + peer * BLOCKS + tl.program_id(0), 0, sem="acquire", scope="sys") < epoch:
            pass
    tl.debug_barrier()


@triton.jit
def one_shot_all_reduce(input, payloads, ready, done, epochs, output, elements, rank, world, TILE: tl.constexpr, PLANTED_BUG: tl.constexpr):
    block = tl.program_id(0)
    epoch = tl.load(epochs + block) + 1
    if not PLANTED_BUG:
        wait(done, epoch - 1, rank, world)
    own = tl.load(payloads + rank).to(tl.pointer_type(tl.bfloat16))
    for start in range(block * TILE, elements, tl.num_programs(0) * TILE):
        index = start + tl.arange(0, TILE)
        tl.store(own + index, tl.load(input + index, mask=index < elements), mask=index < elements)
    signal(ready, epoch, rank, world)
    wait(ready, epoch, rank, world)
    for start in range(block * TILE, elements, tl.num_programs(0) * TILE):
        index = start + tl.arange(0, TILE)
        total = tl.zeros([TILE], tl.float32)
        for peer in range(world):
            other = tl.load(payloads + peer).to(tl.pointer_type(tl.bfloat16))
            total += tl.load(other + index, mask=index < elements, other=0.0).to(tl.float32)
        tl.store(output + index, total.to(tl.bfloat16), mask=index < elements)
    if not PLANTED_BUG:
        signal(done, epoch, rank, world)
    tl.store(epochs + block, epoch)


if __name__ == "__main__":
    signature = {"input": "*bf16", "payloads": "*i64", "ready": "*i64", "done": "*i64", "epochs": "*i32", "output": "*bf16"}
    signature |= {"elements": "i32", "rank": "i32", "world": "i32"}
    ahead_of_time.write(pathlib.Path(__file__).resolve().parent, one_shot_all_reduce, signature, {"TILE": 512})
