"""An all-to-all in Triton with parts of any length: every rank writes each peer's part to that peer's output, as the dispatch of a mixture of
experts does.

    python3 kernel.py            # writes kernel.ptx and kernel.bug.ptx beside this file: ../ahead_of_time.py

Parts lie packed in inputs and outputs. Three tables in device memory say how long our part for each peer is, where it begins in our input,
and where in its receiver's output.

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
def dispatch(input, outputs, lengths, sent_at, received_at, pads, counts, rank, world, TILE: tl.constexpr, PLANTED_BUG: tl.constexpr):
    block = tl.program_id(0)
    count = tl.load(counts + block)
    barrier(pads, count + 1, rank, world)
    for step in range(world):
        peer = (rank + step) % world  # all begin with another receiver
        length = tl.load(lengths + peer)
        part = input + tl.load(sent_at + peer)
        place = tl.load(outputs + peer).to(tl.pointer_type(tl.bfloat16)) + tl.load(received_at + peer)
        for start in range(block * TILE, length, tl.num_programs(0) * TILE):
            index = start + tl.arange(0, TILE)
            tile = tl.load(part + index, mask=index < length, other=0.0)
            # The bug: whole tiles are stored, over the beginning of the part that comes next.
            if PLANTED_BUG:
                tl.store(place + index, tile)
            else:
                tl.store(place + index, tile, mask=index < length)
    barrier(pads, count + 2, rank, world)
    tl.store(counts + block, count + 2)


if __name__ == "__main__":
    signature = {"input": "*bf16", "outputs": "*i64", "lengths": "*i64", "sent_at": "*i64", "received_at": "*i64", "pads": "*i64", "counts": "*i32"}
    signature |= {"rank": "i32", "world": "i32"}
    ahead_of_time.write(pathlib.Path(__file__).resolve().parent, dispatch, signature, {"TILE": 1024})
