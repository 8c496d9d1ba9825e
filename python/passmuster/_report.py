"""What a run found: the record of docs/reference/record-schema.md, as objects."""

from __future__ import annotations

import html
import json
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Iterator, Mapping

from ._errors import Findings

#: Statuses that are findings of the kernel.
FINDINGS = ("fail", "hang", "crash")


@dataclass(frozen=True)
class Finding:
    """A property of a case that does not hold."""

    #: The property: `reference`, `repeat`, `races`, `canaries` and so on.
    property: str
    #: One line.
    summary: str
    #: The report for people, with source lines; empty if the summary says it all.
    details: str = ""
    #: Which call of the case, counted from 0.
    call: int | None = None
    #: The first wrong element: `rank`, `element`, `bit`.
    place: Mapping[str, int] | None = None

    def __str__(self) -> str:
        return f"{self.property}: {self.summary}" + (f"\n{self.details}" if self.details else "")


@dataclass(frozen=True)
class Case:
    """One point of the test space, and what became of it."""

    #: The case's id. It is a query that selects just this case.
    id: str
    #: `pass`, `fail`, `hang`, `crash`, `not_supported`, `inconclusive`, ... (docs/reference/record-schema.md).
    status: str
    #: Why it did not pass; empty if it did.
    reason: str
    findings: tuple[Finding, ...]
    #: Wall time, of all schedules.
    milliseconds: float
    #: Properties that were checked and hold.
    held: tuple[str, ...] = ()
    #: The schedule under which something was found.
    schedule: str | None = None

    @property
    def passed(self) -> bool:
        return self.status == "pass"

    @property
    def token(self) -> str:
        """A query that repeats exactly the run that found something."""
        return f"{self.id}@{self.schedule}" if self.schedule else self.id

    def __str__(self) -> str:
        return "\n".join([f"{self.status} {self.id}", *filter(None, [self.reason]), *map(str, self.findings)])


class Report:
    """The verdicts of a run. Iterates over its cases; true if all passed."""

    def __init__(self, record: Mapping[str, Any], text: str, exit_status: int) -> None:
        #: The whole record (docs/reference/record-schema.md).
        self.record = record
        #: What the command prints for people.
        self.text = text
        #: The command's exit status: 0 all passed, 1 a finding, 4 inconclusive.
        self.exit_status = exit_status

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """All cases, in the order of the list."""
        return tuple(_case(row, self.record["shared"]) for row in self.record["cases"])

    @property
    def failed(self) -> tuple[Case, ...]:
        """The cases with a finding."""
        return tuple(case for case in self.cases if case.status in FINDINGS)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings of all cases."""
        return tuple(finding for case in self.cases for finding in case.findings)

    @property
    def partial(self) -> bool:
        """Whether the run was interrupted."""
        return "partial" in self.record

    def __bool__(self) -> bool:
        return self.exit_status == 0

    def __iter__(self) -> Iterator[Case]:
        return iter(self.cases)

    def __len__(self) -> int:
        return len(self.cases)

    def raise_on_findings(self) -> None:
        """Raises `Findings` unless every case passed: an inconclusive case is no pass."""
        if not self:
            raise Findings(self)

    def to_json(self, path: str | Path | None = None) -> str:
        """The record as JSON, also written to a file if one is named."""
        text = json.dumps(self.record, indent=1, ensure_ascii=False)
        if path is not None:
            Path(path).write_text(text + "\n", encoding="utf-8")
        return text

    def __repr__(self) -> str:
        counts = Counter(case.status for case in self.cases)
        return f"<Report: {', '.join(f'{count} {status}' for status, count in counts.items()) or 'no cases'}>"

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        """A table for notebooks: the cases that did not pass in full, the others as a count."""
        counts = Counter(case.status for case in self.cases)
        said = ", ".join(f"{count} {html.escape(status.replace('_', ' '))}" for status, count in counts.items())
        rows = "".join(
            f"<tr><td>{html.escape(case.status)}</td><td><code>{html.escape(case.id)}</code></td>"
            f'<td><pre style="text-align:left">{html.escape(chr(10).join(map(str, case.findings)) or case.reason)}</pre></td></tr>'
            for case in self.cases
            if not case.passed
        )
        table = f"<table><tr><th>status</th><th>case</th><th>finding</th></tr>{rows}</table>" if rows else ""
        return f"<p><b>{said or 'no cases'}</b></p>{table}"


def _case(row: list[Any], shared: list[Mapping[str, Any]]) -> Case:
    identity, of, _, milliseconds, *own = row
    told = {**shared[of], **(own[0] if own else {})}
    findings = tuple(
        Finding(found["property"], found["summary"], found.get("details", ""), found.get("call"), found.get("place"))
        for found in told.get("findings", ())
    )
    return Case(
        identity, told["status"], told.get("reason", ""), findings, milliseconds, tuple(told.get("held", ())), told.get("schedule")
    )
