"""Three Triton kernels over symmetric memory: an all-reduce, an all-reduce fused with a residual and an RMSNorm, and a reduce-scatter.

Each is judged by pytest with no GPU (test_kernels.py), and each has a bug that `BUG` plants.

Every rank has a signal pad with a word for each (rank, block) and a count of barriers for each block. Counts only grow, so a captured launch replays.
"""

import os

# No contraction that the source does not ask for.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "0")

import triton
import triton.language as tl

MOST_BLOCKS = tl.constexpr(36)


@triton.jit
def barrier(pads, count, rank, world: tl.constexpr):
    """Blocks of one index meet on all ranks: what was written before it on one is seen behind it on all."""
    block = tl.program_id(0)
    tl.debug_barrier()
    for peer in range(world):
        pad = tl.load(pads + peer).to(tl.pointer_type(tl.int32))
        tl.atomic_xchg(pad + rank * MOST_BLOCKS + block, count, sem="release", scope="sys")
    own = tl.load(pads + rank).to(tl.pointer_type(tl.int32))
    for peer in range(world):
        while tl.atomic_add(own + peer * MOST_BLOCKS + block, 0, sem="acquire", scope="sys") < count:
            pass
    tl.debug_barrier()


@triton.jit
def one_shot(inputs, pads, counts, output, elements, rank, world: tl.constexpr, TILE: tl.constexpr, BUG: tl.constexpr):
    block = tl.program_id(0)
    count = tl.load(counts + block)
    barrier(pads, count + 1, rank, world)
    start = block * TILE
    while start < elements:
        index = start + tl.arange(0, TILE)
        inside = index < elements
        total = tl.zeros([TILE], tl.float32)
        for peer in range(world):
            of_peer = tl.load(inputs + peer).to(output.dtype)
            total += tl.load(of_peer + index, mask=inside, other=0.0).to(tl.float32)
        if BUG:
            # The mask is missing: the last tile is written past the end.
            tl.store(output + index, total.to(output.dtype.element_ty))
        else:
            tl.store(output + index, total.to(output.dtype.element_ty), mask=inside)
        start += tl.num_programs(0) * TILE
    barrier(pads, count + 2, rank, world)
    tl.store(counts + block, count + 2)


@triton.jit
def norm(
    inputs, pads, counts, residual, gamma, residual_out, output, tokens, hidden,
    rank, world: tl.constexpr, TILE: tl.constexpr, BUG: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    count = tl.load(counts + block)
    barrier(pads, count + 1, rank, world)
    column = tl.arange(0, TILE)
    inside = column < hidden
    row = block
    while row < tokens:
        index = row * hidden + column
        total = tl.zeros([TILE], tl.float32)
        for peer in range(world):
            of_peer = tl.load(inputs + peer).to(output.dtype)
            total += tl.load(of_peer + index, mask=inside, other=0.0).to(tl.float32)
        total += tl.load(residual + index, mask=inside, other=0.0).to(tl.float32)
        tl.store(residual_out + index, total.to(output.dtype.element_ty), mask=inside)
        mean = tl.sum(total * total) / hidden
        normed = total * tl.rsqrt(mean + 1e-6) * tl.load(gamma + column, mask=inside, other=0.0).to(tl.float32)
        tl.store(output + index, normed.to(output.dtype.element_ty), mask=inside)
        row += tl.num_programs(0)
    if BUG:
        # Nobody waits until peers have read: the next call's input overwrites what they read.
        tl.store(counts + block, count + 1)
    else:
        barrier(pads, count + 2, rank, world)
        tl.store(counts + block, count + 2)


@triton.jit
def scatter(inputs, pads, counts, output, elements, rank, world: tl.constexpr, TILE: tl.constexpr, BUG: tl.constexpr):
    block = tl.program_id(0)
    count = tl.load(counts + block)
    barrier(pads, count + 1, rank, world)
    start = block * TILE
    while start < elements:
        index = start + tl.arange(0, TILE)
        inside = index < elements
        total = tl.zeros([TILE], tl.float32)
        for peer in range(world):
            of_peer = tl.load(inputs + peer).to(output.dtype)
            if BUG:
                # Slots are `elements` apart, and not a whole number of tiles.
                offset = rank * tl.cdiv(elements, TILE) * TILE
            else:
                offset = rank * elements
            total += tl.load(of_peer + offset + index, mask=inside, other=0.0).to(tl.float32)
        tl.store(output + index, total.to(output.dtype.element_ty), mask=inside)
        start += tl.num_programs(0) * TILE
    barrier(pads, count + 2, rank, world)
    tl.store(counts + block, count + 2)
