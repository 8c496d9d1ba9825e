"""What can go wrong besides findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._report import Report


class PassmusterError(Exception):
    """The root of this package's exceptions."""


class UsageError(PassmusterError):
    """A task, a specification or an option is wrong. The message names the place and what is allowed."""


class MachineCannot(PassmusterError):
    """This machine cannot run it: it has no GPU, or a library is missing."""


class CommandFailed(PassmusterError):
    """The command itself failed, and said nothing about the kernel."""

    def __init__(self, message: str, printed: str = "") -> None:
        last = "\n".join(printed.strip().splitlines()[-5:])
        super().__init__(f"{message}; its last lines:\n{last}" if last else message)


class CouldNotJudge(PassmusterError):
    """A case could not be judged, and that is not the kernel's fault: a reference gave NaN, or two answers to one call. `report` has all cases."""

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message)
        self.report = report


class ReferenceFailed(PassmusterError):
    """A reference raised an exception, or gave something that is no answer. The cause is the exception that it raised, if it did."""


class Findings(PassmusterError, AssertionError):
    """Something that was tested is wrong. `report` has all of it.

    An `AssertionError` too, so that test runners count it as a failure.
    """

    def __init__(self, report: Report) -> None:
        super().__init__(report.text)
        self.report = report


class Interrupted(KeyboardInterrupt):
    """The user interrupted a run. `report` has what was judged until then; None if nothing was."""

    def __init__(self, report: Report | None) -> None:
        super().__init__("interrupted")
        self.report = report
