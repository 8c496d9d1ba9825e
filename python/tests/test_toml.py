"""What specifications are written with."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from passmuster import _toml

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")


@pytest.mark.parametrize(
    "table",
    [
        {"name": "a", "worlds": [2, 4], "flag": True, "none": [], "fraction": 0.5, "big": 1 << 40},
        {"text": 'quotes " and \\ and \n and \x7f and ü'},
        {"task": {"name": "t", "parameter": [{"name": "a", "values": [1]}, {"name": "b", "values": [2]}]}, "last": 1},
        {"argument": [{"struct": [{"peers": "a", "length": 8}, {"u32": "rank"}]}, {"pointer": "b"}]},
        {"contract": {"order": "any", "assumes": {"lanes": "why"}}, "step": [{"launch": {"grid": [1, 1], "arguments": [{"u64": 0}]}, "when": "a == 1"}]},
    ],
)
def test_what_is_written_is_read_again(table: dict[str, Any]) -> None:
    assert tomllib.loads(_toml.text(table)) == table


def test_what_has_no_place_is_refused() -> None:
    with pytest.raises(TypeError, match="object has no place"):
        _toml.text({"a": object()})
