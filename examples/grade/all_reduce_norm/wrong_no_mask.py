"""Memory: rows are written past their ends."""

import triton
import triton.language as tl


@triton.jit
def barrier(pads, count, rank, world: tl.constexpr):
    block = tl.program_id(0)
    tl.debug_barrier()
    for peer in range(world):
        pad = tl.load(pads + peer).to(tl.pointer_type(tl.int32))
        tl.atomic_xchg(pad + rank * 36 + block, count, sem="release", scope="sys")
    own = tl.load(pads + rank).to(tl.pointer_type(tl.int32))
    for peer in range(world):
        while tl.atomic_add(own + peer * 36 + block, 0, sem="acquire", scope="sys") < count:
            pass
    tl.debug_barrier()


@triton.jit
def kernel(
    inputs, pads, counts, residual, gamma, residual_out, output, tokens, hidden,
    rank, world: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    count = tl.load(counts + block)
    barrier(pads, count + 1, rank, world)
    column = tl.arange(0, TILE)
    inside = column < hidden
    weights = tl.load(gamma + column, mask=inside, other=0.0).to(tl.float32)
    row = block
    while row < tokens:
        index = row * hidden + column
        total = tl.load(residual + index, mask=inside, other=0.0).to(tl.float32)
        for peer in range(world):
            of_peer = tl.load(inputs + peer).to(output.dtype)
            total += tl.load(of_peer + index, mask=inside, other=0.0).to(tl.float32)
        tl.store(residual_out + index, total.to(output.dtype.element_ty), mask=inside)
        mean = tl.sum(total * total) / hidden
        normed = total * tl.rsqrt(mean + 1e-6) * weights
        tl.store(output + index, normed.to(output.dtype.element_ty))
        row += tl.num_programs(0)
    barrier(pads, count + 2, rank, world)
    tl.store(counts + block, count + 2)


def launch(input, pads, counts, residual, gamma, residual_out, output, tokens, hidden, rank, world):
    kernel[(min(tokens, 4),)](
        input.peers, pads.peers, counts, residual, gamma, residual_out, output, tokens, hidden, rank, world, 1024
    )  # fmt: skip
