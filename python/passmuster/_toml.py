"""Writes TOML, of what specifications are made of."""

from __future__ import annotations

import json
from typing import Any, Mapping, Sequence


def text(table: Mapping[str, Any]) -> str:
    """The text of a document. Lists of tables become `[[key]]`, one entry a line, so that an error's line says which."""
    return "".join(_table(table, ()))


def _table(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    pieces = [f"{key} = {_value(value)}\n" for key, value in table.items() if not _is_below(value)]
    for key, value in table.items():
        inner = (*path, key)
        if isinstance(value, Mapping):
            pieces += [f"\n[{'.'.join(inner)}]\n", *_table(value, inner)]
        elif _is_below(value):
            for entry in value:
                pieces += [f"\n[[{'.'.join(inner)}]]\n", *(f"{key} = {_value(value)}\n" for key, value in entry.items())]
    return pieces


def _is_below(value: Any) -> bool:
    """Whether a value is written under a heading of its own, behind the plain ones."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return isinstance(value, Mapping) or (is_list and len(value) > 0 and all(isinstance(entry, Mapping) for entry in value))


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, str):
        # A basic string of TOML has JSON's escapes, but for DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(_value, value)) + "]"
    raise TypeError(f"{value!r} of type {type(value).__name__} has no place in a specification")
