"""The pytest plug-in: kernels are collected, selected and reported as tests."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture
def kernels(pytester: pytest.Pytester) -> pytest.Pytester:
    """A module with a right kernel and one with a bug."""
    pytester.makepyfile(
        test_mine=f"""
        import sys
        sys.path.insert(0, {str(HERE)!r})
        import norm

        right = norm.spec()
        wrong = norm.spec(name="wrong", module=norm.EXAMPLE / "kernel.bug.ptx")
        """
    )
    return pytester


#: What loads the plug-in where the package is not installed: pytest finds it by itself otherwise.
LOADS_IT = [] if any(entry.name == "passmuster" for entry in entry_points(group="pytest11")) else ["-p", "passmuster.pytest_plugin"]


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(*LOADS_IT, *arguments)


def test_cases_are_items(kernels: pytest.Pytester) -> None:
    listed = run(kernels, "--collect-only", "-q").stdout
    listed.fnmatch_lines(["test_mine.py::right[[]bf16-w2-tokens1-hidden64]", "test_mine.py::wrong[[]bf16-w2-tokens1-hidden64]"])
    assert "=" not in "".join(line for line in listed.lines if line.startswith("test_mine.py::"))


def test_a_right_kernel_passes(kernels: pytest.Pytester) -> None:
    run(kernels, "-k", "right and tokens1-hidden64").assert_outcomes(passed=1, deselected=4 + 5)


def test_a_finding_is_told_with_its_line_and_how_to_repeat_it(kernels: pytest.Pytester) -> None:
    result = run(kernels, "-k", "wrong and tokens9-hidden64")
    result.assert_outcomes(failed=1, deselected=9)
    result.stdout.fnmatch_lines(["fail norm/wrong:*", "races: race, *at PTX *", "repro: pytest test_mine.py --passmuster-replay 'norm/wrong:*@*'"])
    token = next(line for line in result.outlines if line.startswith("repro:")).split("'")[1]
    again = run(kernels, "--passmuster-replay", token)
    again.assert_outcomes(failed=1)
    again.stdout.fnmatch_lines(["FAILED test_mine.py::wrong[[]*"])


def test_last_failures_are_run_again(kernels: pytest.Pytester) -> None:
    run(kernels, "-k", "tokens9-hidden64").assert_outcomes(passed=1, failed=1, deselected=8)
    run(kernels, "--lf", "-k", "tokens9-hidden64").assert_outcomes(failed=1, deselected=9)


def test_another_list_and_schedule_can_be_chosen(kernels: pytest.Pytester) -> None:
    run(kernels, "-k", "right", "--passmuster-list=faults").assert_outcomes(passed=2, deselected=2)
    result = run(kernels, "-k", "right and tokens1-hidden64", "--passmuster-profile=ptx", "--passmuster-schedules=1")
    result.assert_outcomes(passed=1, deselected=9)


def test_what_is_wrong_with_a_kernel_is_an_error_of_collection(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_mine=f"""
        import sys
        sys.path.insert(0, {str(HERE)!r})
        import norm

        right = norm.spec(dtypes=["bf61"])
        """
    )
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["right: error: *bf61*"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_reference_that_fails_is_told_in_a_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_mine=f"""
        import sys
        sys.path.insert(0, {str(HERE)!r})
        import norm

        right = norm.spec(lambda call: {{"output": 1 / 0}})
        """
    )
    result = run(pytester, "-k", "tokens1-hidden64")
    result.assert_outcomes(failed=1, deselected=4)
    result.stdout.fnmatch_lines(["the reference of norm failed: ZeroDivisionError: division by zero (test_mine.py:*)"])


def test_junit_has_the_case(kernels: pytest.Pytester) -> None:
    run(kernels, "-k", "right and tokens1-hidden64", "--junit-xml=out.xml")
    assert "norm/one_shot_norm:bf16,task:w=2:tokens=1:hidden=64" in (kernels.path / "out.xml").read_text()


def test_markers_select_kernels(kernels: pytest.Pytester) -> None:
    run(kernels, "--collect-only", "-q", "-m", "not passmuster").assert_outcomes(deselected=10)
