"""Specifications: how kernels are launched and what they promise (docs/reference/specification.md)."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Mapping, Sequence

from . import _command, _toml
from ._errors import CouldNotJudge, Interrupted, PassmusterError, ReferenceFailed, UsageError
from ._reference import Server, told
from ._report import Report
from ._task import DType, Expression, Task

#: An argument of a kernel, or a field of a struct: a table of docs/reference/specification.md, "Arguments".
Argument = Mapping[str, Any]


def scalar(dtype: str, value: Expression | float) -> Argument:
    """A number or an expression, by value. `dtype` is `u8`, `u16`, `u32`, `i32`, `u64`, `i64` or `f32`."""
    return {dtype: value}


def pointer(buffer: str, *, of_rank: Expression | None = None, offset: Expression | None = None) -> Argument:
    """The address of a tensor or buffer, on this rank or on `of_rank`; `offset` is in bytes."""
    return {"pointer": buffer, **_given(of_rank=of_rank, offset=offset)}


def peers(buffer: str, *, length: int | None = None) -> Argument:
    """The addresses of a buffer on all ranks, by value: `world` pointers, or `length` of them, null past the world."""
    return {"peers": buffer, **_given(length=length)}


def peer_table(buffer: str) -> Argument:
    """The address of a device array of a buffer's addresses on all ranks: `buffer_ptrs_dev` of PyTorch's symmetric memory."""
    return {"peer_table": buffer}


def struct(*fields: Argument) -> Argument:
    """A struct by value, laid out as C does."""
    return {"struct": list(fields)}


def memory(*fields: Argument) -> Argument:
    """The address of device memory that holds such a struct."""
    return {"memory": list(fields)}


@dataclass(frozen=True)
class Buffer:
    """Memory of the kernel's own that keeps its bytes from call to call: signals, epochs, scratch."""

    #: How many. An expression may use the parameters of the largest call, and `world`.
    bytes: Expression
    #: `signals`, `state`, `scratch` or `data`.
    role: str = "signals"
    #: `symmetric`: peers are given its address. `local`: they are not.
    memory: str = "symmetric"
    #: What it starts with; by default zeros for signals and state, and nothing for the others.
    fill: Any = None

    def _toml(self, name: str) -> dict[str, Any]:
        return {"name": name, "role": self.role, "memory": self.memory, "bytes": self.bytes, **_given(fill=self.fill)}


@dataclass(frozen=True)
class Launch:
    """How the kernel is started."""

    #: Blocks: a number or expression, or up to three of them.
    grid: Expression | Sequence[Expression]
    #: Threads of a block.
    block: Expression | Sequence[Expression]
    #: Bytes.
    dynamic_shared: Expression = 0
    #: Blocks of a cluster.
    cluster: Expression | Sequence[Expression] | None = None
    #: Whether blocks wait for peers, so that all of them must be resident at once.
    waits_for_peers: bool = True
    #: Registers of a thread, as `ptxas -v` says.
    registers: int | None = None

    def _toml(self) -> dict[str, Any]:
        return {
            "grid": _listed(self.grid),
            "block": _listed(self.block),
            "dynamic_shared": self.dynamic_shared,
            "waits_for_peers": self.waits_for_peers,
            **_given(cluster=None if self.cluster is None else _listed(self.cluster), registers=self.registers),
        }


def _listed(value: Expression | Sequence[Expression]) -> Expression | list[Expression]:
    return value if isinstance(value, (int, str)) else list(value)


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


class Judged:
    """What can be judged. `Spec` and kernels of `passmuster.triton` are."""

    #: The name of the algorithm in case ids.
    name: str

    def _written(self) -> Path:
        """The specification on disk, with the modules beside it. Its reference may be a placeholder."""
        raise NotImplementedError

    def _task(self) -> Task | None:
        raise NotImplementedError

    def cases(self, query: str = "smoke", **options: Any) -> list[str]:
        """The ids of the cases that a query selects; none of them runs."""
        ended = self._run("validate", query, ["--list"], **options)
        ended.raise_for_status()
        return ended.stdout.split()

    def validate(self, query: str = "smoke", *, replay: str | None = None, **options: Any) -> Report:
        """`passmuster.validate` of this. `replay` is a case to run in place of a query: under exactly the schedule behind its `@`, if it has one."""
        return self._judge("validate", None if replay else query, replay=replay, **options)

    def mutants(self, **options: Any) -> Report:
        """Plants bugs in the kernel, and reports which of them the cases catch (docs/emulator/mutants.md)."""
        return self._judge("mutants", None, **options)

    def _judge(self, command: str, query: str | None, *, progress: bool | None = None, **options: Any) -> Report:
        shown = sys.stderr.isatty() if progress is None else progress
        with tempfile.TemporaryDirectory(prefix="passmuster-") as folder:
            record = Path(folder) / "record.json"
            ended = self._run(command, query, [f"--json={record}"], progress=shown, **options)
            if ended.interrupted:
                partial = record.with_name(record.name + ".partial")
                raise Interrupted(_read(partial, ended) if partial.exists() else None)
            if ended.status == _command.USAGE and record.exists():
                report = _read(record, ended)
                unjudged = [case for case in report if case.status == "infra_error"]
                raise CouldNotJudge("\n".join(f"{case.id}: {case.reason}" for case in unjudged[:1]), report)
            ended.raise_for_status()
            return _read(record, ended)

    def _run(
        self,
        command: str,
        query: str | None,
        arguments: list[str],
        *,
        progress: bool = False,
        server: Server | None = None,
        **options: Any,
    ) -> _command.Ended:
        """Runs a command on this, with its reference at hand."""
        if options.get("replay") is None:
            options.pop("replay", None)
        arguments = [*([query] if query is not None else []), *arguments, *options_of(options)]
        spec, task = self._written(), self._task()
        if task is None or not callable(task.reference):
            return _command.run([command, *arguments, f"--spec={spec}"], server, progress)
        with nullcontext(server) if server is not None else Server(task.reference) as server:
            served = spec.with_name(f"{spec.stem}.{server.path.parent.name}.toml")
            served.write_text(_with_reference(spec.read_text(encoding="utf-8"), server.program), encoding="utf-8")
            try:
                ended = _command.run([command, *arguments, f"--spec={served}", "--allow-program"], server, progress)
                if server.failure is not None and not ended.interrupted:
                    raise ReferenceFailed(f"the reference of {task.name} failed: {told(server.failure)}") from server.failure
                # That file is gone when somebody reads what was printed.
                line = re.escape(f"validate --spec={served} --allow-program --replay ")
                ended.stdout = re.sub(rf"\S+ {line}('[^']*')", rf"{self.name}.validate(replay=\1)", ended.stdout)
                ended.stderr = _quoting(ended.stderr, served)
                return ended
            finally:
                served.unlink()


