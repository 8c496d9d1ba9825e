"""PyTorch 195761: a rank clears its flag while another may already be raising it.

A broadcast by put and signal: every rank clears its flag, the root writes to all outputs and raises their flags, and all wait until theirs
is raised.

  clear: a rank's own flag, and then all ranks meet: release of the count to every peer, acquire of theirs. Flags are clear, outputs may be
         written.
  put:   tl.debug_barrier, release of one to every flag; acquire until it is one, tl.debug_barrier. It publishes the data.
  bug:   nobody meets after clearing. The root may raise a flag that is then cleared, and its rank waits for ever.
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "foreign"))
import ahead_of_time
import triton
import triton.language as tl
from signals import barrier


@triton.jit
def broadcast(input, outputs, flags, pads, counts, elements, rank, root, world, TILE: tl.constexpr, PLANTED_BUG: tl.constexpr):
    block = tl.program_id(0)
    count = tl.load(counts + block) + 1
    flag = tl.load(flags + rank).to(tl.pointer_type(tl.int32)) + block
    tl.store(flag, 0)
    if not PLANTED_BUG:
        barrier(pads, count, rank, world)
    if rank == root:
        for start in range(block * TILE, elements, tl.num_programs(0) * TILE):
            index = start + tl.arange(0, TILE)
            tile = tl.load(input + index, mask=index < elements)
            for peer in range(world):
                tl.store(tl.load(outputs + peer).to(tl.pointer_type(tl.bfloat16)) + index, tile, mask=index < elements)
        tl.debug_barrier()
        for peer in range(world):
            tl.atomic_xchg(tl.load(flags + peer).to(tl.pointer_type(tl.int32)) + block, 1, sem="release", scope="sys")
    while tl.atomic_add(flag, 0, sem="acquire", scope="sys") != 1:
        pass
    tl.debug_barrier()
    tl.store(counts + block, count)


if __name__ == "__main__":
    signature = {"input": "*bf16", "outputs": "*i64", "flags": "*i64", "pads": "*i64", "counts": "*i32", "elements": "i32"}
    signature |= {"rank": "i32", "root": "i32", "world": "i32"}
    ahead_of_time.write(pathlib.Path(__file__).resolve().parent, broadcast, signature, {"TILE": 512})
