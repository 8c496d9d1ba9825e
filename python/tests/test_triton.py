"""Triton kernels: the launch function is recorded without a GPU, and findings name its lines. `pip install triton` first."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import passmuster as pm
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples/python"

# Read when Triton is imported.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "0")
sys.path.insert(0, str(EXAMPLES))

import kernels  # noqa: E402
import test_kernels  # noqa: E402
from triton import knobs  # noqa: E402
from triton.runtime.driver import driver  # noqa: E402

BUFFERS = test_kernels.BUFFERS


def task(**parameters: Any) -> pm.Task:
    tensors = {
        "input": pm.input("elements"),
        "output": pm.output("elements", contract=pm.Bound("world"), same_on_all_ranks=True),
    }
    return pm.Task("all_reduce", test_kernels.all_reduced, tensors, parameters or {"elements": [1, 1000]})


def decorated(launch: Any, **options: Any) -> pm.TritonKernel:
    return pm.triton(options.pop("task", task()), **{"worlds": [2], "buffers": BUFFERS, **options})(launch)


def right(input: Any, pads: Any, counts: Any, output: Any, elements: int, rank: int, world: int) -> None:
    kernels.one_shot[(1,)](input.peers, pads.peers, counts, output, elements, rank, world, 1024, False)


def test_each_rank_and_size_has_its_own_code(tmp_path: Path) -> None:
    # 1 becomes a constant, and its parameter goes away.
    decorated(right).write(tmp_path)
    spec = (tmp_path / "spec.toml").read_text()
    for rank in (0, 1):
        for elements in (1, 1000):
            assert f'when = "world == 2 && rank == {rank} && elements == {elements}"' in spec
    modules = list(tmp_path.glob("one_shot.bf16.*.ptx"))
    assert len(modules) == 4
    parameters = {module.read_text().split(".visible .entry")[1].split("{")[0].count(".param") for module in modules}
    assert len(parameters) > 1
    assert all(json.loads(module.with_suffix(".json").read_text())["shared"] >= 0 for module in modules)


def test_nothing_of_triton_is_left_changed() -> None:
    active, stages = driver._active, knobs.runtime.add_stages_inspection_hook
    decorated(right)._written()
    assert driver._active is active and knobs.runtime.add_stages_inspection_hook is stages

    def fails(input: Any) -> None:
        raise KeyError("a bug of the launch function")

    with pytest.raises(KeyError, match="a bug of the launch function"):
        decorated(fails)._written()
    assert driver._active is active and knobs.runtime.add_stages_inspection_hook is stages


def test_hooks_of_others_are_called() -> None:
    seen: list[Any] = []

    def entered(told: Any) -> None:
        seen.append(told.get()["name"])

    knobs.runtime.launch_enter_hook.add(entered)
    try:
        decorated(right, task=task(elements=[8]))._written()
    finally:
        knobs.runtime.launch_enter_hook.remove(entered)
    assert seen == ["one_shot"] * 2


def test_several_types_are_one_specification() -> None:
    kernel = decorated(right, dtypes=["bf16", "f16", "f32"])
    assert kernel.validate()
    assert {case.split(":")[1] for case in kernel.cases()} == {"bf16,task", "f16,task", "f32,task"}


def test_kernels_in_a_row_are_steps() -> None:
    def twice(input: Any, pads: Any, counts: Any, output: Any, elements: int, rank: int, world: int) -> None:
        right(input, pads, counts, output, elements, rank, world)
        right(input, pads, counts, output, elements, rank, world)

    assert decorated(twice, task=task(elements=[8])).validate()


def test_a_rank_that_launches_nothing_hangs_the_others() -> None:
    def lonely(input: Any, pads: Any, counts: Any, output: Any, elements: int, rank: int, world: int) -> None:
        if rank == 0:
            right(input, pads, counts, output, elements, rank, world)

    report = decorated(lonely, task=task(elements=[8])).validate()
    assert {case.status for case in report} == {"hang"}
    assert "kernels.py:" in report.text


def test_addresses_may_be_computed() -> None:
    shifted = pm.Task(
        "all_reduce",
        lambda call: {"output": sum(rows[8:] for rows in call.inputs["input"])},
        {"input": pm.input("elements + 8"), "output": pm.output("elements", contract=pm.Bound("world"))},
        {"elements": [64]},
    )

    class Behind:
        """Eight elements of bf16 further."""

        def __init__(self, table: Any) -> None:
            self.dtype, self.address = table.dtype, table.data_ptr()

        def data_ptr(self) -> int:
            return self.address + 16

    def launch(input: Any, pads: Any, counts: Any, output: Any, elements: int, rank: int, world: int) -> None:
        assert input.shape == (72,) and input.numel() == 72
        kernels.one_shot[(1,)](Behind(input.peers), pads.peers, counts, output, elements, rank, world, 1024, False)

    with pytest.raises(pm.UsageError, match="behind the table of peers of `input` cannot be passed|a tensor of your own"):
        decorated(launch, task=shifted)._written()


def test_the_handle_of_symmetric_memory_is_passed_as_a_number() -> None:
    def launch(input: Any, pads: Any, counts: Any, output: Any, elements: int, rank: int, world: int) -> None:
        right(Pointers(input.buffer_ptrs_dev), Pointers(pads.buffer_ptrs_dev), counts, output, elements, rank, world)

    class Pointers:
        dtype = "i64"

        def __init__(self, address: int) -> None:
            self.address = address
            self.peers = self

        def data_ptr(self) -> int:
            return self.address

    assert decorated(launch, task=task(elements=[8])).validate()


@pytest.mark.parametrize(
    ("launch", "options", "said"),
    [
        (lambda inputs: None, {}, "takes `inputs`, which is no tensor, buffer or parameter; there are input, output"),
        (lambda: None, {}, "launches no kernel"),
        (lambda: None, {"worlds": []}, "has no worlds"),
        (lambda: None, {"buffers": {"input": pm.Buffer(4)}}, "`input` names two things"),
        (lambda: None, {"task": task(elements=range(1, 3000))}, "for 5998 calls .* at most 4096"),
    ],
)
def test_what_is_wrong_is_named(launch: Any, options: Any, said: str) -> None:
    with pytest.raises(pm.UsageError, match=said):
        decorated(launch, **options)._written()


def test_a_tensor_of_one_s_own_is_refused() -> None:
    class Own:
        dtype = "bf16"

        def data_ptr(self) -> int:
            return 16

    def launch(input: Any, pads: Any, counts: Any, elements: int, rank: int, world: int) -> None:
        kernels.one_shot[(1,)](input.peers, pads.peers, counts, Own(), elements, rank, world, 1024, False)

    with pytest.raises(pm.UsageError, match="`output` is a tensor of your own"):
        decorated(launch)._written()


@pytest.mark.parametrize(
    ("name", "kind", "line"),
    [
        ("one_shot", "memory", "tl.store(output + index, total.to(output.dtype.element_ty))\n"),
        ("one_shot_norm", "races", "total += tl.load(of_peer + index, mask=inside, other=0.0).to(tl.float32)\n"),
        ("scatter", "memory", "total += tl.load(of_peer + offset + index, mask=inside, other=0.0).to(tl.float32)\n"),
    ],
)
def test_the_bugs_of_the_tutorial_are_found_at_their_lines(
    name: str, kind: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(test_kernels, "BUG", True)
    kernel = getattr(test_kernels, name)
    broken = decorated(kernel.launch, task=kernel.task, contract=kernel.contract, name=name)
    report = broken.validate()
    assert kind in {finding.property for finding in report.findings}
    lines = (EXAMPLES / "kernels.py").read_text().splitlines(keepends=True)
    numbers = [number for number, text in enumerate(lines, 1) if text.strip() + "\n" == line]
    assert any(f"kernels.py:{number})" in str(finding) for finding in report.findings for number in numbers)


def test_references_of_the_tutorial_are_right() -> None:
    inputs = {"input": [np.ones((2, 4)), 2 * np.ones((2, 4))], "residual": [np.ones((2, 4))] * 2, "gamma": [np.ones(4)] * 2}
    call = pm.Call("t", "bf16", 2, {"tokens": [2, 2], "hidden": [4, 4]}, inputs, {})
    outputs = test_kernels.normed(call)
    np.testing.assert_allclose(outputs["residual_out"][0], 4)
    np.testing.assert_allclose(outputs["output"][0], 1, rtol=1e-6)


def test_the_example_of_the_front_page_runs() -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text()
    (block,) = [part.split("```")[0] for part in text.split("```python\n")[1:]]

    class Kernel:
        def __getitem__(self, grid: Any) -> Any:
            return lambda *args, **options: kernels.one_shot[grid](*args, **options, BUG=False)

    told: dict[str, Any] = {"task": task(), "buffers": BUFFERS, "kernel": Kernel()}
    exec(compile(block, "README.md", "exec"), told)


def test_the_readme_s_example_runs() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text()
    # The second is for mpirun: tests/test_check.py has the same.
    block, _ = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    told: dict[str, Any] = {}
    exec(compile(block, "README.md", "exec"), told)
    assert {case.split(":")[2] for case in told["one_shot"].cases()} == {"w=2", "w=4"}
