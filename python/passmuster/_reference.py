"""References in Python: functions of the arrays of all ranks, asked by the command through a socket (docs/reference/tasks.md)."""

from __future__ import annotations

import io
import json
import math
import select
import socket
import sys
import tempfile
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ._errors import ReferenceFailed

#: What a reference returns: for each output its values, or a tuple of its values and of the magnitudes that bound their errors. One if it is the same on all
#: ranks, or a list with one for each rank. Values are whatever numpy makes an array of.
Outputs = Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    """One call of a task, on all ranks: what a reference computes the outputs of."""

    #: The name of the task.
    task: str
    #: The case's element type, as in `bf16`. Inputs have been rounded to their types already.
    dtype: str
    #: How many ranks there are.
    world: int
    #: For each parameter its value on each rank.
    parameters: Mapping[str, Sequence[int]]
    #: For each input one float64 array a rank, of that rank's shape.
    inputs: Mapping[str, Sequence[npt.NDArray[np.float64]]]
    #: For each output its shape on each rank.
    shapes: Mapping[str, Sequence[tuple[int, ...]]] = field(repr=False)

    def __getitem__(self, parameter: str) -> int:
        """The value of a parameter that is the same on all ranks."""
        values = self.parameters[parameter]
        if len(set(values)) != 1:
            raise ValueError(f"{parameter} differs between ranks: {list(values)}; use call.parameters[{parameter!r}][rank]")
        return values[0]


#: A reference: returns the outputs of a call, in float64. It may be asked twice for the same call, and must then say the same.
Reference = Callable[[Call], Outputs]


class Server:
    """Answers the questions of one run of the command."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._folder = tempfile.TemporaryDirectory(prefix="passmuster-")
        self.path = Path(self._folder.name) / "reference"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._readers: dict[socket.socket, io.RawIOBase] = {}
        #: The first exception that the reference raised.
        self.failure: BaseException | None = None

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        for connection, reader in self._readers.items():
            reader.close()
            connection.close()
        self._listener.close()
        self._folder.cleanup()

    @property
    def program(self) -> list[str]:
        """What a specification names as its reference."""
        return [sys.executable, "-I", "-S", str(Path(__file__).with_name("_relay.py")), str(self.path)]

    def fileno(self) -> int:
        """Readable if somebody wants to connect."""
        return self._listener.fileno()

    def accept(self) -> socket.socket:
        """Takes one who wants to ask."""
        connection, _ = self._listener.accept()
        # Unbuffered: what is left in a buffer would not be seen by a selector.
        self._readers[connection] = connection.makefile("rb", buffering=0)
        return connection

    def connection(self, seconds: float) -> socket.socket | None:
        """Takes one who does not ask, if one comes in time."""
        ready, _, _ = select.select([self._listener], [], [], seconds)
        return self._listener.accept()[0] if ready else None

    def answer(self, connection: socket.socket) -> bool:
        """Answers one question; false if the other side has gone."""
        reader = self._readers[connection]
        try:
            line = _line(reader)
            if not line:
                return self._forget(connection)
            question = json.loads(line)
            connection.sendall(self.answered(question, reader))
        except (BrokenPipeError, ConnectionResetError, EOFError):
            return self._forget(connection)
        return True

    def answered(self, question: dict[str, Any], reader: io.RawIOBase) -> bytes:
        """The answer to a question, whose elements are still to be read."""
        call = _call(question, reader)
        try:
            return _answer(question, self._reference(call))
        except Exception as error:
            self.failure = self.failure or error
            return json.dumps({"error": told(error)}).encode() + b"\n"

    def _forget(self, connection: socket.socket) -> bool:
        self._readers.pop(connection).close()
        connection.close()
        return False


def _line(reader: io.RawIOBase) -> bytes:
    """A line, byte by byte: no byte behind it may be taken."""
    line = bytearray()
    while piece := reader.read(1) or b"":
        line += piece
        if piece == b"\n":
            break
    return bytes(line)


def exactly(reader: io.RawIOBase, count: int) -> bytearray:
    read = bytearray(count)
    view = memoryview(read)
    while view:
        got = reader.readinto(view)
        if not got:
            raise EOFError
        view = view[got:]
    return read


def _call(question: dict[str, Any], reader: io.RawIOBase) -> Call:
    inputs: dict[str, list[npt.NDArray[np.float64]]] = {}
    for tensor in question["inputs"]:
        shape = tuple(tensor["shape"])
        values = np.frombuffer(exactly(reader, 8 * math.prod(shape)), dtype="<f8").reshape(shape)
        # A reference that changes its inputs would change what it is compared by.
        values.flags.writeable = False
        inputs.setdefault(tensor["name"], []).append(values)
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for tensor in question["outputs"]:
        shapes.setdefault(tensor["name"], []).append(tuple(tensor["shape"]))
    return Call(question["task"], question["dtype"], question["world"], dict(question["parameters"]), inputs, shapes)


def _answer(question: dict[str, Any], outputs: Outputs) -> bytes:
    """The answer's line and the elements behind it.

    Raises:
        ReferenceFailed: An output is missing, unknown, or of another shape.
    """
    if not isinstance(outputs, Mapping):
        raise ReferenceFailed(f"the reference returned {type(outputs).__name__}, expected a dict of outputs")
    names = list(dict.fromkeys(tensor["name"] for tensor in question["outputs"]))
    unknown = [name for name in outputs if name not in names]
    if unknown:
        raise ReferenceFailed(f"the reference returned `{unknown[0]}`, which is no output of {question['task']}; outputs are {', '.join(names)}")
    header, body = [], []
    for tensor in question["outputs"]:
        name, rank, shape = tensor["name"], tensor["rank"], tuple(tensor["shape"])
        if name not in outputs:
            raise ReferenceFailed(f"the reference returned no `{name}`")
        output = outputs[name]
        if isinstance(output, list):
            if len(output) != question["world"]:
                raise ReferenceFailed(f"the reference returned {len(output)} arrays of `{name}`, expected one for each of {question['world']} ranks")
            output = output[rank]
        values, *magnitudes = output if isinstance(output, tuple) else (output,)
        for what in (values, *magnitudes):
            array = np.asarray(what, dtype="<f8")
            if array.shape != shape:
                raise ReferenceFailed(f"the reference returned `{name}` of shape {list(array.shape)} on rank {rank}, expected {list(shape)}")
            body.append(array.tobytes())
        header.append({"name": name, "rank": rank, "elements": math.prod(shape), "magnitudes": bool(magnitudes)})
    return json.dumps({"outputs": header}).encode() + b"\n" + b"".join(body)


def told(error: BaseException) -> str:
    """The exception in a line, with the innermost place of the reference."""
    said = f"{type(error).__name__}: {error}".splitlines()[0] if not isinstance(error, ReferenceFailed) else str(error)
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((frame for frame in reversed(frames) if frame.filename != __file__), None)
    return said if frame is None else f"{said} ({Path(frame.filename).name}:{frame.lineno})"
