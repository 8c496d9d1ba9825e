"""Runs somebody else's Python: with limits on time, memory, processes and files, and without a network.

What the kernel lets a user do is done, and what it does not is said (`Limits.missing`): landlock keeps writes in a folder, namespaces take the network away and
end all processes with the first, resource limits bound memory and files, and who starts the process watches its clock and counts its processes, which resource
limits do not bind for root.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Mapping, Sequence

#: System calls of landlock, the same on every architecture since Linux 5.13.
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446

#: Those of landlock's rights, in its first version, that change files.
WRITES = sum(1 << bit for bit in (1, *range(4, 13)))

#: prctl's number for "no more privileges".
NO_NEW_PRIVILEGES = 38

#: Seconds between two looks at how many processes there are.
EVERY = 0.05


@dataclass(frozen=True)
class Limits:
    """What a process may take."""

    #: Seconds of wall time.
    seconds: float = 60.0
    #: Bytes of address space of each process.
    memory: int = 4 << 30
    #: Processes at once.
    processes: int = 32
    #: Bytes of a file.
    file: int = 64 << 20
    #: What this machine cannot limit, for people.
    missing: tuple[str, ...] = field(default_factory=lambda: missing())


class Stopped(Exception):
    """A process was stopped at a limit, or ended by itself in a way that is no success."""


def missing() -> tuple[str, ...]:
    """What this machine cannot limit."""
    lacks = []
    if _landlock_version() < 1:
        lacks.append("files: this kernel has no landlock, so it may write where you may")
    if not _namespaces():
        lacks.append("network, and processes that outlive the first: unshare is refused here")
    return tuple(lacks)


def run(arguments: Sequence[str], folder: Path, limits: Limits, environment: Mapping[str, str]) -> str:
    """Runs a Python program that may write in a folder only, and returns what it printed.

    Raises:
        Stopped: It took more than it may, or failed. The message has its last lines.
    """
    words = [*_namespaces(), sys.executable, str(Path(__file__)), str(folder), str(limits.memory), str(limits.file), *arguments]
    with subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env=dict(environment),
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        printed, end = bytearray(), time.monotonic() + limits.seconds
        try:
            while process.poll() is None:
                printed += process.stdout.read() or b""
                del printed[: -(1 << 16)]
                if time.monotonic() > end:
                    raise Stopped(f"it took more than {limits.seconds:g} s")
                if len(_descendants(process.pid)) > limits.processes:
                    raise Stopped(f"it started more than {limits.processes} processes")
                time.sleep(EVERY)
            printed += process.stdout.read() or b""
        finally:
            _kill(process)
    text = printed.decode(errors="replace")
    if process.returncode != 0:
        last = "\n".join(text.strip().splitlines()[-5:])
        how = f"signal {-process.returncode}" if process.returncode < 0 else f"exit status {process.returncode}"
        raise Stopped(f"it ended with {how}: {last or 'and said nothing'}")
    return text


def _namespaces() -> list[str]:
    """The words that start a program without a network, as the first process of a namespace: with it, all end."""
    program = shutil.which("unshare")
    if program is None:
        return []
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    words = [program, *user, "--net", "--pid", "--fork", "--kill-child"]
    tried = subprocess.run([*words, "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return words if tried.returncode == 0 else []


def _children() -> dict[int, list[int]]:
    """For each process of this machine, those that it started."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = Path("/proc", entry, "stat").read_text()
        except OSError:
            continue
        parent = int(stat.rpartition(")")[2].split()[1])
        children.setdefault(parent, []).append(int(entry))
    return children


def _descendants(first: int) -> list[int]:
    """The processes that a process has started, directly or not."""
    children, found, left = _children(), [], [first]
    while left:
        started = children.get(left.pop(), [])
        found += started
        left += started
    return found


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Ends a process, those that it started, and all of its session; the first of a namespace takes all others with it."""
    started = _descendants(process.pid)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for pid in started:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _landlock_version() -> int:
    """The version of landlock that the kernel has; 0 if it has none."""
    if platform.system() != "Linux":
        return 0
    version: int = ctypes.CDLL(None, use_errno=True).syscall(CREATE_RULESET, None, 0, 1)
    return max(version, 0)


class _Ruleset(ctypes.Structure):
    _fields_ = [("handled", ctypes.c_uint64)]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def _keep_writes_in(folder: str) -> None:
    """From now on, this process and those that it starts may change files in one folder only."""
    if _landlock_version() < 1:
        return
    library = ctypes.CDLL(None, use_errno=True)
    # To move a file to another folder is a right of its own since the second version, to cut it off by its name since the third.
    version = _landlock_version()
    writes = WRITES | (1 << 13 if version >= 2 else 0) | (1 << 14 if version >= 3 else 0)
    ruleset = _Ruleset(writes)
    number = library.syscall(CREATE_RULESET, ctypes.byref(ruleset), ctypes.sizeof(ruleset), 0)
    for place in (folder, "/dev/null"):
        opened = os.open(place, os.O_PATH | os.O_CLOEXEC)
        # Of a file, only what is of files may be said.
        allowed = writes if os.path.isdir(place) else writes & (1 << 1 | 1 << 14)
        rule = _Beneath(allowed, opened)
        if library.syscall(ADD_RULE, number, 1, ctypes.byref(rule), 0) != 0:
            raise OSError(ctypes.get_errno(), f"landlock: {place}")
        os.close(opened)
    library.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if library.syscall(RESTRICT_SELF, number, 0) != 0:
        raise OSError(ctypes.get_errno(), "landlock")
    os.close(number)


def _main() -> None:
    """Limits this process, and becomes the program."""
    folder, memory, file, *arguments = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(file), int(file)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _keep_writes_in(folder)
    os.execv(sys.executable, [sys.executable, *arguments])


if __name__ == "__main__":
    _main()
