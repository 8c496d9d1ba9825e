"""Callables are judged by what their calls return and leave, with a verdict on every rank."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import callables
import numpy as np
import passmuster as pm
import pytest
from passmuster import _check

WORLD = 4


@pytest.mark.parametrize("fn", [callables.right, callables.returns])
def test_right_callables_pass_on_every_rank(fn: Any, tmp_path: Path) -> None:
    got = callables.judged(fn, WORLD, tmp_path)
    assert list(sorted(got)) == list(range(WORLD))
    for report in got.values():
        assert report and len(report) >= 4
        assert report.record == got[0].record
    assert any("skew=" in case.id for case in got[0]) and any("+" in case.id for case in got[0])
    assert {"reference", "repeat", "ranks_agree", "untouched", "input_unchanged", "canaries"} <= set(got[0].cases[-1].held)


@pytest.mark.parametrize(
    ("fn", "status", "kind", "said"),
    [
        (callables.forgets_a_rank, "fail", "reference", "elements of output are wrong"),
        (callables.writes_behind, "fail", "canaries", "rank 1"),
        (callables.writes_what_was_larger, "fail", "untouched", "output"),
        (callables.changes_its_input, "fail", "input_unchanged", "input"),
        (callables.adds_in_another_order_each_time, "fail", "repeat", "output"),
        (callables.changes_the_type, "fail", "memory", "with dtype float64, expected float32"),
        (callables.raises, "crash", "", "rank 1: ValueError: no such communicator (callables.py:"),
        (callables.never_comes, "hang", "", "rank 1: at test_check"),
        (callables.dies, "crash", "", "rank 1: its process has ended"),
    ],
)
def test_bugs_are_named(fn: Any, status: str, kind: str, said: str, tmp_path: Path) -> None:
    got = callables.judged(fn, WORLD, tmp_path, deadline=2.0)
    report = got[0]
    assert isinstance(report, pm.Report), report
    failed = report.failed[0]
    assert failed.status == status
    if kind:
        assert kind in {finding.property for finding in report.findings}
    text = failed.reason + "".join(map(str, failed.findings))
    assert said.replace("test_check", "callables.py") in text
    assert not report
    # Whoever can still say something has the same report.
    assert all(other.record == report.record for other in got.values() if isinstance(other, pm.Report))
    assert len(got) >= WORLD - 1


def test_a_reference_that_fails_ends_it_on_every_rank(tmp_path: Path) -> None:
    got = callables.judged(callables.right, 2, tmp_path, task=callables.task(lambda call: 1 / 0))
    assert got[0].startswith("ReferenceFailed: ") and "division by zero" in got[0]
    assert got[1].startswith("UsageError: rank 0 ended: ReferenceFailed: ")


def test_wrong_options_end_it_on_every_rank(tmp_path: Path) -> None:
    got = callables.judged(callables.right, 2, tmp_path, dtypes=["f31"])
    assert "f31" in got[0] and "rank 0 ended" in got[1]


def test_a_rank_that_does_not_come_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_check, "MEETING", 0.3)
    with pytest.raises(pm.UsageError, match=r"ranks \[1\] did not call `check` within 0 s"):
        pm.check(lambda input: None, callables.task(), group=pm.Processes(0, 2, tmp_path))


def test_arguments_are_checked_before_anybody_waits(tmp_path: Path) -> None:
    with pytest.raises(pm.UsageError, match="takes `inputs`, which is no tensor or parameter; there are input, output, elements, rank, world, dtype"):
        pm.check(lambda inputs: None, callables.task(), group=pm.Processes(0, 2, tmp_path))
    with pytest.raises(pm.UsageError, match="int is no communicator of mpi4py"):
        pm.check(lambda input: None, callables.task(), group=3)
    with pytest.raises(pm.UsageError, match="none is given, and torch.distributed has no process group"):
        pm.check(lambda input: None, callables.task())
    with pytest.raises(pm.UsageError, match="expected `numpy` or `torch`"):
        pm.check(lambda input: None, callables.task(), group=pm.Processes(0, 2, tmp_path), tensors="jax")


def test_types_that_numpy_lacks_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(pm.UsageError, match="numpy has no bf16: pip install ml_dtypes"):
        _check._numpy("bf16")


def test_mpi(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import callables, numpy as np, passmuster as pm
from mpi4py import MPI

def all_reduce(input, output):
    MPI.COMM_WORLD.Allreduce(input, output)

def broken(input, output, rank):
    MPI.COMM_WORLD.Allreduce(input, output)
    if rank == 2:
        output[0] += 1

for fn in (all_reduce, broken):
    report = pm.check(fn, callables.task(), group=MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 3:
        print(fn.__name__, bool(report), sorted({{finding.property for finding in report.findings}}), flush=True)
"""
    )
    mpiexec = Path(sys.executable).with_name("mpiexec")
    ran = subprocess.run([mpiexec, "-n", "4", sys.executable, script], capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["all_reduce True []", "broken False ['ranks_agree', 'reference']"]


def test_memory_around_tensors_is_of_the_right_type() -> None:
    rank = _check.Rank(lambda input: None, callables.task(), 0, 1, "numpy", "cpu")
    owner, array = rank._tensor(bytearray(64), 16, "f64", (2, 2))
    assert array.shape == (2, 2) and array.dtype == np.float64
    array[...] = 1
    assert owner.tobytes()[:16] == bytes(16) and owner.tobytes()[48:] == bytes(16)
