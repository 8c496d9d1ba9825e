"""Kernels in Triton and Gluon: what a launch function launches is recorded, on a machine without a GPU, and becomes a specification.

Triton compiles for values, not only for types: an argument of 1 becomes a constant and its parameter goes away, and one that 16 divides gives other code. So
the launch function is called once for each rank and each combination of parameters, and the specification has a launch for each of them.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import itertools
import json
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, ClassVar, Iterator, Mapping, Sequence

from . import _toml
from ._errors import UsageError
from ._spec import Argument, Buffer, Judged, pointer
from ._task import DType, Task, evaluated

#: The most calls of a launch function for one specification.
MOST_CALLS = 4096

#: Triton's names of element types.
NAMES: Mapping[str, str] = {
    "f32": "fp32",
    "f16": "fp16",
    "bf16": "bf16",
    "f64": "fp64",
    "e4m3": "fp8e4nv",
    "e5m2": "fp8e5",
    "i8": "i8",
    "u8": "u8",
    "i32": "i32",
    "u32": "u32",
    "i64": "i64",
    "u64": "u64",
}

#: How types of Triton's signatures are passed.
PASSED: Mapping[str, str] = {
    "i1": "u8",
    "u1": "u8",
    "i8": "u8",
    "u8": "u8",
    "i16": "u16",
    "u16": "u16",
    "i32": "i32",
    "u32": "u32",
    "i64": "i64",
    "u64": "u64",
    "fp32": "f32",
}

#: Addresses of different tensors are this far apart: far enough for any offset within one.
APART = 1 << 40

#: A device that no machine has, so that Triton's caches of real devices stay as they are.
DEVICE = 1 << 20


class Handle:
    """What a launch function gets for a tensor or a buffer: it has an address and a type, and no elements."""

    def __init__(self, book: Book, buffer: str, dtype: str, shape: tuple[int, ...] | None, address: int) -> None:
        self._book = book
        self._buffer = buffer
        self._shape = shape
        self._address = address
        #: Its element type as Triton names it.
        self.dtype = dtype

    def data_ptr(self) -> int:
        """Its address on this rank."""
        return self._address

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape on this rank; of tensors only."""
        if self._shape is None:
            raise UsageError(f"`{self._buffer}` is a buffer: it has bytes, and no shape")
        return self._shape

    def numel(self) -> int:
        """How many elements it has on this rank; of tensors only."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    def view(self, dtype: DType) -> Handle:
        """The same memory as elements of another type."""
        return Handle(self._book, self._buffer, NAMES[dtype], None, self._address)

    def of_rank(self, rank: int) -> Handle:
        """The same tensor on another rank."""
        address = self._book.address(pointer(self._buffer, of_rank=rank))
        return Handle(self._book, self._buffer, self.dtype, None, address)

    @property
    def buffer_ptrs_dev(self) -> int:
        """The address of a device array of its addresses on all ranks, as of a handle of PyTorch's symmetric memory."""
        return self._book.address({"peer_table": self._buffer})

    @property
    def peers(self) -> Handle:
        """That array, as a tensor of `i64`."""
        return Handle(self._book, self._buffer, "i64", None, self.buffer_ptrs_dev)


class Book:
    """Addresses that stand for arguments."""

    def __init__(self) -> None:
        self._arguments: list[Argument] = []

    def address(self, argument: Argument) -> int:
        """The address that stands for an argument."""
        if argument not in self._arguments:
            self._arguments.append(argument)
        return (self._arguments.index(argument) + 1) * APART

    def argument(self, address: int) -> Argument | None:
        """The argument that an address stands for, with its offset in bytes; None if it is no address."""
        number, offset = divmod(address, APART)
        if not 1 <= number <= len(self._arguments):
            return None
        argument = self._arguments[number - 1]
        if offset == 0:
            return argument
        if "pointer" not in argument:
            raise UsageError(f"an address {offset} bytes behind the table of peers of `{argument['peer_table']}` cannot be passed")
        return {**argument, "offset": offset}


@dataclass(frozen=True)
class Launched:
    """One launch of a compiled kernel."""

    entry: str
    ptx: str
    grid: tuple[int, int, int]
    block: int
    shared: int
    cluster: tuple[int, ...]
    programmatic: bool
    arguments: tuple[Argument, ...]


