"""A reduce-scatter in Triton: every rank adds its slot of all ranks' inputs, over a table of their addresses.

    python3 kernel.py            # writes kernel.ptx and kernel.bug.ptx beside this file: ../ahead_of_time.py

Sums are in rank order, in f32, rounded once.

  first barrier:  publishes what earlier work of each rank's stream wrote to its input
  second barrier: says that our reads of peers' inputs are over
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import ahead_of_time
import triton
import triton.language as tl
from signals import barrier


@triton.jit
def reduce_scatter(inputs, pads, counts, output, elements, rank, world, TILE: tl.constexpr, PLANTED_BUG: tl.constexpr):
    block = tl.program_id(0)
    count = tl.load(counts + block)
    barrier(pads, count + 1, rank, world)
    for start in range(block * TILE, elements, tl.num_programs(0) * TILE):
        index = start + tl.arange(0, TILE)
        first = tl.load(inputs).to(tl.pointer_type(tl.bfloat16)) + rank * elements
        total = tl.load(first + index, mask=index < elements, other=0.0).to(tl.float32)
        for peer in range(1, world):
            slot = tl.load(inputs + peer).to(tl.pointer_type(tl.bfloat16)) + rank * elements
            total += tl.load(slot + index, mask=index < elements, other=0.0).to(tl.float32)
            # The bug: the sum is rounded after each rank, as it is where it is kept in the type of the elements.
            if PLANTED_BUG:
                total = total.to(tl.bfloat16).to(tl.float32)
        tl.store(output + index, total.to(tl.bfloat16), mask=index < elements)
    barrier(pads, count + 2, rank, world)
    tl.store(counts + block, count + 2)


if __name__ == "__main__":
    signature = {"inputs": "*i64", "pads": "*i64", "counts": "*i32", "output": "*bf16", "elements": "i32", "rank": "i32", "world": "i32"}
    ahead_of_time.write(pathlib.Path(__file__).resolve().parent, reduce_scatter, signature, {"TILE": 1024})
