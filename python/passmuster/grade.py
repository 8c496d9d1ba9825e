"""A referee for candidates: kernels that somebody else, or a model, wrote for a task of yours.

    python -m passmuster.grade FOLDER

The folder has `task.py`, which is yours: `task`, `worlds`, and if you like `dtypes`, `buffers` and `contract`, as for `passmuster.triton`. Every other file `NAME.py`
in it is a candidate: a module with a launch function `launch`.

A candidate's Python runs in a process of its own, with limits on time, memory, processes and files, and without a network. What it launches is then judged on the
emulator: results, races, hangs, memory, and what carries over from call to call.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Mapping, Sequence

from ._errors import Interrupted, PassmusterError, ReferenceFailed, UsageError
from ._report import Report
from ._sandbox import Limits, Stopped, missing, run
from ._spec import Buffer
from ._task import DType, Task
from ._triton import Launched, TritonKernel

#: Kinds of findings, by the properties that show them (docs/reference/checks.md).
KINDS: Mapping[str, str] = {
    "reference": "numerics",
    "ranks_agree": "numerics",
    "repeat": "state",
    "graph": "state",
    "races": "races",
    "finishes": "hang",
    "memory": "memory",
    "canaries": "memory",
    "untouched": "memory",
    "input_unchanged": "memory",
}

#: Verdicts on a candidate.
RIGHT, WRONG, REFUSED, UNJUDGED = "right", "wrong", "refused", "unjudged"


@dataclass
class Grade:
    """What became of a candidate."""

    candidate: str
    #: `right`; `wrong`: something was found; `refused`: it cannot be run (it does not compile, or went over a limit); `unjudged`: it says nothing about the
    #: candidate, as the machine or time ended it.
    verdict: str
    #: What was found: `numerics`, `state` (right at first, and not in a later call), `races`, `memory`, `hang`, `crash`.
    kinds: list[str] = field(default_factory=list)
    #: The first finding, or why it was refused, in a line.
    why: str = ""
    #: The case that shows it, as `--replay` takes it.
    case: str = ""
    #: Cases that were judged, and under how many schedules each.
    cases: int = 0
    schedules: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Set:
    """A task that candidates are for."""

    task: Task
    worlds: Sequence[int]
    dtypes: Sequence[DType] = ("bf16",)
    buffers: Mapping[str, Buffer] = field(default_factory=dict)
    contract: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def read(folder: Path) -> Set:
        """Reads `task.py` of a folder, which is trusted."""
        file = folder / "task.py"
        if not file.is_file():
            raise UsageError(f"{file}: there is no such file; it says what the candidates are for")
        module = _module(file)
        for name in ("task", "worlds"):
            if not hasattr(module, name):
                raise UsageError(f"{file} has no `{name}`")
        keys = ("task", "worlds", "dtypes", "buffers", "contract")
        return Set(**{key: getattr(module, key) for key in keys if hasattr(module, key)})


class _Recorded(TritonKernel):
    """Launches that somebody else's launch function made, in another process."""

    def __init__(self, name: str, of: Set, launches: Mapping[str, list[Launched]]) -> None:
        self._launches = launches

        def launch() -> None:
            """The launch function itself stays where it is."""

        super().__init__(launch, of.task, of.worlds, of.dtypes, of.buffers, of.contract, name)

    def _launched(self, dtype: DType, world: int, rank: int, parameters: Mapping[str, int]) -> list[Launched]:
        return self._launches.get(_key(dtype, world, rank, parameters), [])


def _key(dtype: str, world: int, rank: int, parameters: Mapping[str, int]) -> str:
    return json.dumps([dtype, world, rank, dict(parameters)])


