"""Triton kernels to PTX ahead of time, for PTX 9.0 and sm_90a: no GPU is needed. What the Triton examples share.

    pip install triton==3.9.0
    python3 NAME/kernel.py       # writes kernel.ptx and kernel.bug.ptx beside it
"""

import os
import pathlib
import re

# As Triton 3.10 will have it: no contraction that the source does not ask for.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "0")

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


def compile(kernel, signature, constants, num_warps):
    """A compiled kernel's metadata and its PTX. `signature` has the types of what is passed, `constants` the values of constexpr parameters."""
    source = ASTSource(fn=kernel, signature=signature | {name: "constexpr" for name in constants}, constexprs=constants)
    # PTX 9.0 for drivers of the 580 series.
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": num_warps, "ptx_version": 90})
    # Debug sections and folders are this machine's, and say nothing about what runs; `.loc` may refer to files by name.
    text = re.sub(r"\t\.section\t\.debug.*", "", compiled.asm["ptx"], flags=re.DOTALL)
    text = re.sub(r", function_name \S+, inlined_at \d+ \d+ \d+", "", text)
    text = re.sub(r'(\.file\s+\d+\s+")[^"]*/', r"\1", text)
    return compiled.metadata, text


def write(folder, kernel, signature, constants, num_warps=4):
    """Writes kernel.ptx and, with the constexpr PLANTED_BUG true, kernel.bug.ptx, and says what a specification has to know."""
    for name, planted in [("kernel.ptx", False), ("kernel.bug.ptx", True)]:
        metadata, text = compile(kernel, signature, constants | {"PLANTED_BUG": planted}, num_warps)
        (pathlib.Path(folder) / name).write_text(text)
        print(f"{name}: block {32 * metadata.num_warps}, {metadata.shared} bytes of dynamic shared memory, Triton {triton.__version__}")