class TritonKernel(Judged):
    """A launch function of Triton kernels, with the task that they do. `passmuster.triton` makes one."""

    def __init__(
        self,
        launch: Callable[..., None],
        task: Task,
        worlds: Sequence[int],
        dtypes: Sequence[DType],
        buffers: Mapping[str, Buffer],
        contract: Mapping[str, Any],
        name: str | None,
    ) -> None:
        self.launch = launch
        self.task = task
        self.worlds = tuple(worlds)
        self.dtypes = tuple(dtypes)
        self.buffers = dict(buffers)
        self.contract = dict(contract)
        self.name = name or launch.__name__
        self.__doc__ = launch.__doc__
        self.__name__ = launch.__name__
        self.__wrapped__ = launch
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._check()

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Launches it, on tensors of your own."""
        self.launch(*args, **kwargs)

    def _check(self) -> None:
        known = [*self.task.tensors, *self.buffers, *self.task.parameters, "rank", "world", "dtype"]
        twice = [name for name in known if known.count(name) > 1]
        if twice:
            raise UsageError(f"`{twice[0]}` names two things in {self.name}")
        for name in inspect.signature(self.launch).parameters:
            if name not in known:
                raise UsageError(f"{self.name} takes `{name}`, which is no tensor, buffer or parameter; there are {', '.join(known)}")
        for what in ("worlds", "dtypes"):
            if not getattr(self, what):
                raise UsageError(f"{self.name} has no {what}")

    def _task(self) -> Task:
        return self.task

    def _written(self) -> Path:
        if self._folder is None:
            folder = tempfile.TemporaryDirectory(prefix="passmuster-")
            self.write(folder.name)
            self._folder = folder
        return Path(self._folder.name) / "spec.toml"

    def write(self, folder: str | Path) -> None:
        """Compiles the kernels, and writes the specification and the PTX to a folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        steps: list[dict[str, Any]] = []
        for world, rank, parameters in self._calls():
            by_dtype = [self._launched(dtype, world, rank, parameters) for dtype in self.dtypes]
            if any(len(launched) != len(by_dtype[0]) for launched in by_dtype):
                raise UsageError(f"{self.name} launches more kernels for one of {', '.join(self.dtypes)} than for another: make a kernel for each type")
            conditions = [f"world == {world}", f"rank == {rank}", *(f"{name} == {value}" for name, value in parameters.items())]
            for of_types in zip(*by_dtype):
                steps.append({"launch": self._step(of_types, folder), "when": " && ".join(conditions)})
        if not steps:
            raise UsageError(f"{self.name} launches no kernel")
        reference = ["a Python function"] if callable(self.task.reference) else self.task.reference
        first = steps[0]["launch"]
        table = {
            "name": self.name,
            "dtypes": list(self.dtypes),
            "worlds": list(self.worlds),
            "task": self.task._toml(reference),
            "launch": {"module": first["module"], "entry": first["entry"], "grid": first["grid"], "block": first["block"]},
            "contract": self.contract,
            "buffer": [buffer._toml(name) for name, buffer in self.buffers.items()],
            "step": steps,
        }
        (folder / "spec.toml").write_text(_toml.text({key: value for key, value in table.items() if value != {}}), encoding="utf-8")

    def _calls(self) -> Iterator[tuple[int, int, dict[str, int]]]:
        """Every world, rank and combination of parameters."""
        combinations = list(itertools.product(*self.task.parameters.values()))
        calls = sum(self.worlds) * len(combinations) * len(self.dtypes)
        if calls > MOST_CALLS:
            raise UsageError(
                f"{self.name} would be compiled for {calls} calls ({len(combinations)} combinations of parameters on {sum(self.worlds)} ranks, "
                f"{len(self.dtypes)} types), at most {MOST_CALLS} are: give fewer values to parameters"
            )
        for world in self.worlds:
            for rank in range(world):
                for values in combinations:
                    yield world, rank, dict(zip(self.task.parameters, values))

    def _launched(self, dtype: DType, world: int, rank: int, parameters: Mapping[str, int]) -> list[Launched]:
        """What the launch function launches on one rank."""
        book = Book()
        words = {**parameters, "world": world, "rank": rank}
        values: dict[str, Any] = {**words, "dtype": dtype}
        for name, tensor in self.task.tensors.items():
            shape = tuple(evaluated(extent, words) for extent in tensor.shape)
            values[name] = Handle(book, name, NAMES[tensor.dtype or dtype], shape, book.address({"pointer": name}))
        for name in self.buffers:
            values[name] = Handle(book, name, "i32", None, book.address({"pointer": name}))
        taken = inspect.signature(self.launch).parameters
        with Recorder(book) as recorder:
            self.launch(**{name: values[name] for name in taken})
        return recorder.launched

    def _step(self, of_types: tuple[Launched, ...], folder: Path) -> dict[str, Any]:
        """The launch of a step, with the PTX of each type in the folder."""
        first = of_types[0]
        for other, dtype in zip(of_types, self.dtypes):
            for what in ("entry", "grid", "block", "cluster", "programmatic", "arguments"):
                if getattr(other, what) != getattr(first, what):
                    raise UsageError(f"{self.name} launches {first.entry} with another {what} for {dtype}: make a kernel for each type")
        texts = hashlib.sha256("\0".join(launched.ptx + str(launched.shared) for launched in of_types).encode()).hexdigest()[:16]
        for launched, dtype in zip(of_types, self.dtypes):
            (folder / f"{first.entry}.{dtype}.{texts}.ptx").write_text(launched.ptx, encoding="utf-8")
            (folder / f"{first.entry}.{dtype}.{texts}.json").write_text(json.dumps({"shared": launched.shared}), encoding="utf-8")
        step: dict[str, Any] = {
            "module": f"{first.entry}.{{dtype}}.{texts}.ptx",
            "entry": first.entry,
            "grid": list(first.grid),
            "block": first.block,
            "arguments": list(first.arguments),
        }
        if first.cluster:
            step["cluster"] = list(first.cluster)
        if first.programmatic:
            step["programmatic"] = True
        return step


