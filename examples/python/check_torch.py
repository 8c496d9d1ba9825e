"""Judges what PyTorch offers, as it is: collectives of torch.distributed, and operations on symmetric memory.

    torchrun --nproc-per-node 4 examples/python/check_torch.py --backend gloo           # no GPU
    torchrun --nproc-per-node 2 examples/python/check_torch.py --backend nccl --symmetric

The exit status is 1 if anything was found.
"""

from __future__ import annotations

import argparse
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


def parts(array: Any, world: int) -> list[Any]:
    return np.split(array, world)


def scattered(call: pm.Call) -> pm.Outputs:
    values, magnitudes = (parts(of, call.world) for of in summed(call))
    return {"output": list(zip(values, magnitudes))}


def exchanged(call: pm.Call) -> pm.Outputs:
    of_rank = [parts(rows, call.world) for rows in call.inputs["input"]]
    return {"output": [np.concatenate([rows[rank] for rows in of_rank]) for rank in range(call.world)]}


def tasks(dtype: pm.DType, sizes: list[int]) -> dict[str, pm.Task]:
    """What each collective is to do. Ranks may add in the elements' own type: gloo does, and NCCL from rank to rank."""
    added = pm.Bound(operations="world", accumulator=dtype)
    parameters = {"elements": sizes}

    def task(name: str, reference: Any, taken: str, given: str, contract: pm.Contract, same: bool = False) -> pm.Task:
        tensors = {"input": pm.input(taken), "output": pm.output(given, contract=contract, same_on_all_ranks=same)}
        return pm.Task(name, reference, tensors, parameters)

    of_all = [
        task("all_reduce", lambda call: {"output": summed(call)}, "elements", "elements", added, True),
        task("broadcast", lambda call: {"output": call.inputs["input"][0]}, "elements", "elements", pm.Bits(), True),
        task("all_gather", lambda call: {"output": np.concatenate(call.inputs["input"])}, "elements", "elements * world", pm.Bits(), True),
        task("reduce_scatter", scattered, "elements * world", "elements", added),
        task("all_to_all", exchanged, "elements * world", "elements * world", pm.Bits()),
    ]
    return {of.name: of for of in of_all}


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


def symmetric(name: str, most: int) -> Callable[..., None]:
    """An operation of PyTorch's symmetric memory, on a buffer that all calls share."""
    import torch.distributed._symmetric_memory as symm_mem  # pyright: ignore[reportMissingImports]

    group = dist.group.WORLD.group_name
    device = f"cuda:{torch.cuda.current_device()}"
    buffers: dict[torch.dtype, torch.Tensor] = {}

    def called(input: torch.Tensor, output: torch.Tensor) -> None:
        if input.dtype not in buffers:
            buffers[input.dtype] = symm_mem.empty(most, dtype=input.dtype, device=device)
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
    # gloo has neither of the last two.
    subjects: list[tuple[Callable[..., None], str, list[int]]] = [
        (fn, fn.__name__, SIZES)
        for fn in (all_reduce, broadcast, all_gather, reduce_scatter, all_to_all)[: 5 if options.backend == "nccl" else 3]
    ]
    if options.symmetric:
        # They take whole words.
        even = [size * 2 for size in SIZES]
        subjects += [(symmetric(name, max(even)), "all_reduce", even) for name in ("one_shot_all_reduce", "two_shot_all_reduce_")]
    passed = True
    for fn, name, sizes in subjects:
        for dtype in options.dtypes:
            report = pm.check(fn, tasks(dtype, sizes)[name], dtypes=[dtype], device=device, deadline=20)
            passed &= bool(report)
            if dist.get_rank() == 0:
                print(f"{options.backend}: {report.text}", flush=True)
                if options.json:
                    options.json.mkdir(parents=True, exist_ok=True)
                    report.to_json(options.json / f"{options.backend}-{fn.__name__}-{dtype}.json")
    dist.destroy_process_group()
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
