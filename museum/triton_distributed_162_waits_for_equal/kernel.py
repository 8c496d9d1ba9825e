"""Triton-distributed 162: a receiver waits for a signal to be equal to its epoch, and a sender that is ahead has already raised it further.

A push all-gather with little latency: each block writes its tiles to all peers' staging buffers, signals the epoch and copies what came to
the output. The grid is the same in every call.

  pushed: tl.debug_barrier, release of the epoch to every peer, acquire of theirs, tl.debug_barrier. It publishes the tiles, and says that
          the copies of the call before are over: staging buffers take turns by epoch.
  bug:    the wait is for the epoch itself. A peer may be one call ahead, with data that is still there but a signal of epoch + 1: the wait
          never ends.
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "foreign"))
import ahead_of_time
import triton
import triton.language as tl

BLOCKS = tl.constexpr(8)


@triton.jit
def all_gather(input, staging, signals, epochs, output, elements, most_elements, rank, world, TILE: tl.constexpr, PLANTED_BUG: tl.constexpr):
    block = tl.program_id(0)
    epoch = tl.load(epochs + block) + 1
    turn = epoch % 2 * world * most_elements
    for start in range(block * TILE, elements, tl.num_programs(0) * TILE):
        index = start + tl.arange(0, TILE)
        tile = tl.load(input + index, mask=index < elements)
        for peer in range(world):
            place = tl.load(staging + peer).to(tl.pointer_type(tl.bfloat16)) + turn + rank * most_elements
            tl.store(place + index, tile, mask=index < elements)
    tl.debug_barrier()
    for peer in range(world):
        signal = tl.load(signals + peer).to(tl.pointer_type(tl.int32)) + rank * BLOCKS + block
        tl.atomic_xchg(signal, epoch, sem="release", scope="sys")
    own = tl.load(signals + rank).to(tl.pointer_type(tl.int32)) + block
    for peer in range(world):
        if PLANTED_BUG:
            while tl.atomic_add(own + peer * BLOCKS, 0, sem="acquire", scope="sys") != epoch:
                pass
        else:
            while tl.atomic_add(own + peer * BLOCKS, 0, sem="acquire", scope="sys") < epoch:
                pass
    tl.debug_barrier()
    came = tl.load(staging + rank).to(tl.pointer_type(tl.bfloat16)) + turn
    for peer in range(world):
        for start in range(block * TILE, elements, tl.num_programs(0) * TILE):
            index = start + tl.arange(0, TILE)
            tile = tl.load(came + peer * most_elements + index, mask=index < elements)
            tl.store(output + peer * elements + index, tile, mask=index < elements)
    tl.store(epochs + block, epoch)


if __name__ == "__main__":
    signature = {"input": "*bf16", "staging": "*i64", "signals": "*i64", "epochs": "*i32", "output": "*bf16"}
    signature |= {"elements": "i32", "most_elements": "i32", "rank": "i32", "world": "i32"}
    ahead_of_time.write(pathlib.Path(__file__).resolve().parent, all_gather, signature, {"TILE": 512})