#: What a written specification has for a reference that is a Python function.
PLACEHOLDER = 'reference = ["a Python function"]'


def _with_reference(text: str, program: list[str]) -> str:
    return text.replace(PLACEHOLDER, f"reference = {json.dumps(program)}", 1)


def options_of(options: Mapping[str, Any]) -> list[str]:
    """Keyword arguments as options of the command: `schedules=8` is `--schedules=8`, `coverage=True` is `--coverage`."""
    words = []
    for name, value in options.items():
        option = "--" + name.rstrip("_").replace("_", "-")
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            words.append(f"{option}={value}")
    return words


def _read(record: Path, ended: _command.Ended) -> Report:
    try:
        return Report(json.loads(record.read_text(encoding="utf-8")), ended.stdout, ended.status)
    except FileNotFoundError:
        raise PassmusterError(ended.stderr.strip() or ended.stdout.strip() or "the command wrote no record") from None


def _quoting(message: str, spec: Path) -> str:
    """An error of a specification that was written from objects, with the line that it is about."""
    place = re.search(re.escape(str(spec)) + r":(\d+):\d+: ", message)
    if place is None:
        return message
    line = spec.read_text(encoding="utf-8").splitlines()[int(place[1]) - 1]
    return message.strip().replace(place[0], "") + f"\n  in: {line}"


@dataclass
class Spec(Judged):
    """A kernel that was compiled to PTX, and how it is launched. `Spec.read` reads one from a file.

    Args:
        name: The algorithm in case ids: a-z, 0-9 and `_`.
        module: The file of the PTX. `{dtype}`, `{world}` and `{rank}` are replaced.
        entry: The kernel. `{dtype}`, `{world}` and `{rank}` are replaced.
        dtypes: Element types to try.
        worlds: Numbers of ranks to try.
        launch: How it is started.
        arguments: The kernel's arguments, in its order.
        task: What the ranks do together; or `collective`, one of the six.
        ops: Operators of a collective that reduces.
        buffers: Memory of the kernel's own, by name.
        contract: Keys of docs/reference/specification.md, "Contract".
        call: Keys of "Call" there; of collectives only.
    """

    name: str
    module: str | Path
    entry: str
    dtypes: Sequence[DType]
    worlds: Sequence[int]
    launch: Launch
    arguments: Sequence[Argument]
    task: Task | None = None
    collective: str | None = None
    ops: Sequence[str] = ()
    buffers: Mapping[str, Buffer] = field(default_factory=dict)
    contract: Mapping[str, Any] = field(default_factory=dict)
    call: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.task is None) == (self.collective is None):
            raise UsageError(f"`{self.name}` needs a task or a collective, and not both")
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @staticmethod
    def read(path: str | Path) -> SpecFile:
        """A specification from a file. If its reference is a program, say `allow_program=True` where it is judged."""
        return SpecFile(Path(path))

    def to_toml(self) -> str:
        """The text of the specification."""
        table: dict[str, Any] = {"name": self.name, "module": Path(self.module).name, "entry": self.entry}
        table |= {"dtypes": list(self.dtypes), "worlds": list(self.worlds)}
        if self.collective is not None:
            table["collective"] = self.collective
        if self.ops:
            table["ops"] = list(self.ops)
        if self.task is not None:
            reference = ["a Python function"] if callable(self.task.reference) else self.task.reference
            table["task"] = self.task._toml(reference)
        if self.call:
            table["call"] = dict(self.call)
        table["launch"] = self.launch._toml()
        if self.contract:
            table["contract"] = dict(self.contract)
        table["buffer"] = [buffer._toml(name) for name, buffer in self.buffers.items()]
        table["argument"] = list(self.arguments)
        return _toml.text(table)

    def _task(self) -> Task | None:
        return self.task

    def _written(self) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="passmuster-")
        folder = Path(self._folder.name)
        module = Path(self.module)
        # As a pattern: {dtype}, {world} and {rank} stand for anything.
        pattern = re.sub(r"\{(dtype|op|world|rank)\}", "*", module.name)
        files = sorted(module.parent.glob(pattern))
        if not files:
            raise UsageError(f"{module}: no such file")
        for file in files:
            shutil.copy(file, folder / file.name)
        spec = folder / "spec.toml"
        spec.write_text(self.to_toml(), encoding="utf-8")
        return spec


class SpecFile(Judged):
    """A specification in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        named = re.search(r'^name\s*=\s*"([^"]*)"', path.read_text(encoding="utf-8"), re.MULTILINE)
        self.name = named[1] if named else path.stem

    def _task(self) -> Task | None:
        return None

    def _written(self) -> Path:
        return self.path
