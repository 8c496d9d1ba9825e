"""The kernel of examples/tasks/one_shot_norm, described from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import passmuster as pm

EXAMPLE = Path(__file__).parents[2] / "examples/tasks/one_shot_norm"


def reference(call: pm.Call) -> pm.Outputs:
    gamma, residual = call.inputs["gamma"][0], call.inputs["residual"][0]
    total = sum(call.inputs["input"]) + residual
    magnitude = sum(map(np.abs, call.inputs["input"])) + np.abs(residual)
    squares = np.mean(total**2, axis=-1, keepdims=True) + 1e-6
    moved = np.mean(np.abs(total) * magnitude, axis=-1, keepdims=True) / squares
    scale = gamma / np.sqrt(squares)
    return {
        "residual_out": (total, magnitude),
        "output": (total * scale, (magnitude + np.abs(total) * (moved + 1)) * np.abs(scale)),
    }


def task(of: Any = reference, **parameters: Any) -> pm.Task:
    rows = ("tokens", "hidden")
    return pm.Task(
        "norm",
        of,
        {
            "input": pm.input(*rows),
            "residual": pm.input(*rows, same_on_all_ranks=True),
            "gamma": pm.input("hidden", contents="weights", same_on_all_ranks=True),
            "residual_out": pm.output(*rows, contract=pm.Bound("world"), same_on_all_ranks=True),
            "output": pm.output(*rows, contract=pm.Bound("world + hidden + 8"), same_on_all_ranks=True),
        },
        {"tokens": [1, 9], "hidden": [64, 8], **parameters},
    )


def spec(of: Any = reference, *, worlds: Any = (2,), module: Any = EXAMPLE / "kernel.ptx", **changed: Any) -> pm.Spec:
    tables = [pm.struct(pm.peers(buffer, length=8)) for buffer in ("input", "signals")]
    pointers = [pm.pointer(tensor) for tensor in ("signals", "residual", "gamma", "residual_out", "output")]
    keys: dict[str, Any] = {
        "name": "one_shot_norm",
        "module": module,
        "entry": "one_shot_norm_{dtype}",
        "dtypes": ["bf16"],
        "worlds": worlds,
        "launch": pm.Launch("min(min(waiting_blocks, 36), tokens)", 128, "hidden * 4"),
        "arguments": [*tables, *pointers, *(pm.scalar("u32", word) for word in ("rank", "world", "tokens", "hidden"))],
        "task": task(of),
        "buffers": {"signals": pm.Buffer("(2 * 36 * 8 + 36) * 4")},
    }
    return pm.Spec(**{**keys, **changed})
