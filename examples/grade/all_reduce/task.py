"""An all-reduce of bf16 among two or four ranks, in Triton. Candidates define `launch`, which takes what BUFFERS and the task name."""

import numpy as np
import passmuster as pm


def reference(call):
    inputs = call.inputs["input"]
    return {"output": (sum(inputs), sum(map(np.abs, inputs)))}


task = pm.Task(
    "all_reduce",
    reference,
    {
        "input": pm.input("elements"),
        "output": pm.output("elements", contract=pm.Bound("world"), same_on_all_ranks=True),
    },
    {"elements": [1, 1000, 5000]},
)

worlds = [2, 4]

buffers = {
    # A word for each rank and block, and twice as many for whoever wants two kinds of signals.
    "pads": pm.Buffer("2 * world * 36 * 4"),
    # Calls that each block has made.
    "counts": pm.Buffer("36 * 4", role="state", memory="local"),
    # Room for the input of every rank.
    "scratch": pm.Buffer("world * 8192 * 2", role="scratch"),
}
