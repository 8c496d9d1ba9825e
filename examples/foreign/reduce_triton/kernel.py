"""A reduce in Triton: the root adds all ranks' inputs, over a table of their addresses. Nobody else writes an output.

    python3 kernel.py            # writes kernel.ptx and kernel.bug.ptx beside this file: ../ahead_of_time.py

Sums are in rank order, in f32, rounded once.

  ready: each rank signals the root, which waits for all. It publishes what earlier work of each rank's stream wrote to its input.
  done:  the root signals each rank. Its reads of our input are over.
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import ahead_of_time
import triton
import triton.language as tl
from signals import barrier, signal, wait


@triton.jit
def add(inputs, output, elements, world, TILE: tl.constexpr):
    for start in range(tl.program_id(0) * TILE, elements, tl.num_programs(0) * TILE):
        index = start + tl.arange(0, TILE)
        first = tl.load(inputs).to(tl.pointer_type(tl.bfloat16))
        total = tl.load(first + index, mask=index < elements, other=0.0).to(tl.float32)
        for peer in range(1, world):
            other = tl.load(inputs + peer).to(tl.pointer_type(tl.bfloat16))
            total += tl.load(other + index, mask=index < elements, other=0.0).to(tl.float32)
        tl.store(output + index, total.to(tl.bfloat16), mask=index < elements)


@triton.jit
def reduce(inputs, pads, counts, output, elements, rank, root, world, TILE: tl.constexpr, PLANTED_BUG: tl.constexpr):
    block = tl.program_id(0)
    count = tl.load(counts + block)
    # The bug: all ranks add, and all write their outputs, as in an all-reduce.
    if PLANTED_BUG:
        barrier(pads, count + 1, rank, world)
        add(inputs, output, elements, world, TILE)
        barrier(pads, count + 2, rank, world)
    else:
        signal(pads, count + 1, rank, root)
        if rank == root:
            for peer in range(world):
                wait(pads, count + 1, rank, peer)
            add(inputs, output, elements, world, TILE)
            for peer in range(world):
                signal(pads, count + 2, rank, peer)
        wait(pads, count + 2, rank, root)
    tl.store(counts + block, count + 2)


if __name__ == "__main__":
    signature = {"inputs": "*i64", "pads": "*i64", "counts": "*i32", "output": "*bf16", "elements": "i32", "rank": "i32", "root": "i32", "world": "i32"}
    ahead_of_time.write(pathlib.Path(__file__).resolve().parent, reduce, signature, {"TILE": 1024})
