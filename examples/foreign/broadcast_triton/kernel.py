"""A broadcast in Triton: every rank reads the root's input, over a table of the inputs' addresses.

    python3 kernel.py            # writes kernel.ptx and kernel.bug.ptx beside this file: ../ahead_of_time.py

  ready: the root signals each rank. It publishes what earlier work of the root's stream wrote to its input.
  done:  each rank signals the root, which waits for all. Their reads of its input are over.
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import ahead_of_time
import triton
import triton.language as tl
from signals import signal, wait


@triton.jit
def broadcast(inputs, pads, counts, output, elements, rank, root, world, TILE: tl.constexpr, PLANTED_BUG: tl.constexpr):
    block = tl.program_id(0)
    count = tl.load(counts + block)
    if rank == root:
        for peer in range(world):
            signal(pads, count + 1, rank, peer)
    wait(pads, count + 1, rank, root)
    source = tl.load(inputs + root).to(tl.pointer_type(tl.bfloat16))
    for start in range(block * TILE, elements, tl.num_programs(0) * TILE):
        index = start + tl.arange(0, TILE)
        tl.store(output + index, tl.load(source + index, mask=index < elements), mask=index < elements)
    signal(pads, count + 2, rank, root)
    # The bug: the root does not wait, and what follows on its stream overwrites the input that others still read.
    if rank == root and not PLANTED_BUG:
        for peer in range(world):
            wait(pads, count + 2, rank, peer)
    tl.store(counts + block, count + 2)


if __name__ == "__main__":
    signature = {"inputs": "*i64", "pads": "*i64", "counts": "*i32", "output": "*bf16", "elements": "i32", "rank": "i32", "root": "i32", "world": "i32"}
    ahead_of_time.write(pathlib.Path(__file__).resolve().parent, broadcast, signature, {"TILE": 1024})