def _module(file: Path) -> Any:
    """A file's module, with the files beside it to import from."""
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(f"passmuster_candidate_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _record(folder: Path, file: Path, out: Path) -> None:
    """In the sandbox: calls a candidate's launch function for every rank and size, and writes down what it launches."""
    of = Set.read(folder)
    module = _module(file)
    launch = getattr(module, "launch", None)
    if not callable(launch):
        raise UsageError(f"{file.name} has no function `launch`")
    kernel = TritonKernel(launch, of.task, of.worlds, of.dtypes, of.buffers, of.contract, None)
    launches = {
        _key(dtype, world, rank, parameters): [asdict(launched) for launched in kernel._launched(dtype, world, rank, parameters)]
        for world, rank, parameters in kernel._calls()
        for dtype in kernel.dtypes
    }
    out.write_text(json.dumps(launches), encoding="utf-8")


def _recorded(folder: Path, file: Path, of: Set, limits: Limits) -> _Recorded:
    """What a candidate launches.

    Raises:
        Stopped: It went over a limit, or failed.
    """
    with tempfile.TemporaryDirectory(prefix="passmuster-") as scratch:
        out = Path(scratch) / "launches.json"
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": scratch,
            "TMPDIR": scratch,
            "TRITON_CACHE_DIR": str(Path(scratch) / "triton"),
            "TRITON_DEFAULT_FP_FUSION": "0",
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        run(["-m", "passmuster.grade", "--record", str(file), str(out), str(folder)], Path(scratch), limits, environment)
        launches = _launches(out)
    name = "".join(letter if letter.isalnum() else "_" for letter in file.stem.lower()).strip("_") or "candidate"
    return _Recorded(name if name[0].isalpha() else f"c_{name}", of, launches)


def _launches(out: Path) -> dict[str, list[Launched]]:
    """What the sandbox wrote down. Nothing in it is trusted: launches name no file, and their arguments are checked as those of any specification.

    Raises:
        Stopped: It is no list of launches.
    """
    tuples = ("grid", "cluster", "arguments")
    try:
        told = json.loads(out.read_text(encoding="utf-8"))
        made: Any = Launched
        launches: dict[str, list[Launched]] = {
            key: [made(**{name: tuple(value) if name in tuples else value for name, value in launched.items()}) for launched in of_key]
            for key, of_key in told.items()
        }
        for launched in (launched for of_key in launches.values() for launched in of_key):
            if not re.fullmatch(r"[A-Za-z_$][A-Za-z0-9_$]{0,99}", launched.entry) or not isinstance(launched.ptx, str):
                raise ValueError(f"a kernel called {launched.entry!r}")
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise Stopped(f"what it launches cannot be read: {error}") from None
    return launches


def grade(folder: str | Path, *, only: str = "", query: str = "smoke", limits: Limits | None = None, **options: Any) -> list[Grade]:
    """Judges the candidates of a folder, in the order of their names.

    Args:
        folder: Where `task.py` and the candidates are.
        only: Part of the names of those that are judged.
        query: A list of cases, or a pattern.
        limits: What a candidate's own process may take.
        options: Options of `passmuster validate`.
    """
    return list(_grades(Path(folder).resolve(), only, query, limits or Limits(), options))


def _candidates(folder: Path, only: str) -> list[Path]:
    found = [file for file in sorted(folder.glob("*.py")) if file.name != "task.py" and not file.name.startswith("_") and only in file.stem]
    if not found:
        raise UsageError(f"{folder} has no candidate{f' whose name has `{only}`' if only else ''}: files NAME.py beside task.py")
    return found


def _grades(folder: Path, only: str, query: str, limits: Limits, options: Mapping[str, Any]) -> Any:
    of = Set.read(folder)
    for file in _candidates(folder, only):
        start = time.monotonic()
        graded = _grade(folder, file, of, query, limits, options)
        graded.seconds = round(time.monotonic() - start, 1)
        yield graded


def _grade(folder: Path, file: Path, of: Set, query: str, limits: Limits, options: Mapping[str, Any]) -> Grade:
    try:
        report = _recorded(folder, file, of, limits).validate(query, progress=False, **options)
    except Stopped as error:
        return Grade(file.stem, REFUSED, why=str(error).splitlines()[-1] if "\n" in str(error) else str(error))
    except UsageError as error:
        return Grade(file.stem, REFUSED, why=str(error).splitlines()[0])
    except (ReferenceFailed, Interrupted):
        # Of the task, and of who runs this: nothing that a candidate did.
        raise
    except PassmusterError as error:
        return Grade(file.stem, UNJUDGED, why=str(error).splitlines()[0])
    return _of_report(file.stem, report)


def _of_report(name: str, report: Report) -> Grade:
    schedules = report.record.get("selection", {}).get("schedules", 1)
    graded = Grade(name, RIGHT, cases=len(report), schedules=schedules)
    kinds: dict[str, None] = {}
    # Right in every first call, and then not: something is left behind by it.
    only_later = all(finding.call for finding in report.findings if finding.property == "reference")
    for case in report.failed:
        if case.status in ("hang", "crash"):
            kinds[case.status] = None
        for finding in case.findings:
            kind = "state" if finding.property == "reference" and only_later else KINDS.get(finding.property, finding.property)
            kinds[kind] = None
    if kinds or report.failed:
        first = report.failed[0]
        graded.verdict, graded.kinds, graded.case = WRONG, list(kinds), first.token
        graded.why = f"{first.findings[0].property}: {first.findings[0].summary}" if first.findings else first.reason
    elif not report:
        graded.verdict = UNJUDGED
        graded.why = next((case.reason for case in report if not case.passed), "no case was judged")
    return graded


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Exit status: 0 all are right, 1 one is not, 2 wrong usage, 4 one could not be judged."""
    parser = argparse.ArgumentParser(prog="python -m passmuster.grade", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where task.py and the candidates are")
    parser.add_argument("-k", dest="only", default="", metavar="TEXT", help="only candidates whose names have TEXT")
    parser.add_argument("--list", default="smoke", dest="query", metavar="QUERY", help="cases: smoke (the default), merge, or a pattern")
    parser.add_argument("--schedules", type=int, metavar="N", help="run each case under N schedules (default: 4)")
    parser.add_argument("--seconds", type=float, default=60.0, help="what a candidate's own process may take (default: 60)")
    parser.add_argument("--memory", type=int, default=4096, metavar="MIB", help="and of memory (default: 4096)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the grades")
    parser.add_argument("--record", nargs=2, type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    try:
        if asked.record:
            _record(asked.folder, *asked.record)
            return 0
        for lacks in missing():
            print(f"not limited here: {lacks}", file=sys.stderr)
        limits = Limits(seconds=asked.seconds, memory=asked.memory << 20)
        options = {"schedules": asked.schedules} if asked.schedules else {}
        grades = []
        for graded in _grades(asked.folder.resolve(), asked.only, asked.query, limits, options):
            grades.append(graded)
            print(f"{graded.verdict:8}  {graded.candidate}  {','.join(graded.kinds)}  {graded.why[:200]}".rstrip(), flush=True)
    except PassmusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if asked.json:
        told = {"folder": str(asked.folder), "not_limited": list(missing()), "grades": [asdict(graded) for graded in grades]}
        asked.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    if any(graded.verdict in (WRONG, REFUSED) for graded in grades):
        return 1
    return 4 if any(graded.verdict == UNJUDGED for graded in grades) else 0


if __name__ == "__main__":
    sys.exit(main())