def triton(
    task: Task,
    *,
    worlds: Sequence[int],
    dtypes: Sequence[DType] = ("bf16",),
    buffers: Mapping[str, Buffer] | None = None,
    contract: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Callable[[Callable[..., None]], TritonKernel]:
    """Makes a launch function of Triton or Gluon kernels something that can be judged.

    The function is called by name with what it asks for: tensors and buffers (`Handle`), parameters of the task (of this rank), `rank`, `world` and `dtype`. It
    launches kernels as always, `kernel[grid](...)`. No GPU is needed: Triton compiles for sm_90a, and nothing is launched.

    Args:
        task: What the ranks do together.
        worlds: Numbers of ranks to try.
        dtypes: Element types to try.
        buffers: Memory of the kernels' own, by name. A handle of one has elements of `i32`; `view` gives another type.
        contract: Keys of docs/reference/specification.md, "Contract".
        name: The name in case ids; by default the function's.
    """

    def decorate(launch: Callable[..., None]) -> TritonKernel:
        return TritonKernel(launch, task, worlds, dtypes, buffers or {}, contract or {}, name)

    return decorate


class Recorder:
    """While it is entered, launches of Triton kernels are compiled and written down in place of being run. Hooks of others stay in place."""

    #: The one that is entered. Triton keeps launchers with its compiled kernels, so they cannot have a recorder of their own.
    entered: ClassVar[Recorder | None] = None

    def __init__(self, book: Book) -> None:
        self._book = book
        self.launched: list[Launched] = []

    def __enter__(self) -> Recorder:
        try:
            from triton import knobs
            from triton.runtime.driver import driver
        except ImportError as error:
            raise UsageError(f"passmuster.triton needs Triton: pip install triton ({error})") from None
        # Only what is public of them is known to type checkers.
        self._driver: Any = driver
        self._runtime: Any = knobs.runtime
        self._active, self._earlier = driver._active, Recorder.entered
        self._stages = self._runtime.add_stages_inspection_hook
        driver.set_active(_driver())
        self._runtime.add_stages_inspection_hook = self._pipeline
        Recorder.entered = self
        return self

    def __exit__(self, *_: object) -> None:
        Recorder.entered = self._earlier
        self._driver._active = self._active
        self._runtime.add_stages_inspection_hook = self._stages

    def _pipeline(
        self, backend: Any = None, stages: Any = None, options: Any = None, language: Any = None, capability: Any = None
    ) -> tuple[str, str] | None:
        """A pipeline that ends with PTX, so that neither ptxas nor what it cannot resolve is met. Its key keeps Triton's caches apart."""
        earlier = self._stages(backend, stages, options, language, capability) if self._stages and stages is not None else None
        if stages is None:
            key, of = self._stages() if self._stages else ("", "")
            return f"{key}passmuster", f"{of}passmuster"
        stages["cubin"] = lambda ptx, metadata: ptx.encode()
        return earlier

    def record(self, source: Any, metadata: Any, ptx: str, grid: tuple[int, int, int], values: Sequence[Any]) -> None:
        """Writes down a launch."""
        entry = metadata.name
        arguments = [
            self._argument(name, type_, value)
            for (name, type_), value in zip(source.signature.items(), values)
            if type_ != "constexpr"
        ]
        taken = re.search(rf"\.entry\s+{re.escape(entry)}\s*\(([^)]*)\)", ptx)
        if taken is None:
            raise UsageError(f"Triton's PTX of {entry} has no entry of that name")
        # Behind them are what Triton adds itself: scratch memory, which is not used here.
        added = taken[1].count(".param") - len(arguments)
        if not 0 <= added <= 2:
            raise UsageError(f"{entry} takes {taken[1].count('.param')} arguments in PTX, expected {len(arguments)} to {len(arguments) + 2}")
        clusters = tuple(getattr(metadata, "cluster_dims", ()) or ())
        self.launched.append(
            Launched(
                entry=entry,
                ptx=ptx,
                grid=grid,
                block=metadata.num_warps * metadata.warp_size,
                shared=metadata.shared,
                cluster=clusters if any(extent != 1 for extent in clusters) else (),
                programmatic=bool(getattr(metadata, "launch_pdl", False)),
                arguments=(*arguments, *[{"u64": 0}] * added),
            )
        )

    def _argument(self, name: str, type_: str, value: Any) -> Argument:
        is_tensor = hasattr(value, "data_ptr")
        address = value.data_ptr() if is_tensor else value
        known = self._book.argument(address) if isinstance(address, int) else None
        if known is not None:
            return known
        if is_tensor:
            raise UsageError(f"`{name}` is a tensor of your own: a launch function passes on the tensors and buffers that it is given")
        if type_ not in PASSED:
            raise UsageError(f"`{name}` is passed as {type_}; pointers, integers, and floats of 32 bits can be passed")
        return {PASSED[type_]: int(value) if PASSED[type_] != "f32" else float(value)}


@functools.cache
def _driver() -> Any:
    """A driver as Triton wants one, for a GPU of compute capability 9.0 that is not there."""
    from triton.backends.compiler import GPUTarget

    loaded: list[str] = []

    class Utils:
        def get_device_properties(self, device: int) -> dict[str, int]:
            # Of an H200.
            return {
                "max_shared_mem": 232448,
                "max_num_regs": 65536,
                "multiprocessor_count": 132,
                "warpSize": 32,
                "sm_clock_rate": 1980000,
                "mem_clock_rate": 3201000,
                "mem_bus_width": 6144,
            }

        def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[int, int, int, int, int]:
            loaded.append(kernel.decode())
            return 1, len(loaded) - 1, 0, 0, 1024

        def unload_module(self, module: int) -> None:
            pass

    class Launcher:
        def __init__(self, source: Any, metadata: Any) -> None:
            self.source, self.metadata = source, metadata

        def __call__(
            self, x: int, y: int, z: int, stream: int, function: int, packed: Any, told: Any, enter: Any, leave: Any, *values: Any
        ) -> None:
            if enter is not None:
                enter(told)
            assert Recorder.entered is not None, "a driver that is not there was asked to launch"
            Recorder.entered.record(self.source, self.metadata, loaded[function], (x, y, z), values)
            if leave is not None:
                leave(told)

    class Driver:
        utils = Utils()
        launcher_cls = Launcher

        def get_current_device(self) -> int:
            return DEVICE

        def set_current_device(self, device: int) -> None:
            pass

        def get_current_stream(self, device: int | None = None) -> int:
            return 0

        def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
            return 9, 0

        def get_current_target(self) -> Any:
            return GPUTarget("cuda", 90, 32)

        def get_active_torch_device(self) -> Any:
            import torch  # type: ignore[import-not-found, unused-ignore]

            return torch.device("cpu")

        def get_benchmarker(self) -> Callable[..., list[float]]:
            # Autotuning then takes the first configuration.
            return lambda call, quantiles=None, **_: [0.0] * len(quantiles or [0])

        @staticmethod
        def is_active() -> bool:
            return True

    return Driver()
