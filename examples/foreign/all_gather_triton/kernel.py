"""An all-gather in Triton: every rank writes its slot to all ranks' outputs, over a table of their addresses.

    python3 kernel.py            # writes kernel.ptx and kernel.bug.ptx beside this file: ../ahead_of_time.py

  first barrier:  earlier work of each rank's stream is done with its output, so that peers may write there
  second barrier: publishes what peers wrote to our output
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import ahead_of_time
import triton
import triton.language as tl
from signals import barrier


@triton.jit
def all_gather(input, outputs, pads, counts, elements, rank, world, TILE: tl.constexpr, PLANTED_BUG: tl.constexpr):
    block = tl.program_id(0)
    count = tl.load(counts + block)
    # The bug: we write to outputs that slower ranks still use.
    if not PLANTED_BUG:
        barrier(pads, count + 1, rank, world)
    for start in range(block * TILE, elements, tl.num_programs(0) * TILE):
        index = start + tl.arange(0, TILE)
        tile = tl.load(input + index, mask=index < elements)
        for peer in range(world):
            slot = tl.load(outputs + peer).to(tl.pointer_type(tl.bfloat16)) + rank * elements
            tl.store(slot + index, tile, mask=index < elements)
    barrier(pads, count + 2, rank, world)
    tl.store(counts + block, count + 2)


if __name__ == "__main__":
    signature = {"input": "*bf16", "outputs": "*i64", "pads": "*i64", "counts": "*i32", "elements": "i32", "rank": "i32", "world": "i32"}
    ahead_of_time.write(pathlib.Path(__file__).resolve().parent, all_gather, signature, {"TILE": 1024})
