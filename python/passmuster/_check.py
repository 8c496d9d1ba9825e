"""Judges any callable: a communicator of a framework, an operation, a wrapper. What its calls return and leave is compared; what it does inside is not seen.

Rank 0 runs the command and passes each call on to the ranks through sockets. Each rank calls the callable in a thread of its own, so that one that hangs can be
left behind.
"""

from __future__ import annotations

import inspect
import io
import json
import os
import queue
import re
import selectors
import socket
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Mapping, Protocol, Sequence

import numpy as np

from . import _toml
from ._errors import UsageError
from ._reference import Server, exactly, told
from ._report import Report
from ._spec import Judged
from ._task import DType, Task, evaluated

#: Seconds that ranks have to meet at first.
MEETING = 60.0

#: Seconds that a rank has beyond a call's deadline to say where it stands, and the others have once one has failed.
GRACE = 2.0

#: numpy's types. Those that numpy lacks come from ml_dtypes; torch has them under the same names.
NUMPY: Mapping[str, str] = {
    "f32": "float32",
    "f16": "float16",
    "f64": "float64",
    "bf16": "bfloat16",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "i8": "int8",
    "u8": "uint8",
    "i32": "int32",
    "u32": "uint32",
    "i64": "int64",
    "u64": "uint64",
}

