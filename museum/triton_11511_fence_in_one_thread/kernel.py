"""Triton 11511, reverted by 11564: inline assembly with side effects runs in one thread, fences too.

A push all-reduce: every block writes its tiles to all peers' mailboxes, says so, waits for theirs and adds.

  pushed: tl.debug_barrier, release of the epoch to every peer. It publishes the tiles. Mailboxes take turns by epoch, so it also says that
          reads of the call before are over.
  waits:  every thread polls by a volatile load, which orders nothing, and then runs a fence, which is inline assembly: together they
          acquire.
  bug:    the compiler takes the scalar assembly for an effect that is to happen once, and lets thread 0 alone run it. The others have
          polled, but not acquired. Here that is a predicate in the assembly's text.
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "foreign"))
import ahead_of_time
import triton
import triton.language as tl

BLOCKS = tl.constexpr(8)
BY_ALL = tl.constexpr("fence.acq_rel.sys; mov.u32 $0, 0;")
BY_ONE = tl.constexpr("{ .reg .pred %owner; .reg .u32 %thread; mov.u32 %thread, %tid.x; setp.eq.u32 %owner, %thread, 0; @%owner fence.acq_rel.sys; mov.u32 $0, 0; }")


@triton.jit
def fence(PLANTED_BUG: tl.constexpr):
    """A wrapper that returns a value nobody uses, as libraries of symmetric memory have them."""
    if PLANTED_BUG:
        tl.inline_asm_elementwise(BY_ONE, "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    else:
        tl.inline_asm_elementwise(BY_ALL, "=r", [], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def push_all_reduce(input, mailboxes, pads, epochs, output, elements, most_elements, rank, world, TILE: tl.constexpr, PLANTED_BUG: tl.constexpr):
    block = tl.program_id(0)
    epoch = tl.load(epochs + block) + 1
    turn = (epoch % 2) * world * most_elements
    for start in range(block * TILE, elements, tl.num_programs(0) * TILE):
        index = start + tl.arange(0, TILE)
        tile = tl.load(input + index, mask=index < elements)
        for peer in range(world):
            mail = tl.load(mailboxes + peer).to(tl.pointer_type(tl.bfloat16))
            tl.store(mail + turn + rank * most_elements + index, tile, mask=index < elements)
    tl.debug_barrier()
    for peer in range(world):
        pad = tl.load(pads + peer).to(tl.pointer_type(tl.int32))
        tl.atomic_xchg(pad + rank * BLOCKS + block, epoch, sem="release", scope="sys")
    own = tl.load(pads + rank).to(tl.pointer_type(tl.int32))
    for peer in range(world):
        while tl.load(own + peer * BLOCKS + block, volatile=True) < epoch:
            pass
    fence(PLANTED_BUG)
    mail = tl.load(mailboxes + rank).to(tl.pointer_type(tl.bfloat16))
    for start in range(block * TILE, elements, tl.num_programs(0) * TILE):
        index = start + tl.arange(0, TILE)
        total = tl.zeros([TILE], tl.float32)
        for peer in range(world):
            total += tl.load(mail + turn + peer * most_elements + index, mask=index < elements, other=0.0).to(tl.float32)
        tl.store(output + index, total.to(tl.bfloat16), mask=index < elements)
    tl.store(epochs + block, epoch)


if __name__ == "__main__":
    signature = {"input": "*bf16", "mailboxes": "*i64", "pads": "*i64", "epochs": "*i32", "output": "*bf16"}
    signature |= {"elements": "i32", "most_elements": "i32", "rank": "i32", "world": "i32"}
    ahead_of_time.write(pathlib.Path(__file__).resolve().parent, push_all_reduce, signature, {"TILE": 512})
