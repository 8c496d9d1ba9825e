"""Judges what PyTorch offers, as it is: collectives of torch.distributed, and operations on symmetric memory.

    torchrun --nproc-per-node 4 examples/python/check_torch.py --backend gloo           # no GPU
    torchrun --nproc-per-node 2 examples/python/check_torch.py --backend nccl --symmetric

The exit status is 1 if anything was found.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, Callable

import numpy as np
import passmuster as pm
import torch  # pyright: ignore[reportMissingImports]
import torch.distributed as dist  # pyright: ignore[reportMissingImports]

SIZES = [1, 1000, 65536]


def summed(call: pm.Call) -> Any:
    inputs = call.inputs["input"]
    return sum(inputs), sum(map(np.abs, inputs))


def tensors(taken: str, given: str, **promises: Any) -> dict[str, pm.Tensor]:
    return {"input": pm.input(taken), "output": pm.output(given, **promises)}


#: Each rank may round once for every other that it adds.
ADDED = pm.Bound(operations="world", roundings="world")


def parts(array: Any, world: int) -> list[Any]:
    return np.split(array, world)


def scattered(call: pm.Call) -> pm.Outputs:
    values, magnitudes = (parts(of, call.world) for of in summed(call))
    return {"output": list(zip(values, magnitudes))}


def exchanged(call: pm.Call) -> pm.Outputs:
    of_rank = [parts(rows, call.world) for rows in call.inputs["input"]]
    return {"output": [np.concatenate([rows[rank] for rows in of_rank]) for rank in range(call.world)]}


ALL_REDUCE = pm.Task(
    "all_reduce",
    lambda call: {"output": summed(call)},
    tensors("elements", "elements", contract=ADDED, same_on_all_ranks=True),
    {"elements": SIZES},
)
ALL_GATHER = pm.Task(
    "all_gather",
    lambda call: {"output": np.concatenate(call.inputs["input"])},
    tensors("elements", "elements * world", contract=pm.Bits(), same_on_all_ranks=True),
    {"elements": SIZES},
)
REDUCE_SCATTER = pm.Task("reduce_scatter", scattered, tensors("elements * world", "elements", contract=ADDED), {"elements": SIZES})
ALL_TO_ALL = pm.Task("all_to_all", exchanged, tensors("elements * world", "elements * world", contract=pm.Bits()), {"elements": SIZES})
BROADCAST = pm.Task(
    "broadcast",
    lambda call: {"output": call.inputs["input"][0]},
    tensors("elements", "elements", contract=pm.Bits(), same_on_all_ranks=True),
    {"elements": SIZES},
)


def all_reduce(input: torch.Tensor, output: torch.Tensor) -> None:
    output.copy_(input)
    dist.all_reduce(output)


def all_gather(input: torch.Tensor, output: torch.Tensor) -> None:
    dist.all_gather_into_tensor(output, input)


def reduce_scatter(input: torch.Tensor, output: torch.Tensor) -> None:
    dist.reduce_scatter_tensor(output, input)


def all_to_all(input: torch.Tensor, output: torch.Tensor) -> None:
    dist.all_to_all_single(output, input)


def broadcast(input: torch.Tensor, output: torch.Tensor) -> None:
    output.copy_(input)
    dist.broadcast(output, 0)


def symmetric(name: str) -> Callable[..., None]:
    """An operation of PyTorch's symmetric memory, on a buffer that all calls share."""
    import torch.distributed._symmetric_memory as symm_mem  # pyright: ignore[reportMissingImports]

    group = dist.group.WORLD.group_name
    device = f"cuda:{torch.cuda.current_device()}"
    buffers: dict[torch.dtype, torch.Tensor] = {}

    def called(input: torch.Tensor, output: torch.Tensor) -> None:
        if input.dtype not in buffers:
            buffers[input.dtype] = symm_mem.empty(max(SIZES), dtype=input.dtype, device=device)
            symm_mem.rendezvous(buffers[input.dtype], group)
        shared = buffers[input.dtype][: input.numel()]
        shared.copy_(input)
        result = getattr(torch.ops.symm_mem, name)(shared, "sum", group)
        output.copy_(result)

    called.__name__ = name
    return called


def main() -> int:
    parser = argparse.ArgumentParser(description="Judge PyTorch's collectives.")
    parser.add_argument("--backend", default="gloo", choices=["gloo", "nccl"])
    parser.add_argument("--symmetric", action="store_true", help="judge operations on symmetric memory, too")
    parser.add_argument("--dtypes", nargs="+", default=["f32", "bf16"])
    parser.add_argument("--json", type=Path, metavar="FOLDER", help="write a record for each callable")
    options = parser.parse_args()
    device = "cpu"
    if options.backend == "nccl" or options.symmetric:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        device = "cuda"
    dist.init_process_group(options.backend)
    subjects: list[tuple[Callable[..., None], pm.Task]] = [(all_reduce, ALL_REDUCE), (broadcast, BROADCAST), (all_gather, ALL_GATHER)]
    if options.backend == "nccl":
        # gloo has neither.
        subjects += [(reduce_scatter, REDUCE_SCATTER), (all_to_all, ALL_TO_ALL)]
    if options.symmetric:
        subjects += [(symmetric(name), ALL_REDUCE) for name in ("one_shot_all_reduce", "two_shot_all_reduce_")]
    passed = True
    for fn, task in subjects:
        report = pm.check(fn, task, dtypes=options.dtypes, device=device, deadline=20)
        passed &= bool(report)
        if dist.get_rank() == 0:
            print(f"{options.backend} {fn.__name__}: {report.text}", flush=True)
            if options.json:
                options.json.mkdir(parents=True, exist_ok=True)
                (options.json / f"{options.backend}-{fn.__name__}.json").write_text(json.dumps(report.record, indent=1) + "\n")
    dist.destroy_process_group()
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
