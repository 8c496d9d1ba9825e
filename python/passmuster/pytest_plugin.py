"""pytest collects what can be judged by itself: every `Spec` and kernel of `passmuster.triton` in a test module is as many tests as its list has cases.

    test_mine.py::all_reduce_norm[bf16-w4-tokens9+1+3-hidden64]

Everything that pytest selects and reports by works on them: `-k w4`, `--lf`, `-x`, `-n 2`, JUnit, `-m passmuster`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Iterator

import pytest

from ._errors import Findings, MachineCannot, PassmusterError
from ._report import Case, Report
from ._spec import Judged

#: The most findings of a case that are shown.
MOST_FINDINGS = 4

#: What a case of these statuses says is no verdict, so its test is skipped with the reason.
SKIPPED = ("not_supported",)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("passmuster")
    group.addoption(
        "--passmuster-list", default="smoke", metavar="QUERY", help="a list (smoke, merge, faults) or a pattern of cases (default: smoke)"
    )
    group.addoption(
        "--passmuster-replay", metavar="TOKEN", help="run exactly this case, under the schedule behind its @, as reports print it"
    )
    group.addoption("--passmuster-schedules", type=int, metavar="N", help="run each case under N schedules (default: 4)")
    group.addoption(
        "--passmuster-profile", choices=["hopper", "ptx"], help="what races are judged by: how Hopper behaves (default), or the PTX ISA alone"
    )
    group.addoption(
        "--passmuster-require", action="store_true", help="fail cases that this machine cannot run or that are not supported; do not skip them"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "passmuster: cases of multi-GPU kernels, judged on the emulator")


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str, obj: object) -> pytest.Collector | None:
    if isinstance(obj, Judged):
        kernel: pytest.Collector = Kernel.from_parent(collector, name=name, kernel=obj)
        return kernel
    return None


class Kernel(pytest.Collector):
    """A kernel: it is compiled and asked for its cases when pytest collects."""

    def __init__(self, *, kernel: Judged, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kernel = kernel
        self.add_marker(pytest.mark.passmuster)

    def collect(self) -> Iterator[CaseItem]:
        option = self.config.option
        if option.passmuster_replay:
            token = option.passmuster_replay
            if self.kernel.name in token.split(":")[0].split("/"):
                yield self._item(token.rsplit("@", 1)[0], token)
            return
        for case in self.kernel.cases(option.passmuster_list):
            yield self._item(case, case)

    def _item(self, case: str, query: str) -> CaseItem:
        name = f"{self.name}[{shortened(case)}]"
        # Without an id of its own, `--lf` would not find it again.
        nodeid = f"{self.parent.nodeid}::{name}" if self.parent else name
        item: CaseItem = CaseItem.from_parent(self, name=name, nodeid=nodeid, case=case, query=query)
        return item

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:  # type: ignore[override]
        # What is wrong with a specification needs no traceback of ours.
        if isinstance(excinfo.value, PassmusterError):
            return f"{self.name}: {excinfo.value}"
        return super().repr_failure(excinfo)


class CaseItem(pytest.Item):
    """One case."""

    parent: Kernel

    def __init__(self, *, case: str, query: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.case, self.query = case, query
        self.user_properties.append(("case", case))

    def runtest(self) -> None:
        option = self.config.option
        options = {"schedules": option.passmuster_schedules, "profile": option.passmuster_profile}
        try:
            report = self.parent.kernel.validate(replay=self.query, progress=False, **options)
        except MachineCannot as error:
            if option.passmuster_require:
                raise
            raise pytest.skip.Exception(str(error)) from None
        judged = report.cases[0]
        if judged.status in SKIPPED and not option.passmuster_require:
            pytest.skip(judged.reason)
        if not judged.passed:
            raise Findings(report)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, Findings):
            return self._told(excinfo.value.report)
        if isinstance(excinfo.value, PassmusterError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def _told(self, report: Report) -> str:
        case: Case = report.cases[0]
        said = [str(finding) for finding in case.findings[:MOST_FINDINGS]]
        more = len(case.findings) - len(said)
        if more > 0:
            said.append(f"and {more} more findings")
        start = self.config.invocation_params.dir
        path = self.path.relative_to(start) if self.path.is_relative_to(start) else self.path
        repro = f"repro: pytest {path} --passmuster-replay '{case.token}'"
        # A reason repeats the first finding.
        reason = "" if case.findings else case.reason
        return "\n".join(filter(None, [f"{case.status} {case.id}", reason, *said, repro]))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        code = getattr(getattr(self.parent.kernel, "launch", None), "__code__", None)
        line = None if code is None else code.co_firstlineno - 1
        return self.path, line, self.name


def shortened(case: str) -> str:
    """A case id as pytest's `-k` takes it: without task and algorithm, and without `=`."""
    head, *fields = case.split(":")
    dtype = fields[0].split(",")[0] if fields else head
    return "-".join([dtype, *(field.replace("inputs=", "").replace("=", "") for field in fields[1:])])
