"""A one-shot all-reduce in Triton over tables of peers' pointers, and how it is compiled ahead of time: no GPU is needed.

    pip install triton==3.9.0
    python3 kernel.py            # writes kernel.ptx and kernel.bug.ptx beside this file

Every rank has a signal pad with one word for each (peer, block) and a count of barriers for each block. Counts only grow.

  barrier: tl.debug_barrier, release of our count to every peer's pad, acquire of theirs from ours, tl.debug_barrier
  first:   publishes what earlier work of the rank's stream wrote to its input
  second:  says that our reads of peers' inputs are over
"""

import os
import pathlib
import re

# As Triton 3.10 will have it: no contraction that the source does not ask for.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "0")

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

MOST_BLOCKS = tl.constexpr(128)


@triton.jit
def barrier(pads, count, rank, world):
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
def one_shot_all_reduce(inputs, pads, counts, output, elements, rank, world, TILE: tl.constexpr, MASKED: tl.constexpr):
    block = tl.program_id(0)
    count = tl.load(counts + block)
    barrier(pads, count + 1, rank, world)
    start = block * TILE
    while start < elements:
        index = start + tl.arange(0, TILE)
        inside = index < elements
        first = tl.load(inputs).to(tl.pointer_type(output.dtype.element_ty))
        total = tl.load(first + index, mask=inside, other=0.0).to(tl.float32)
        for peer in range(1, world):
            other = tl.load(inputs + peer).to(tl.pointer_type(output.dtype.element_ty))
            total += tl.load(other + index, mask=inside, other=0.0).to(tl.float32)
        total = total.to(output.dtype.element_ty)
        if MASKED:
            tl.store(output + index, total, mask=inside)
        else:
            tl.store(output + index, total)
        start += tl.num_programs(0) * TILE
    barrier(pads, count + 2, rank, world)
    tl.store(counts + block, count + 2)


def compile(masked):
    signature = {"inputs": "*i64", "pads": "*i64", "counts": "*i32", "output": "*bf16", "elements": "i32", "rank": "i32", "world": "i32"}
    constants = {"TILE": 1024, "MASKED": masked}
    source = ASTSource(fn=one_shot_all_reduce, signature=signature | {name: "constexpr" for name in constants}, constexprs=constants)
    # PTX 9.0 for drivers of the 580 series.
    options = {"num_warps": 4, "ptx_version": 90}
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    # Debug sections name this machine's folders, and say nothing about what runs; `.loc` may refer to them.
    text = re.sub(r"\t\.section\t\.debug.*", "", compiled.asm["ptx"], flags=re.DOTALL)
    text = re.sub(r", function_name \S+, inlined_at \d+ \d+ \d+", "", text)
    folder = str(pathlib.Path(__file__).resolve().parent)
    return compiled.metadata, text.replace(folder + "/", "")


if __name__ == "__main__":
    here = pathlib.Path(__file__).resolve().parent
    for name, masked in [("kernel.ptx", True), ("kernel.bug.ptx", False)]:
        metadata, text = compile(masked)
        (here / name).write_text(text)
        print(f"{name}: {metadata.num_warps} warps, {metadata.shared} bytes of dynamic shared memory, Triton {triton.__version__}")
