"""`validate` and what it gives, on the emulator."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import norm
import numpy as np
import passmuster as pm
import pytest


def test_a_right_kernel_passes() -> None:
    report = pm.validate(norm.spec())
    assert report and report.exit_status == 0
    assert [case.status for case in report] == ["pass"] * len(report.cases)
    assert "reference" in report.cases[0].held
    report.raise_on_findings()


def test_a_wrong_value_is_named_with_its_case() -> None:
    def doubled(call: pm.Call) -> pm.Outputs:
        outputs = norm.reference(call)
        values, magnitudes = outputs["output"]
        return {**outputs, "output": (2 * np.asarray(values), magnitudes)}

    report = norm.spec(doubled).validate()
    assert not report and report.exit_status == 1
    assert {finding.property for finding in report.findings} == {"reference"}
    assert "output[0, 0]" in report.failed[0].findings[0].summary
    with pytest.raises(pm.Findings) as raised:
        report.raise_on_findings()
    assert raised.value.report is report and isinstance(raised.value, AssertionError)
    # What the reader may paste names no file that is gone.
    assert "one_shot_norm.validate(replay='" in report.text and "/tmp" not in report.text.split("repro")[1].splitlines()[0]


def test_a_race_is_named_with_its_lines() -> None:
    broken = norm.EXAMPLE / "kernel.bug.ptx"
    report = norm.spec(module=broken).validate()
    assert "races" in {finding.property for finding in report.findings}
    assert any("barrier is missing" in str(finding) and "at PTX " in str(finding) for finding in report.findings)
    # Exactly that run again.
    again = norm.spec(module=broken).validate(replay=report.failed[0].token)
    assert [case.id for case in again] == [report.failed[0].id] and not again


def test_a_query_selects_cases() -> None:
    spec = norm.spec(worlds=[2, 4])
    cases = spec.cases()
    assert cases and all(case.startswith("norm/one_shot_norm:bf16,task:w=") for case in cases)
    assert [case.id for case in spec.validate(cases[0])] == [cases[0]]
    assert spec.cases("norm/one_shot_norm:*:w=4") and all(":w=4:" in case for case in spec.cases("norm/one_shot_norm:*:w=4"))


def test_parameters_may_differ_by_rank() -> None:
    uneven = []

    def zeros(call: pm.Call) -> pm.Outputs:
        if len(set(call.parameters["tokens"])) > 1:
            uneven.append(call)
        return {name: [np.zeros(shape) for shape in shapes] for name, shapes in call.shapes.items()}

    norm.spec(task=norm.task(zeros, tokens=pm.PerRank([3, 1]))).validate()
    call = uneven[0]
    assert [shape[0] for shape in call.shapes["output"]] == list(call.parameters["tokens"])
    assert [rows.shape[0] for rows in call.inputs["input"]] == list(call.parameters["tokens"])
    with pytest.raises(ValueError, match=r"tokens differs between ranks.*use call.parameters\['tokens'\]\[rank\]"):
        call["tokens"]


def test_a_record_can_be_written_and_read(tmp_path: Path) -> None:
    report = norm.spec().validate()
    path = tmp_path / "record.json"
    report.to_json(path)
    record = json.loads(path.read_text())
    assert record["kind"] == "validate" and len(record["cases"]) == len(report.cases)
    assert report.record == record
    shown = report._repr_html_()
    assert f"{len(report)} pass" in shown and "<table>" not in shown


def test_options_are_the_command_s() -> None:
    report = norm.spec().validate(schedules=2, profile="ptx", seed=7)
    assert (report.record["selection"]["schedules"], report.record["selection"]["seed"]) == (2, 7)
    with pytest.raises(pm.UsageError, match="profile"):
        norm.spec().validate(profile="none")
    with pytest.raises(pm.UsageError, match="--no-such"):
        norm.spec().validate(no_such=1)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda call: {"output": 0}, "no `residual_out`"),
        (lambda call: {**norm.reference(call), "gamma": 0}, "`gamma`, which is no output of norm; outputs are residual_out, output"),
        (lambda call: {**norm.reference(call), "output": np.zeros(3)}, r"`output` of shape \[3\] on rank 0, expected \[\d, \d+\]"),
        (lambda call: {**norm.reference(call), "output": [np.zeros((1, 64))]}, "1 arrays of `output`, expected one for each of 2 ranks"),
        (lambda call: 5, "returned int, expected a dict of outputs"),
        (lambda call: 1 / 0, "division by zero"),
        (lambda call: call.inputs["input"][0].fill(0), "read-only"),
    ],
)
def test_a_reference_that_fails_is_no_finding(answer: Any, said: str) -> None:
    with pytest.raises(pm.ReferenceFailed, match=said) as raised:
        norm.spec(answer).validate()
    assert raised.value.__cause__ is not None


def test_a_reference_that_gives_no_number_or_two_answers_is_no_finding() -> None:
    def broken(call: pm.Call) -> pm.Outputs:
        return {**norm.reference(call), "output": np.full(call.shapes["output"][0], np.nan)}

    with pytest.raises(pm.PassmusterError, match="no finite number"):
        norm.spec(broken).validate()
    calls = iter(range(1, 1 << 20))

    def other(call: pm.Call) -> pm.Outputs:
        return {**norm.reference(call), "output": np.full(call.shapes["output"][0], float(next(calls)))}

    with pytest.raises(pm.PassmusterError, match="two answers to the same call"):
        norm.spec(other).validate()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"dtypes": ["bf61"]}, "bf61"),
        ({"entry": "one_shot_nrom_{dtype}"}, "one_shot_norm_bf16"),
        ({"module": "/nowhere/kernel.ptx"}, "/nowhere/kernel.ptx: no such file"),
        ({"launch": pm.Launch("tokens +", 128)}, "grid.*\n  in: grid"),
        ({"arguments": [pm.pointer("inputs")]}, "inputs.*\n  in: pointer"),
        ({"contract": {"equal_run_to_runs": True}}, "equal_run_to_run"),
        ({"worlds": []}, "worlds"),
    ],
)
def test_what_is_wrong_with_a_specification_is_named(changed: Any, said: str) -> None:
    with pytest.raises(pm.UsageError, match=said):
        norm.spec(**changed).validate()


def test_a_specification_needs_one_of_task_and_collective() -> None:
    with pytest.raises(pm.UsageError, match="a task or a collective"):
        norm.spec(collective="all_reduce")


def test_specifications_are_read_from_files() -> None:
    spec = pm.Spec.read(norm.EXAMPLE / "spec.toml")
    assert spec.name == "one_shot_norm"
    assert spec.validate(spec.cases()[0])


def test_an_interrupt_leaves_a_partial_report() -> None:
    asked = 0

    def interrupted(call: pm.Call) -> pm.Outputs:
        nonlocal asked
        asked += 1
        if asked == 60:
            # Some cases have been judged by then: each asks a few times.
            os.kill(os.getpid(), signal.SIGINT)
        return norm.reference(call)

    with pytest.raises(pm.Interrupted) as raised:
        norm.spec(interrupted, worlds=[2, 4]).validate("merge")
    assert isinstance(raised.value, KeyboardInterrupt)
    report = raised.value.report
    assert report is not None and report.partial and report.record["partial"]["of"] > len(report)


@pytest.mark.parametrize(
    ("script", "error", "said"),
    [
        ("kill -9 $$", pm.CommandFailed, "killed by SIGKILL"),
        ("echo 'error: no such thing' >&2; exit 2", pm.UsageError, "no such thing"),
        ("echo 'error: no GPU' >&2; exit 3", pm.MachineCannot, "no GPU"),
    ],
)
def test_a_command_that_fails_is_an_exception(
    script: str, error: type[Exception], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "passmuster"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    monkeypatch.setenv("PASSMUSTER", str(command))
    with pytest.raises(error, match=said):
        norm.spec().validate()


def test_a_missing_command_names_where_it_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSMUSTER", str(tmp_path / "nothing"))
    with pytest.raises(FileNotFoundError, match="nothing is not an executable file"):
        norm.spec().validate()


def test_ptx_can_be_inspected() -> None:
    told = pm.inspect(norm.EXAMPLE / "kernel.ptx")
    assert [kernel["name"] for kernel in told["kernels"]] == ["one_shot_norm_bf16"]


def test_mutants_are_planted_and_caught() -> None:
    report = norm.spec(task=norm.task(tokens=[3], hidden=[8])).mutants(only="release")
    assert report.record["kind"] == "mutants" and report.record["summary"]["caught"] > 0


def test_nothing_is_imported_that_is_not_there() -> None:
    assert "torch" not in sys.modules
