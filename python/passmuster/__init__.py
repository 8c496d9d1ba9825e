"""Tests multi-GPU kernels before you merge them: all ranks run on the CPU, no GPU is needed.

    import passmuster as pm

    def reference(call):
        return {"output": sum(call.inputs["input"])}

    task = pm.Task(
        "my_all_reduce",
        reference,
        {"input": pm.input("count"), "output": pm.output("count", contract=pm.Bound("world"), same_on_all_ranks=True)},
        {"count": [1, 1000, 4096]},
    )

    report = pm.validate(pm.Spec("mine", "mine.ptx", "mine_{dtype}", ["bf16"], [2, 4], task=task, ...))
    report.raise_on_findings()

For Triton there is a decorator, `passmuster.triton`. pytest collects what can be judged by itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Mapping

from . import _command
from ._check import Group, Processes, check
from ._errors import CommandFailed, CouldNotJudge, Findings, Interrupted, MachineCannot, PassmusterError, ReferenceFailed, UsageError
from ._reference import Call, Outputs, Reference
from ._report import Case, Finding, Report
from ._spec import (
    Argument,
    Buffer,
    Judged,
    Launch,
    Spec,
    SpecFile,
    memory,
    options_of,
    peer_table,
    peers,
    pointer,
    scalar,
    struct,
)
from ._task import (
    Bits,
    Bound,
    Contents,
    Contract,
    DType,
    Expression,
    PerRank,
    Task,
    Tensor,
    Tolerance,
    Unspecified,
    input,
    input_output,
    output,
)
from ._triton import TritonKernel, triton

__all__ = [
    "Argument",
    "Bits",
    "Bound",
    "Buffer",
    "Call",
    "Case",
    "CommandFailed",
    "Contents",
    "CouldNotJudge",
    "Contract",
    "DType",
    "Expression",
    "Finding",
    "Findings",
    "Group",
    "Interrupted",
    "Judged",
    "Launch",
    "MachineCannot",
    "Outputs",
    "PassmusterError",
    "PerRank",
    "Processes",
    "Reference",
    "ReferenceFailed",
    "Report",
    "Spec",
    "SpecFile",
    "Task",
    "Tensor",
    "Tolerance",
    "TritonKernel",
    "Unspecified",
    "UsageError",
    "check",
    "input",
    "input_output",
    "inspect",
    "memory",
    "output",
    "peer_table",
    "peers",
    "pointer",
    "scalar",
    "struct",
    "triton",
    "validate",
]


def validate(kernel: Judged, query: str = "smoke", **options: Any) -> Report:
    """Judges a kernel on the emulator.

    Args:
        kernel: A `Spec`, or a kernel of `passmuster.triton`.
        query: A list (`smoke`, `merge`, `faults`), a case id, or a pattern over ids.
        options: Options of `passmuster validate`, as in `schedules=8`, `profile="ptx"`, `seed=7`, `device="h100"`; and `progress`, whether progress
            is shown (by default on a terminal).

    Raises:
        UsageError: The kernel, the query or an option is wrong.
        ReferenceFailed: The reference raised an exception, or gave no answer.
        Interrupted: The user interrupted it. The exception has the report of what was judged.
    """
    return kernel.validate(query, **options)


def inspect(ptx: str | Path, **options: Any) -> Mapping[str, Any]:
    """What is in a PTX file, and whether the emulator can run it: `passmuster inspect`, as data."""
    ended = _command.run(["inspect", str(ptx), "--json", *options_of(options)])
    ended.raise_for_status()
    told: Mapping[str, Any] = json.loads(ended.stdout)
    return told
