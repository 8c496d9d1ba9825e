"""The referee: each candidate of examples/grade is right, or wrong for the reason that its first line says."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import passmuster as pm
import pytest
from passmuster import _sandbox
from passmuster.grade import Grade, Set, _candidates, _grade, main

EXAMPLES = Path(__file__).parents[2] / "examples/grade"
SETS = sorted(folder for folder in EXAMPLES.iterdir() if folder.is_dir())
ALL = [file for folder in SETS for file in _candidates(folder, "")]

# As in the sandbox.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "0")


def test_there_are_enough() -> None:
    right = [file for file in ALL if file.stem.startswith("right_")]
    assert len(SETS) >= 3 and len(ALL) >= 40 and len(right) >= 15
    assert all(file.stem.startswith(("right_", "wrong_")) for file in ALL)


@pytest.mark.parametrize("file", ALL, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_candidates_are_named_for_what_they_are(file: Path) -> None:
    if file.stem == "wrong_file":
        limited("files")
    limits = _sandbox.Limits(seconds=15 if "endless" in file.stem else 120)
    graded = _grade(file.parent, file, Set.read(file.parent), "smoke", limits, {"schedules": 2})
    said = file.read_text().split('"""')[1].split(":")[0].lower()
    if file.stem.startswith("right_"):
        assert said == "right" and (graded.verdict, graded.kinds) == ("right", []), graded
        assert graded.cases >= 6 and graded.schedules == 2
    elif said == "refused":
        assert graded.verdict == "refused" and graded.why, graded
    else:
        assert graded.verdict == "wrong" and graded.why and graded.case, graded
        expected = {word for word in ("races", "memory", "numerics", "state", "hang") if word in said}
        assert expected and expected & set(graded.kinds), graded


def candidate(folder: Path, text: str) -> Grade:
    (folder / "task.py").write_text((EXAMPLES / "all_reduce/task.py").read_text())
    (folder / "mine.py").write_text(text)
    return _grade(folder, folder / "mine.py", Set.read(folder), "smoke", _sandbox.Limits(seconds=20), {"schedules": 1})


def test_a_candidate_cannot_choose_its_launches_file(tmp_path: Path) -> None:
    forged = json.dumps({'["bf16", 2, 0, {"elements": 1}]': [{"entry": "../../evil"}]})
    text = f"import os, sys\nopen(sys.argv[3], 'w').write({forged!r})\nos._exit(0)\n"
    graded = candidate(tmp_path, text)
    assert graded.verdict == "refused" and "cannot be read" in graded.why


def limited(what: str) -> None:
    """Skips a test of what this machine cannot limit, which the command tells."""
    for lacks in _sandbox.missing():
        if lacks.startswith(what):
            pytest.skip(f"not limited here: {lacks}")


@pytest.mark.parametrize(
    ("text", "said", "needs"),
    [
        ("", "no function `launch`", "-"),
        ("def launch(inputs): ...", "takes `inputs`, which is no tensor", "-"),
        ("def launch(input): ...", "launches no kernel", "-"),
        ("def launch(input): raise KeyError('mine')", "KeyError: 'mine'", "-"),
        ("import os; os._exit(7)", "exit status 7", "-"),
        ("import socket; socket.create_connection(('192.0.2.1', 9), 2)", "unreachable", "network"),
        ("open('/etc/passmuster', 'w')", "Permission denied", "files"),
        ("open('x', 'wb').truncate(1 << 30)", "File too large", "-"),
    ],
)
def test_what_goes_too_far_is_refused(text: str, said: str, needs: str, tmp_path: Path) -> None:
    limited(needs)
    graded = candidate(tmp_path, text)
    assert graded.verdict == "refused" and said in graded.why, graded


def test_nothing_outlives_a_candidate(tmp_path: Path) -> None:
    limited("network")
    text = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(7777)\nraise SystemExit(3)\n"
    assert candidate(tmp_path, text).verdict == "refused"
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(tmp_path / "mine.py") not in running


def test_the_command_tells_and_writes_grades(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "grades.json"
    assert main([str(EXAMPLES / "all_reduce"), "-k", "right_one_block", "--schedules=1", f"--json={out}"]) == 0
    assert capsys.readouterr().out.startswith("right     right_one_block")
    assert main([str(EXAMPLES / "all_reduce"), "-k", "wrong_syntax", f"--json={out}"]) == 1
    grades = json.loads(out.read_text())["grades"]
    assert [(graded["candidate"], graded["verdict"]) for graded in grades] == [("wrong_syntax", "refused")]
    assert main([str(tmp_path)]) == 2
    assert main([str(EXAMPLES / "all_reduce"), "-k", "no such"]) == 2
    assert "has no candidate whose name has `no such`" in capsys.readouterr().err


def test_a_reference_that_fails_is_of_the_set(tmp_path: Path) -> None:
    text = (EXAMPLES / "all_reduce/task.py").read_text().replace("inputs = call.inputs", "1 / 0; inputs = call.inputs")
    (tmp_path / "task.py").write_text(text)
    (tmp_path / "mine.py").write_text((EXAMPLES / "all_reduce/right_one_block.py").read_text())
    with pytest.raises(pm.ReferenceFailed, match="division by zero"):
        _grade(tmp_path, tmp_path / "mine.py", Set.read(tmp_path), "smoke", _sandbox.Limits(), {})
