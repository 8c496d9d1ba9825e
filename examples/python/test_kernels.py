"""Judges the kernels of kernels.py on two and four ranks, with no GPU:

    pip install triton pytest ./python    # from a clone
    pytest examples/python
"""

import os

import kernels
import numpy as np
import passmuster as pm
import triton

#: Plants the bug of each kernel.
BUG = bool(os.environ.get("BUG"))

TILE = 1024

#: What all three launches take beside tensors.
BUFFERS = {
    "pads": pm.Buffer("world * 36 * 4"),
    "counts": pm.Buffer("36 * 4", role="state", memory="local"),
}


def summed(call):
    """The sum over all ranks, and the sum of magnitudes, which bounds its error."""
    inputs = call.inputs["input"]
    return sum(inputs), sum(map(np.abs, inputs))


def all_reduced(call):
    return {"output": summed(call)}


all_reduce = pm.Task(
    "all_reduce",
    all_reduced,
    {
        "input": pm.input("elements"),
        "output": pm.output("elements", contract=pm.Bound("world"), same_on_all_ranks=True),
    },
    {"elements": [1, 1000, 2048, 5000]},
)


@pm.triton(all_reduce, worlds=[2, 4], buffers=BUFFERS)
def one_shot(input, pads, counts, output, elements, rank, world):
    grid = (min(triton.cdiv(elements, TILE), 4),)
    kernels.one_shot[grid](input.peers, pads.peers, counts, output, elements, rank, world, TILE, BUG)


def normed(call):
    total, magnitude = summed(call)
    gamma = call.inputs["gamma"][0]
    total, magnitude = total + call.inputs["residual"][0], magnitude + np.abs(call.inputs["residual"][0])
    squares = np.mean(total**2, axis=-1, keepdims=True) + 1e-6
    # How far the root may move, relative to itself.
    moved = np.mean(np.abs(total) * magnitude, axis=-1, keepdims=True) / squares
    scale = gamma / np.sqrt(squares)
    return {
        "residual_out": (total, magnitude),
        "output": (total * scale, (magnitude + np.abs(total) * (moved + 1)) * np.abs(scale)),
    }


all_reduce_norm = pm.Task(
    "all_reduce_norm",
    normed,
    {
        "input": pm.input("tokens", "hidden"),
        "residual": pm.input("tokens", "hidden", same_on_all_ranks=True),
        "gamma": pm.input("hidden", contents="weights", same_on_all_ranks=True),
        "residual_out": pm.output("tokens", "hidden", contract=pm.Bound("world"), same_on_all_ranks=True),
        "output": pm.output("tokens", "hidden", contract=pm.Bound("world + hidden + 8"), same_on_all_ranks=True),
    },
    {"tokens": [1, 3, 9], "hidden": [64, 1000]},
)


#: What the kernel rests on that PTX does not promise.
ASSUMES = {"lanes": "tl.sum: all lanes of a warp store the warp's sum to one word"}


@pm.triton(all_reduce_norm, worlds=[2, 4], buffers=BUFFERS, contract={"assumes": ASSUMES})
def one_shot_norm(input, pads, counts, residual, gamma, residual_out, output, tokens, hidden, rank, world):
    kernels.norm[(min(tokens, 4),)](
        input.peers, pads.peers, counts, residual, gamma, residual_out, output, tokens, hidden, rank, world, TILE, BUG
    )  # fmt: skip


def scattered(call):
    total, magnitude = summed(call)
    return {"output": list(zip(np.split(total, call.world), np.split(magnitude, call.world)))}


reduce_scatter = pm.Task(
    "reduce_scatter",
    scattered,
    {
        "input": pm.input("elements * world"),
        "output": pm.output("elements", contract=pm.Bound("world")),
    },
    {"elements": [1, 1000, 2048]},
)


@pm.triton(reduce_scatter, worlds=[2, 4], buffers=BUFFERS)
def scatter(input, pads, counts, output, elements, rank, world):
    grid = (min(triton.cdiv(elements, TILE), 4),)
    kernels.scatter[grid](input.peers, pads.peers, counts, output, elements, rank, world, TILE, BUG)
