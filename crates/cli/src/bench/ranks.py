"""PyTorch's operations as contenders of passmuster's bench, timed by its method.

The parent writes requests as JSON lines; rank 0, which it has started, starts the other ranks, hands each request on to them, and answers with a line
behind PREFIX. What cannot be done is an answer, not an exit. NVLink multicast is never used: the environment says so, what PyTorch makes of
that is asserted, and no multimem operation is called.
"""

import argparse
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys

PREFIX = "@passmuster "
NO_MULTICAST = {"TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NCCL_NVLS_ENABLE": "0"}


class NotSupported(Exception):
    pass


def failure(error):
    return {"Err": {"error": "not_supported", "reason": f"{type(error).__name__}: {error}".splitlines()[0]}}


def import_torch():
    """The modules, or why there are none."""
    for name, value in NO_MULTICAST.items():
        if os.environ.get(name) != value:
            raise NotSupported(f"{name} is {os.environ.get(name)}, not {value}")
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symm_mem

    if not torch.cuda.is_available():
        raise NotSupported("PyTorch finds no GPU")
    return torch, dist, symm_mem


class Ranks:
    """This rank among the others, and what it has prepared."""

    def __init__(self, rank, world):
        self.torch, self.dist, self.symm_mem = import_torch()
        torch, dist = self.torch, self.dist
        if torch.cuda.device_count() < world:
            raise NotSupported(f"{world} ranks need {world} GPUs, PyTorch finds {torch.cuda.device_count()}")
        self.rank, self.world = rank, world
        self.device = torch.device("cuda", rank)
        torch.cuda.set_device(self.device)
        self.stream = torch.cuda.Stream()
        torch.cuda.set_stream(self.stream)
        dist.init_process_group("nccl", rank=rank, world_size=world, device_id=self.device)
        self.host = dist.new_group(backend="gloo")
        self.group = dist.group.WORLD.group_name
        if hasattr(self.symm_mem, "enable_symm_mem_for_group"):
            self.symm_mem.enable_symm_mem_for_group(self.group)
        self.meeting = self.symmetric(1024, torch.uint8)[1]
        self.prepared_for, self.prepared = None, {}

    def symmetric(self, shape, dtype):
        """A tensor in symmetric memory, and its handle."""
        tensor = self.symm_mem.empty(shape, dtype=dtype, device=self.device)
        handle = self.symm_mem.rendezvous(tensor, self.group)
        if handle.multicast_ptr:
            raise NotSupported("PyTorch has made a multicast object")
        return tensor, handle

    def all(self, value):
        """What every rank has."""
        values = [None] * self.world
        self.dist.all_gather_object(values, value, group=self.host)
        return values

    def together(self, do):
        """Has all ranks do something; the results of all. Where one fails, all do."""
        try:
            mine = (do(), None)
        except Exception as error:  # noqa: BLE001: whatever PyTorch raises is a reason
            mine = (None, failure(error))
        everyone = self.all(mine)
        failed = next((error for _, error in everyone if error), None)
        return failed or {"Ok": [value for value, _ in everyone]}

    def operands(self, shape, integers):
        """Numbers of this rank's own: about N(0, 1), or integers from -4 to 4."""
        torch = self.torch
        generator = torch.Generator(device=self.device).manual_seed(self.rank)
        if integers:
            return torch.randint(-4, 5, shape, generator=generator, device=self.device)
        return torch.randn(shape, generator=generator, device=self.device)

    def prepare(self, name, workload, copies, integers):
        """The operation on each copy of its buffers, as functions without arguments, and what the first must come to."""
        torch = self.torch
        ops = torch.ops.symm_mem
        dtype = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}.get(workload["dtype"])
        if dtype is None:
            raise NotSupported(f"not of {workload['dtype']}")
        if name in ("torch_one_shot", "torch_two_shot"):
            if workload["op"] != "sum":
                raise NotSupported(f"not of {workload['op']}")
            if name == "torch_one_shot" and workload.get("in_place"):
                raise NotSupported("not in place")
            count = workload["bytes"] // dtype.itemsize
            inputs = [self.symmetric(count, dtype)[0] for _ in range(copies)]
            for tensor in inputs:
                tensor.copy_(self.operands((count,), True) if integers else torch.zeros(count, device=self.device))
            expected = inputs[0].clone()
            self.dist.all_reduce(expected)
            op = ops.one_shot_all_reduce if name == "torch_one_shot" else ops.two_shot_all_reduce_
            calls = [lambda tensor=tensor: op(tensor, "sum", self.group) for tensor in inputs]
            return calls, lambda result: torch.equal(result, expected)
        if name == "torch_fused" and workload["scenario"] == "matmul_reduce_scatter":
            m, n, k = workload["m"], workload["n"], workload["k"]

            def numbers(shape, seed):
                if not integers:
                    return self.operands(shape, False)
                # 1 or -1 among many zeros: sums of parts stay below 256, so that no order of additions, each of which may round to bf16, is
                # told from another.
                generator = torch.Generator(device=self.device).manual_seed(2 * self.rank + seed)
                drawn = torch.randint(-9, 10, shape, generator=generator, device=self.device)
                return (drawn == 9).int() - (drawn == -9).int()

            # As weights lie: N x K, given transposed.
            pairs = [(numbers((m, k), 0).to(dtype), numbers((n, k), 1).to(dtype).t()) for _ in range(copies)]
            calls = [lambda a=a, b=b: ops.fused_matmul_reduce_scatter(a, b, "sum", 0, self.group) for a, b in pairs]

            def right(result):
                a, b = pairs[0]
                expected = torch.empty((m // self.world, n), dtype=dtype, device=self.device)
                self.dist.reduce_scatter_tensor(expected, a @ b)
                return torch.equal(result, expected)

            return calls, right
        if name == "torch_fused":
            rows, n, k = workload["m"] // self.world, workload["n"], workload["k"]
            pairs = []
            for _ in range(copies):
                a, _ = self.symmetric((rows, k), dtype)
                a.copy_(self.operands((rows, k), integers))
                # As weights lie: N x K, given transposed.
                b = self.operands((n, k), integers).to(dtype).t()
                pairs.append((a, b))
            op = ops.fused_all_gather_matmul
            calls = [lambda a=a, b=b: op(a, [b], 0, self.group)[1][0] for a, b in pairs]

            def right(result):
                a, b = pairs[0]
                gathered = torch.empty((workload["m"], k), dtype=dtype, device=self.device)
                self.dist.all_gather_into_tensor(gathered, a)
                return torch.equal(result, gathered @ b)

            return calls, right
        raise NotSupported(f"no operation {name}")

    def check(self, name, workload):
        calls, right = self.prepare(name, workload, 1, integers=True)
        # A sum that is rounded in parts is cuBLAS's leave to take, and no error of the operation: not while integers are to be exact.
        matmul = self.torch.backends.cuda.matmul
        usual = matmul.allow_bf16_reduced_precision_reduction, matmul.allow_fp16_reduced_precision_reduction
        matmul.allow_bf16_reduced_precision_reduction = matmul.allow_fp16_reduced_precision_reduction = False
        try:
            result = calls[0]()
            self.torch.cuda.synchronize()
            return bool(right(result)), result.numel()
        finally:
            matmul.allow_bf16_reduced_precision_reduction, matmul.allow_fp16_reduced_precision_reduction = usual

    def round(self, name, workload, method):
        torch = self.torch
        if method.get("late"):
            raise NotSupported("late ranks are not for PyTorch's operations")
        key = json.dumps([workload, method], sort_keys=True)
        if self.prepared_for != key:
            self.prepared_for, self.prepared = key, {}
        if name not in self.prepared:
            calls, _ = self.prepare(name, workload, min(method["copies"], method["calls"]), integers=False)
            calls = [calls[at % len(calls)] for at in range(method["calls"])]
            flush = torch.empty(method["flush"], dtype=torch.uint8, device=self.device) if method["flush"] else None
            # What is loaded and allocated at first use.
            for _ in range(2):
                for call in calls:
                    call()
            torch.cuda.synchronize()
            self.prepared[name] = calls, flush, self.capture(calls)
        calls, flush, graph = self.prepared[name]

        def many():
            for call in calls:
                call()

        times = {"graph": [], "eager": []}
        for launching, enqueue in (("graph", graph.replay if graph else None), ("eager", many)):
            for sample in range(method["warm_up"] + method["replays"] if enqueue else 0):
                if flush is not None:
                    flush.zero_()
                if launching == "eager":
                    torch.cuda.synchronize()
                    self.dist.barrier(group=self.host)
                elif method["gated"]:
                    self.meeting.barrier(channel=0)
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                enqueue()
                end.record()
                end.synchronize()
                if sample >= method["warm_up"]:
                    times[launching].append(begin.elapsed_time(end) * 1e3 / method["calls"])
        return times

    def capture(self, calls):
        """A graph of the calls, or none where they cannot be captured on every rank."""
        torch = self.torch
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, stream=self.stream):
                for call in calls:
                    call()
            captured = True
        except Exception as error:  # noqa: BLE001: whatever PyTorch raises is a reason
            print(f"rank {self.rank}: not captured: {error}", file=sys.stderr)
            captured = False
        return graph if all(self.all(captured)) else None

    def answer(self, kind, request):
        name, workload = request["contender"], request["workload"]
        if kind == "check":
            results = self.together(lambda: self.check(name, workload))
            if "Err" in results:
                return {"checked": results}
            wrong = [rank for rank, (right, _) in enumerate(results["Ok"]) if not right]
            looked = f"integers, {sum(count for _, count in results['Ok'])} elements of results, eager"
            said = f"ranks {wrong}: not what NCCL and torch.matmul give" if wrong else None
            return {"checked": {"Ok": [looked, said]}}
        results = self.together(lambda: self.round(name, workload, request["method"]))
        if "Err" in results:
            return {"round": results}
        slowest = {how: [max(times) for times in zip(*(of[how] for of in results["Ok"]))] for how in ("graph", "eager")}
        return {"round": {"Ok": {**slowest, "conditions": []}}}


def serve(ranks, why_not, world):
    """Rank 0: answers the parent until its requests end."""
    for line in sys.stdin:
        request = json.loads(line)
        if request == "machine":
            info = {"kind": "torch", "gpu": "", "gpus": world, "driver": "", "nccl": "", "notes": []}
            if ranks:
                info["notes"] = [["torch", ranks.torch.__version__], ["torch_nccl", ".".join(map(str, ranks.torch.cuda.nccl.version()))]]
            answer = {"machine": info}
        else:
            (kind, request), = request.items()
            answers = {"check": "checked", "round": "round", "spans": "spans"}
            if why_not:
                answer = {answers[kind]: why_not}
            elif kind == "spans":
                answer = {"spans": failure(NotSupported("PyTorch's operations are one span"))}
            else:
                ranks.dist.broadcast_object_list([(kind, request)], src=0, group=ranks.host)
                answer = ranks.answer(kind, request)
        print(PREFIX + json.dumps(answer), flush=True)
    if ranks:
        ranks.dist.broadcast_object_list([None], src=0, group=ranks.host)


def follow(ranks):
    """The other ranks: do as they are told."""
    while True:
        told = [None]
        ranks.dist.broadcast_object_list(told, src=0, group=ranks.host)
        if told[0] is None:
            return
        ranks.answer(*told[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--rank", type=int, default=0)
    arguments = parser.parse_args()
    # A rank outlives nobody.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    ranks, why_not = None, None
    try:
        if arguments.rank == 0:
            # Before others are started that would fail alike.
            import_torch()
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]), WORLD_SIZE=str(arguments.world))
            for rank in range(1, arguments.world):
                command = [sys.executable, __file__, "--world", str(arguments.world), "--rank", str(rank)]
                subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, "RANK": str(rank)})
        ranks = Ranks(arguments.rank, arguments.world)
    except Exception as error:  # noqa: BLE001: whatever PyTorch raises is a reason
        if arguments.rank:
            raise
        why_not = failure(error)
    if arguments.rank == 0:
        serve(ranks, why_not, arguments.world)
    else:
        follow(ranks)


if __name__ == "__main__":
    main()
