"""vLLM 34991: a block stores a vector and loads one of its elements back, without a barrier between.

The dispatch of a mixture of experts by pulling: each block takes senders in turn, finds where the sender's part begins in the output, which
is the sum of the parts before it, and copies the part from the sender's input.

  start: release of the count to every peer, acquire of theirs: inputs may be read.
  end:   the same: our reads of peers' inputs are over.
  bug:   the prefix sums are stored to memory as a vector, a thread for each element, and every thread loads the one it needs. Between them
         is no barrier: threads of other warps load before the store, and get what an earlier call left there.
  mend:  every thread adds up the lengths of the parts before, and loads nothing that this kernel stores.
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "foreign"))
import ahead_of_time
import triton
import triton.language as tl
from signals import barrier


@triton.jit
def dispatch(inputs, lengths, offsets, starts, pads, counts, output, rank, world, SENDERS: tl.constexpr, TILE: tl.constexpr, PLANTED_BUG: tl.constexpr):
    block = tl.program_id(0)
    count = tl.load(counts + block)
    barrier(pads, count + 1, rank, world)
    if PLANTED_BUG:
        senders = tl.arange(0, SENDERS)
        parts = tl.load(lengths + senders, mask=senders < world, other=0)
        before = tl.cumsum(parts) - parts
    for sender in range(block, world, tl.num_programs(0)):
        if PLANTED_BUG:
            tl.store(starts + senders, before, mask=senders < world)
            start = tl.load(starts + sender)
        else:
            start = 0
            for earlier in range(sender):
                start += tl.load(lengths + earlier)
            tl.store(starts + sender, start)
        length = tl.load(lengths + sender)
        part = tl.load(inputs + sender).to(tl.pointer_type(tl.bfloat16)) + tl.load(offsets + sender)
        for first in range(0, length, TILE):
            index = first + tl.arange(0, TILE)
            tl.store(output + start + index, tl.load(part + index, mask=index < length), mask=index < length)
    barrier(pads, count + 2, rank, world)
    tl.store(counts + block, count + 2)


if __name__ == "__main__":
    signature = {"inputs": "*i64", "lengths": "*i32", "offsets": "*i32", "starts": "*i32", "pads": "*i64", "counts": "*i32", "output": "*bf16"}
    signature |= {"rank": "i32", "world": "i32"}
    ahead_of_time.write(pathlib.Path(__file__).resolve().parent, dispatch, signature, {"SENDERS": 256, "TILE": 512}, num_warps=8)
