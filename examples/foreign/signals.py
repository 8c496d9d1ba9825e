"""Signals between ranks in Triton, over a device table of the addresses of all ranks' pads. What the Triton examples share.

Every rank has a pad with a word for each (rank, block), and counts only grow, so that a captured launch replays. What was done by a whole
block before `signal` is published to whoever has come through `wait`.

  signal: tl.debug_barrier, for what all threads of the block have done; release of the count to a peer's pad
  wait:   acquire from our own pad until the count is reached; tl.debug_barrier, for all threads of the block
"""

import triton
import triton.language as tl

MOST_BLOCKS = tl.constexpr(128)


@triton.jit
def signal(pads, count, rank, peer):
    tl.debug_barrier()
    pad = tl.load(pads + peer).to(tl.pointer_type(tl.int32))
    tl.atomic_xchg(pad + rank * MOST_BLOCKS + tl.program_id(0), count, sem="release", scope="sys")


@triton.jit
def wait(pads, count, rank, peer):
    pad = tl.load(pads + rank).to(tl.pointer_type(tl.int32))
    while tl.atomic_add(pad + peer * MOST_BLOCKS + tl.program_id(0), 0, sem="acquire", scope="sys") < count:
        pass
    tl.debug_barrier()


@triton.jit
def barrier(pads, count, rank, world):
    """Blocks of one index meet on all ranks."""
    for peer in range(world):
        signal(pads, count, rank, peer)
    for peer in range(world):
        wait(pads, count, rank, peer)
