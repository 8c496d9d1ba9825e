"""All-reduces among processes of one machine, over shared memory: a right one, and some with a bug each."""

from __future__ import annotations

import ctypes
import time
from multiprocessing import get_context
from multiprocessing.shared_memory import SharedMemory
from typing import Any, Callable

import numpy as np
import numpy.typing as npt
import passmuster as pm

Array = npt.NDArray[Any]

#: Processes are forked: they have what the tests made.
CONTEXT = get_context("fork")

#: Bytes that one rank's input may have.
MOST = 1 << 16


class Shared:
    """Shared memory with a place for each rank's input."""

    def __init__(self, world: int) -> None:
        self.memory = SharedMemory(create=True, size=world * MOST)
        self.barrier = CONTEXT.Barrier(world)
        self.world = world
        self.calls = 0
        self.most = 0

    def close(self) -> None:
        self.memory.close()
        self.memory.unlink()

    def place(self, rank: int, like: Array) -> Array:
        return np.frombuffer(self.memory.buf, like.dtype, like.size, rank * MOST).reshape(like.shape)

    def gathered(self, input: Array, rank: int) -> list[Array]:
        """The inputs of all ranks."""
        self.calls += 1
        self.place(rank, input)[...] = input
        self.barrier.wait()
        all_ranks = [self.place(peer, input).copy() for peer in range(self.world)]
        self.barrier.wait()
        return all_ranks


def right(shared: Shared, input: Array, output: Array, rank: int) -> None:
    output[...] = sum(shared.gathered(input, rank))


def returns(shared: Shared, input: Array, output: Array, rank: int) -> Array:
    total: Array = sum(shared.gathered(input, rank))  # type: ignore[assignment]
    return total


def forgets_a_rank(shared: Shared, input: Array, output: Array, rank: int) -> None:
    output[...] = sum(shared.gathered(input, rank)[:-1])


def writes_behind(shared: Shared, input: Array, output: Array, rank: int) -> None:
    right(shared, input, output, rank)
    if rank == 1:
        ctypes.memset(output.ctypes.data + 8192 * 4, 0, 1)


def writes_what_was_larger(shared: Shared, input: Array, output: Array, rank: int) -> None:
    right(shared, input, output, rank)
    shared.most = max(shared.most, output.nbytes)
    ctypes.memset(output.ctypes.data + output.nbytes, 0, min(shared.most - output.nbytes, 64))


def changes_its_input(shared: Shared, input: Array, output: Array, rank: int) -> None:
    right(shared, input, output, rank)
    input[-1] = 0


def raises(shared: Shared, input: Array, output: Array, rank: int) -> None:
    if rank == 1:
        raise ValueError("no such communicator")
    right(shared, input, output, rank)


def never_comes(shared: Shared, input: Array, output: Array, rank: int) -> None:
    if rank == 1:
        time.sleep(3600)
    right(shared, input, output, rank)


def dies(shared: Shared, input: Array, output: Array, rank: int) -> None:
    if rank == 1:
        ctypes.CDLL(None)._exit(3)
    right(shared, input, output, rank)


def changes_the_type(shared: Shared, input: Array, output: Array, rank: int) -> Array:
    return np.asarray(sum(shared.gathered(input, rank)), np.float64)


def adds_in_another_order_each_time(shared: Shared, input: Array, output: Array, rank: int) -> None:
    inputs = shared.gathered(input, rank)
    turn = shared.calls % shared.world
    output[...] = sum(inputs[turn:] + inputs[:turn])


def reference(call: pm.Call) -> pm.Outputs:
    return {"output": (sum(call.inputs["input"]), sum(map(np.abs, call.inputs["input"])))}


def task(of: Any = reference) -> pm.Task:
    tensors = {"input": pm.input("elements"), "output": pm.output("elements", contract=pm.Bound("world"), same_on_all_ranks=True)}
    return pm.Task("all_reduce", of, tensors, {"elements": [1, 1000, 8192]})


def judged(fn: Callable[..., Any], world: int, folder: Any, **options: Any) -> Any:
    """What `check` gives on rank 0 and on the last rank, each as a report or as the text of an exception."""
    shared = Shared(world)
    results = CONTEXT.SimpleQueue()

    def one(rank: int) -> None:
        def called(input: Array, output: Array, rank: int) -> Any:
            return fn(shared, input, output, rank)

        called.__name__ = getattr(fn, "__name__", "callable")
        of = options.get("task", task())
        try:
            report = pm.check(called, of, group=pm.Processes(rank, world, folder), **{key: value for key, value in options.items() if key != "task"})
            results.put((rank, (report.record, report.text, report.exit_status)))
        except Exception as error:
            results.put((rank, f"{type(error).__name__}: {error}"))

    processes = [CONTEXT.Process(target=one, args=(rank,), daemon=True) for rank in range(world)]
    for process in processes:
        process.start()
    end = time.monotonic() + 60
    got: dict[int, Any] = {}
    while len(got) < sum(process.exitcode in (None, 0) for process in processes) and time.monotonic() < end:
        if results.empty():
            time.sleep(0.02)
            continue
        rank, result = results.get()
        got[rank] = pm.Report(*result) if isinstance(result, tuple) else result
    for process in processes:
        process.kill()
    shared.close()
    return got