#: Bytes of an element.
SIZES: Mapping[str, int] = {name: 1 if name in ("e4m3", "e5m2") else int(re.sub(r"\D", "", name)) // 8 for name in NUMPY}


class Group(Protocol):
    """The processes that call together. Communicators of mpi4py and groups of torch.distributed may be given as they are."""

    @property
    def rank(self) -> int:
        """Which this process is."""
        ...

    @property
    def world(self) -> int:
        """How many there are."""
        ...

    def broadcast(self, text: str | None) -> str:
        """A text of rank 0, on all ranks."""
        ...


def check(
    fn: Callable[..., Any],
    task: Task,
    *,
    group: Any = None,
    dtypes: Sequence[DType] = ("f32",),
    query: str = "smoke",
    tensors: str | None = None,
    device: str = "cpu",
    deadline: float = 10.0,
    contract: Mapping[str, Any] | None = None,
    **options: Any,
) -> Report:
    """Judges a callable that all processes of a group call together. Every process gets the report.

    The callable is called by name with what it asks for: tensors of the task, its parameters (of this rank), `rank`, `world` and `dtype`. It writes its outputs in
    place, or returns them: one array, or a dict by name. Inputs, sequences of calls, late ranks and comparisons are those of kernels. Its calls are not captured into
    graphs.

    Args:
        fn: What is judged.
        task: What the ranks do together.
        group: The processes: a communicator of mpi4py, a group of torch.distributed, `Processes`, or what else is a `Group`. By default it is the default group of
            torch.distributed.
        dtypes: Element types to try.
        query: A list, a case id, or a pattern.
        tensors: `numpy` or `torch`: what the callable gets. By default that of the group: torch for torch.distributed, else numpy.
        device: Where torch's tensors are.
        deadline: Seconds that one call may take. A rank that takes longer is a hang.
        contract: What else it promises (docs/reference/specification.md, "Contract").
        options: Options of the command, as of `validate`.

    Raises:
        UsageError: The task or an option is wrong, or a rank did not come, on every rank.
        ReferenceFailed: The reference raised an exception, or gave no answer; on rank 0. The others get a `UsageError` that says so.
    """
    processes = _group(group)
    kind = tensors or ("torch" if isinstance(processes, OfTorch) else "numpy")
    if kind not in ("numpy", "torch"):
        raise UsageError(f"tensors={kind!r}: expected `numpy` or `torch`")
    _check_arguments(fn, task)
    rank = Rank(fn, task, processes.rank, processes.world, kind, device)
    if processes.rank > 0:
        return rank.serve(_connected(processes.broadcast(None), processes.rank))
    with Coordinator(task, processes.world) as coordinator:
        connection = _connected(processes.broadcast(str(coordinator.path)), 0)
        threading.Thread(target=_quietly, args=(rank.serve, connection), daemon=True).start()
        try:
            coordinator.meet()
            report = Called(fn, task, processes.world, dtypes, contract or {}, coordinator).check(query, deadline, options)
        except BaseException as error:
            coordinator.end({"error": f"{type(error).__name__}: {error}"})
            raise
        coordinator.end({"report": report.record, "text": report.text, "exit_status": report.exit_status})
        return report


def _quietly(serve: Callable[[socket.socket], Report], connection: socket.socket) -> None:
    """Serves on rank 0, whose caller has the report or the error already."""
    try:
        serve(connection)
    except UsageError:
        pass


def _check_arguments(fn: Callable[..., Any], task: Task) -> None:
    known = [*task.tensors, *task.parameters, "rank", "world", "dtype"]
    for name, parameter in inspect.signature(fn).parameters.items():
        needed = parameter.default is parameter.empty and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if needed and name not in known:
            raise UsageError(f"the callable takes `{name}`, which is no tensor or parameter; there are {', '.join(known)}")


def _group(group: Any) -> Group:
    """The group that somebody names."""
    if group is None or type(group).__module__.startswith("torch."):
        return OfTorch(group)
    if hasattr(group, "Get_rank") and hasattr(group, "bcast"):
        return OfMpi(group)
    if all(hasattr(group, name) for name in ("rank", "world", "broadcast")):
        named: Group = group
        return named
    raise UsageError(f"group: {type(group).__name__} is no communicator of mpi4py, no group of torch.distributed and no passmuster.Group")


class OfTorch:
    """A group of torch.distributed."""

    def __init__(self, group: Any) -> None:
        distributed: Any = sys.modules.get("torch.distributed")
        if distributed is None or not distributed.is_initialized():
            raise UsageError("group: none is given, and torch.distributed has no process group: call init_process_group first, or name a group")
        self._distributed, self._group = distributed, group
        self.rank: int = distributed.get_rank(group)
        self.world: int = distributed.get_world_size(group)

    def broadcast(self, text: str | None) -> str:
        texts = [text]
        first = 0 if self._group is None else self._distributed.get_global_rank(self._group, 0)
        self._distributed.broadcast_object_list(texts, src=first, group=self._group)
        return texts[0] or ""


class OfMpi:
    """A communicator of mpi4py."""

    def __init__(self, communicator: Any) -> None:
        self._communicator = communicator
        self.rank: int = communicator.Get_rank()
        self.world: int = communicator.Get_size()

    def broadcast(self, text: str | None) -> str:
        received: str = self._communicator.bcast(text, root=0)
        return received


@dataclass
class Processes:
    """Processes that have a folder in common and no library: those of `multiprocessing`, say. The folder is new for each check."""

    #: Which this process is.
    rank: int
    #: How many there are.
    world: int
    #: A folder that all of them see.
    folder: str | Path

    def broadcast(self, text: str | None) -> str:
        place = Path(self.folder) / "passmuster.rank0"
        if text is not None:
            written = place.with_suffix(f".{os.getpid()}")
            written.write_text(text, encoding="utf-8")
            written.rename(place)
            return text
        end = time.monotonic() + MEETING
        while not place.exists():
            if time.monotonic() > end:
                raise UsageError(f"rank 0 did not write {place} within {MEETING:.0f} s")
            time.sleep(0.01)
        return place.read_text(encoding="utf-8")


def _connected(path: str, rank: int) -> socket.socket:
    """A connection to rank 0."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except OSError as error:
        raise UsageError(f"rank {rank} cannot reach rank 0 at {path} ({error}): all ranks must run on one host") from None
    connection.sendall(f"{rank}\n".encode())
    return connection


class NotAResult(Exception):
    """A callable returned something that is no result."""


#: A call that a rank is to make: what the coordinator says of it, and the memory of its tensors.
Asked = tuple[dict[str, Any], bytes]


class Rank:
    """One rank: calls the callable when it is asked to."""

    def __init__(self, fn: Callable[..., Any], task: Task, rank: int, world: int, kind: str, device: str) -> None:
        self._fn, self._task = fn, task
        self._rank, self._world = rank, world
        self._kind, self._device = kind, device
        parameters = inspect.signature(fn).parameters.values()
        self._takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        self._takes = {parameter.name for parameter in parameters}
        self._use_device = _current_device()
        self._writing = threading.Lock()

    def serve(self, connection: socket.socket) -> Report:
        """Does what the coordinator asks, until it says how all ended.

        Raises:
            UsageError: What the coordinator failed by.
        """
        calls: queue.Queue[Asked | None] = queue.Queue()
        worker = threading.Thread(target=self._work, args=(calls, connection), daemon=True)
        worker.start()
        reader = connection.makefile("rb")
        try:
            while line := reader.readline():
                asked = json.loads(line)
                if "report" in asked:
                    return Report(asked["report"], asked["text"], asked["exit_status"])
                if "error" in asked:
                    raise UsageError(f"rank 0 ended: {asked['error']}")
                if "where" in asked:
                    self._say(connection, {"number": asked["where"], "how": "late", "said": _stands(worker)})
                else:
                    calls.put((asked, reader.read(asked["bytes"])))
        finally:
            calls.put(None)
        raise UsageError("rank 0 has gone")

    def _say(self, connection: socket.socket, answer: Mapping[str, Any], body: bytes = b"") -> None:
        with self._writing:
            connection.sendall(json.dumps({**answer, "bytes": len(body)}).encode() + b"\n" + body)

    def _work(self, calls: queue.Queue[Asked | None], connection: socket.socket) -> None:
        if self._use_device is not None:
            self._use_device()
        while (asked := calls.get()) is not None:
            number, body, failed = asked[0]["number"], b"", {}
            try:
                body = self._call(*asked)
            except NotAResult as error:
                failed = {"how": "returned", "said": str(error)}
            except BaseException as error:
                failed = {"how": "raised", "said": told(error)}
            try:
                self._say(connection, {"number": number, **failed}, body)
            except OSError:
                return

    def _call(self, asked: Mapping[str, Any], memory: bytes) -> bytes:
        """Makes a call on tensors in this memory, and returns the memory as it is then."""
        words = {**dict(zip(self._task.parameters, asked["parameters"])), "world": self._world, "rank": self._rank}
        values: dict[str, Any] = {**words, "dtype": asked["dtype"]}
        owners, start = [], 0
        for (name, tensor), capacity in zip(self._task.tensors.items(), asked["capacities"]):
            end = start + capacity + 2 * asked["guard"]
            shape = tuple(evaluated(extent, words) for extent in tensor.shape)
            owner, values[name] = self._tensor(bytearray(memory[start:end]), asked["guard"], tensor.dtype or asked["dtype"], shape)
            owners.append(owner)
            start = end
        time.sleep(asked["late"] / 1e6)
        returned = self._fn(**{name: value for name, value in values.items() if self._takes_all or name in self._takes})
        if returned is not None:
            self._take(returned, values)
        if self._device != "cpu":
            sys.modules["torch"].cuda.synchronize()
        return b"".join(self._bytes(owner) for owner in owners)

    def _tensor(self, memory: bytearray, guard: int, dtype: str, shape: tuple[int, ...]) -> tuple[Any, Any]:
        """An array of these bytes, and a tensor in its middle."""
        elements = int(np.prod(shape, dtype=np.int64))
        used = slice(guard, guard + elements * SIZES[dtype])
        if self._kind == "torch":
            torch: Any = sys.modules["torch"]
            owner = torch.frombuffer(memory, dtype=torch.uint8).to(self._device)
            return owner, owner[used].view(getattr(torch, NUMPY[dtype])).view(shape)
        array = np.frombuffer(memory, dtype=np.uint8)
        return array, array[used].view(_numpy(dtype)).reshape(shape)

    def _bytes(self, owner: Any) -> bytes:
        array = owner.cpu().numpy() if self._kind == "torch" else owner
        held: bytes = array.tobytes()
        return held

    def _take(self, returned: Any, values: Mapping[str, Any]) -> None:
        """Copies what the callable returned to where its outputs are.

        Raises:
            NotAResult: Another type, shape or name.
        """
        outputs = [name for name, tensor in self._task.tensors.items() if tensor.role != "input"]
        if not isinstance(returned, Mapping):
            if len(outputs) != 1:
                raise NotAResult(f"the callable returned {type(returned).__name__}, expected a dict of {', '.join(outputs)}")
            returned = {outputs[0]: returned}
        for name, result in returned.items():
            if name not in outputs:
                raise NotAResult(f"the callable returned `{name}`; outputs are {', '.join(outputs)}")
            expected = values[name]
            if not isinstance(result, type(expected)):
                raise NotAResult(f"the callable returned {type(result).__name__} for `{name}`, expected {type(expected).__name__}")
            for what in ("dtype", "shape"):
                had, wanted = getattr(result, what), getattr(expected, what)
                if had != wanted:
                    raise NotAResult(f"the callable returned `{name}` with {what} {_shown(had)}, expected {_shown(wanted)}")
            expected[...] = result


def _shown(value: Any) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)


def _stands(thread: threading.Thread) -> str:
    """Where a thread stands: the innermost line that is not of this package, and the outermost, which is the callable's own."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return "its thread has ended"
    lines = [line for line in traceback.extract_stack(frame) if line.filename not in (__file__, threading.__file__)]
    if not lines:
        return "late by itself" if frame.f_code.co_filename == __file__ else "at the start of the call"
    own, inner = lines[0], lines[-1]
    said = f"at {Path(own.filename).name}:{own.lineno} in {own.name}"
    return said if own is inner else f"{said}, and there at {Path(inner.filename).name}:{inner.lineno} in {inner.name}"


def _numpy(dtype: str) -> Any:
    """numpy's type of this name."""
    name = NUMPY[dtype]
    if hasattr(np, name):
        return np.dtype(name)
    try:
        import ml_dtypes  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        raise UsageError(f"numpy has no {dtype}: pip install ml_dtypes, or use torch's tensors") from None
    return np.dtype(getattr(ml_dtypes, name))


def _current_device() -> Callable[[], None] | None:
    """What makes a thread use the GPU that this one does, if it does."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    device = torch.cuda.current_device()
    return lambda: torch.cuda.set_device(device)


class Coordinator(Server):
    """Answers the command's questions: those about references as always, and calls by having the ranks make them."""

    def __init__(self, task: Task, world: int) -> None:
        super().__init__(task.reference if not isinstance(task.reference, str) else _no_reference)
        self._world = world
        self._ranks: list[socket.socket] = []
        self._readers_of_ranks: list[io.BufferedReader] = []
        self._number = 0

    def __enter__(self) -> Coordinator:
        return self

    def __exit__(self, *what: object) -> None:
        for reader, connection in zip(self._readers_of_ranks, self._ranks):
            reader.close()
            connection.close()
        super().__exit__(*what)

    def meet(self) -> None:
        """Waits until every rank has connected.

        Raises:
            UsageError: One has not.
        """
        came: dict[int, tuple[socket.socket, io.BufferedReader]] = {}
        end = time.monotonic() + MEETING
        while len(came) < self._world:
            connection = self.connection(max(0.0, end - time.monotonic()))
            if connection is None:
                missing = [rank for rank in range(self._world) if rank not in came]
                raise UsageError(f"ranks {missing} did not call `check` within {MEETING:.0f} s")
            reader = connection.makefile("rb")
            came[int(reader.readline() or b"-1")] = (connection, reader)
        self._ranks = [came[rank][0] for rank in range(self._world)]
        self._readers_of_ranks = [came[rank][1] for rank in range(self._world)]

    def end(self, how: Mapping[str, Any]) -> None:
        """Tells all ranks how it ended."""
        for connection in self._ranks:
            _send(connection, how)

    def answered(self, question: dict[str, Any], reader: io.RawIOBase) -> bytes:
        if "ranks" not in question:
            return super().answered(question, reader)
        self._number += 1
        guard = question["guard"]
        for part, connection in zip(question["ranks"], self._ranks):
            capacities = part["capacities"]
            memory = exactly(reader, sum(capacity + 2 * guard for capacity in capacities))
            asked = {
                "number": self._number,
                # The entry is named by the type.
                "dtype": question["entry"],
                "parameters": part["parameters"],
                "late": part["late"],
                "guard": guard,
                "capacities": capacities,
                "bytes": len(memory),
            }
            _send(connection, asked, memory)
        bodies, failed = self._collected(question["deadline"])
        if failed:
            stuck = any(failure["how"] in ("late", "died") for failure in failed)
            return json.dumps({"failed": failed, "stuck": stuck}).encode() + b"\n"
        return b"{}\n" + b"".join(bodies[rank] for rank in range(self._world))

    def _collected(self, deadline: float) -> tuple[dict[int, bytes], list[dict[str, Any]]]:
        """What each rank's memory is after the call, and what failed on ranks. Returns when every rank has answered, or time is up."""
        bodies: dict[int, bytes] = {}
        failed: dict[int, dict[str, Any]] = {}
        end, asked_where = time.monotonic() + deadline, False
        with selectors.DefaultSelector() as selector:
            for rank, connection in enumerate(self._ranks):
                selector.register(connection, selectors.EVENT_READ, rank)
            while missing := [rank for rank in range(self._world) if rank not in bodies and rank not in failed]:
                ready = selector.select(max(0.0, end - time.monotonic()))
                for key, _ in ready:
                    rank = key.data
                    answer = self._answer_of(rank)
                    if answer is None:
                        selector.unregister(key.fileobj)
                        failed.setdefault(rank, {"rank": rank, "how": "died", "said": "its process has ended"})
                    elif answer[0]["number"] == self._number:
                        said, body = answer
                        if "how" in said:
                            failed.setdefault(rank, {"rank": rank, "how": said["how"], "said": said["said"]})
                        else:
                            bodies[rank] = body
                    if rank in failed:
                        # The others may wait for it.
                        end = min(end, time.monotonic() + GRACE)
                if ready or time.monotonic() < end:
                    continue
                if asked_where:
                    failed |= {rank: {"rank": rank, "how": "late", "said": "it says nothing"} for rank in missing}
                    break
                asked_where, end = True, time.monotonic() + GRACE
                for rank in missing:
                    _send(self._ranks[rank], {"where": self._number})
        return bodies, [failed[rank] for rank in sorted(failed)]

    def _answer_of(self, rank: int) -> tuple[dict[str, Any], bytes] | None:
        try:
            line = self._readers_of_ranks[rank].readline()
            if not line:
                return None
            said = json.loads(line)
            return said, self._readers_of_ranks[rank].read(said["bytes"])
        except OSError:
            return None


def _no_reference(call: Any) -> Any:
    raise UsageError("the reference of this task is built in")


def _send(connection: socket.socket, said: Mapping[str, Any], body: bytes | bytearray = b"") -> None:
    """Sends a line and what follows it. A rank that has gone is missed where its answer is waited for."""
    try:
        connection.sendall(json.dumps(said).encode() + b"\n" + body)
    except OSError:
        pass


class Called(Judged):
    """A callable, described as a kernel whose launches are its calls."""

    def __init__(
        self, fn: Callable[..., Any], task: Task, world: int, dtypes: Sequence[DType], contract: Mapping[str, Any], coordinator: Coordinator
    ) -> None:
        name = re.sub(r"[^a-z0-9_]", "_", getattr(fn, "__name__", type(fn).__name__).lower()).strip("_")
        self.name = name if name[:1].isalpha() else "callable"
        self._of, self._world, self._dtypes, self._contract = task, world, dtypes, contract
        self._coordinator = coordinator

    def check(self, query: str, deadline: float, options: Mapping[str, Any]) -> Report:
        """Has the command judge it."""
        with tempfile.TemporaryDirectory(prefix="passmuster-") as folder:
            self._spec = self._described(Path(folder))
            words = {"deadline": f"{deadline:g}", "socket": self._coordinator.path, **options}
            return self._judge("check", query, server=self._coordinator, **words)

    def _task(self) -> Task:
        return self._of

    def _written(self) -> Path:
        return self._spec

    def _described(self, folder: Path) -> Path:
        """A specification whose launches have the addresses of tensors, the parameters, and the number of the call: what has that is not captured."""
        arguments = [{"pointer": name} for name in self._of.tensors] + [{"u64": name} for name in [*self._of.parameters, "call"]]
        parameters = ", ".join(f".param .u64 p{number}" for number in range(len(arguments)))
        entries = "".join(f".visible .entry {dtype}({parameters}) {{ ret; }}\n" for dtype in self._dtypes)
        (folder / "callable.ptx").write_text(f".version 8.0\n.target sm_90\n.address_size 64\n{entries}", encoding="utf-8")
        table = {
            "name": self.name,
            "module": "callable.ptx",
            "entry": "{dtype}",
            "dtypes": list(self._dtypes),
            "worlds": [self._world],
            "task": self._of._toml(["a Python function"] if callable(self._of.reference) else self._of.reference),
            "launch": {"grid": 1, "block": 1, "waits_for_peers": False},
            "argument": arguments,
            **({"contract": dict(self._contract)} if self._contract else {}),
        }
        spec = folder / "spec.toml"
        spec.write_text(_toml.text(table), encoding="utf-8")
        return spec
