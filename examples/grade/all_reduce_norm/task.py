"""An all-reduce of bf16, fused with the residual and an RMSNorm, among two or four ranks, in Triton."""

import numpy as np
import passmuster as pm


def reference(call):
    inputs, gamma, residual = call.inputs["input"], call.inputs["gamma"][0], call.inputs["residual"][0]
    total, magnitude = sum(inputs) + residual, sum(map(np.abs, inputs)) + np.abs(residual)
    squares = np.mean(total**2, axis=-1, keepdims=True) + 1e-6
    # How far the root may move, relative to itself.
    moved = np.mean(np.abs(total) * magnitude, axis=-1, keepdims=True) / squares
    scale = gamma / np.sqrt(squares)
    return {
        "residual_out": (total, magnitude),
        "output": (total * scale, (magnitude + np.abs(total) * (moved + 1)) * np.abs(scale)),
    }


task = pm.Task(
    "all_reduce_norm",
    reference,
    {
        "input": pm.input("tokens", "hidden"),
        "residual": pm.input("tokens", "hidden", same_on_all_ranks=True),
        "gamma": pm.input("hidden", contents="weights", same_on_all_ranks=True),
        "residual_out": pm.output("tokens", "hidden", contract=pm.Bound("world"), same_on_all_ranks=True),
        "output": pm.output("tokens", "hidden", contract=pm.Bound("world + hidden + 8"), same_on_all_ranks=True),
    },
    {"tokens": [1, 9], "hidden": [64, 1000]},
)

worlds = [2, 4]

buffers = {
    # A word for each rank and block.
    "pads": pm.Buffer("world * 36 * 4"),
    # Calls that each block has made.
    "counts": pm.Buffer("36 * 4", role="state", memory="local"),
}

contract = {"assumes": {"lanes": "tl.sum: all lanes of a warp store the warp's sum to one word"}}
