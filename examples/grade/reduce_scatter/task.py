"""A reduce-scatter of bf16 among two or four ranks, in Triton: each rank gets the sum of its slot of all inputs."""

import numpy as np
import passmuster as pm


def reference(call):
    inputs = call.inputs["input"]
    slots = [np.split(of, call.world) for of in (sum(inputs), sum(map(np.abs, inputs)))]
    return {"output": list(zip(*slots))}


task = pm.Task(
    "reduce_scatter",
    reference,
    {"input": pm.input("elements * world"), "output": pm.output("elements", contract=pm.Bound("world"))},
    {"elements": [1, 1000, 3000]},
)

worlds = [2, 4]

buffers = {
    # A word for each rank and block.
    "pads": pm.Buffer("world * 36 * 4"),
    # Calls that each block has made.
    "counts": pm.Buffer("36 * 4", role="state", memory="local"),
    # Room for what each rank gives to this one.
    "scratch": pm.Buffer("world * 4096 * 2", role="scratch"),
}
