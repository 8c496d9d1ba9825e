"""The product that triton_matmul.ptx is of, and how it is compiled ahead of time: no GPU is needed.

    pip install triton==3.9.0
    TRITON_DISABLE_LINE_INFO=1 python3 triton_matmul.py      # writes triton_matmul.ptx beside this file
"""

import pathlib

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def mm(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.arange(0, BM)
    rn = tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    pa = a + rm[:, None] * K + rk[None, :]
    pb = b + rk[:, None] * BN + rn[None, :]
    for k in range(0, K, BK):
        x = tl.load(pa)
        y = tl.load(pb)
        acc = tl.dot(x, y, acc)
        pa += BK
        pb += BK * BN
    tl.store(c + rm[:, None] * BN + rn[None, :], acc.to(tl.bfloat16))


signature = {"a": "*bf16", "b": "*bf16", "c": "*bf16", "K": "i32", "BM": "constexpr", "BN": "constexpr", "BK": "constexpr"}
attributes = {(argument,): [["tt.divisibility", 16]] for argument in range(4)}
source = ASTSource(mm, signature=signature, constexprs={"BM": 64, "BN": 64, "BK": 64}, attrs=attributes)
kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "num_stages": 3})
pathlib.Path(__file__).with_suffix(".ptx").write_text(kernel.asm["ptx"])
