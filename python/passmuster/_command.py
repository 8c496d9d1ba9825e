"""The command `passmuster`: where it is, and one run of it in a process of its own.

The emulator runs there and not in the interpreter: what it panics of, runs out of or is killed by ends that process, and becomes an exception here.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Sequence

from ._errors import CommandFailed, MachineCannot, UsageError
from ._reference import Server

#: The environment variable that names a command to use in place of the one that was installed with the package.
VARIABLE = "PASSMUSTER"

#: Exit statuses (docs/reference/exit-statuses.md).
USAGE = 2
CANNOT_RUN = 3

#: Seconds that a command has after an interrupt to write what it has judged.
GRACE = 10.0


def find() -> Path:
    """The path of the command.

    It is the one that `PASSMUSTER` names, or the one that was installed with this package, or the first on `PATH`.

    Raises:
        FileNotFoundError: There is none. The message names every place that was looked at.
    """
    named = os.environ.get(VARIABLE)
    if named:
        if not os.access(named, os.X_OK):
            raise FileNotFoundError(f"{VARIABLE}={named} is not an executable file")
        return Path(named)
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user")]
    for folder in folders:
        command = Path(folder) / "passmuster"
        if _is_native(command):
            return command
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        command = Path(folder) / "passmuster"
        if folder and _is_native(command):
            return command
    raise FileNotFoundError(
        f"there is no command `passmuster` in {' or '.join(folders)}, nor on PATH: "
        f"install the package (`pip install ./python`), or set {VARIABLE} to the path of one"
    )


def _is_native(command: Path) -> bool:
    """Whether this is a program and not a script that would start Python again."""
    try:
        with command.open("rb") as file:
            return os.access(command, os.X_OK) and file.read(2) != b"#!"
    except OSError:
        return False


@dataclass
class Ended:
    """What a run of the command came to."""

    status: int
    stdout: str
    stderr: str
    interrupted: bool = False

    def raise_for_status(self) -> None:
        """Raises what an exit status says that is no verdict.

        Raises:
            UsageError: Exit status 2, with what the command said.
            MachineCannot: Exit status 3.
        """
        said = self.stderr.strip() or self.stdout.strip() or "the command failed and said nothing"
        if self.status == USAGE:
            raise UsageError(said)
        if self.status == CANNOT_RUN:
            raise MachineCannot(said.splitlines()[-1])


def run(arguments: Sequence[str], server: Server | None = None, progress: bool = False) -> Ended:
    """Runs the command until it ends, and answers questions about references in this thread meanwhile.

    With `progress` its progress and notes go to this process's error stream.

    An interrupt is passed on, and the command then has ten seconds to write what it has judged.

    Raises:
        CommandFailed: It was killed by a signal that nobody here sent.
    """
    with subprocess.Popen(
        [str(find()), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=None if progress else subprocess.PIPE,
        # Interrupts of the terminal come to this process alone, which passes them on.
        start_new_session=True,
    ) as process:
        try:
            texts = _attend(process, server)
            interrupted = False
        except KeyboardInterrupt:
            texts = _interrupt(process)
            interrupted = True
        except BaseException:
            _stop(process)
            raise
        status = process.wait()
    ended = Ended(status, *texts, interrupted=interrupted)
    if status < 0 and not interrupted:
        raise CommandFailed(f"`passmuster {arguments[0]}` was killed by {signal.Signals(-status).name}", ended.stderr)
    return ended


def _attend(process: subprocess.Popen[bytes], server: Server | None) -> tuple[str, str]:
    """Reads what the process prints and answers what it asks, until it has closed its output."""
    texts: dict[int, bytearray] = {}
    with selectors.DefaultSelector() as selector:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                texts[stream.fileno()] = bytearray()
                selector.register(stream, selectors.EVENT_READ)
        if server is not None:
            selector.register(server, selectors.EVENT_READ)
        open_streams = len(texts)
        while open_streams:
            for key, _ in selector.select():
                if key.fd in texts:
                    read = os.read(key.fd, 1 << 16)
                    texts[key.fd] += read
                    if not read:
                        selector.unregister(key.fileobj)
                        open_streams -= 1
                elif server is not None and key.fileobj is server:
                    selector.register(server.accept(), selectors.EVENT_READ)
                elif server is not None and isinstance(key.fileobj, socket.socket) and not server.answer(key.fileobj):
                    selector.unregister(key.fileobj)
    stdout, stderr = (texts[stream.fileno()] if stream else b"" for stream in (process.stdout, process.stderr))
    return stdout.decode(errors="replace"), stderr.decode(errors="replace")


def _interrupt(process: subprocess.Popen[bytes]) -> tuple[str, str]:
    """Ends a run that the user has interrupted, and returns what it still prints."""
    process.send_signal(signal.SIGINT)
    try:
        stdout, stderr = process.communicate(timeout=GRACE)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        _stop(process)
        return "", ""
    return (stdout or b"").decode(errors="replace"), (stderr or b"").decode(errors="replace")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Kills the process and all that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def main() -> None:
    """`python -m passmuster`: becomes the command."""
    command = str(find())
    os.execv(command, [command, *sys.argv[1:]])
