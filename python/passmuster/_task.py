"""Tasks: what the ranks do together (docs/reference/tasks.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal, Mapping, Sequence, Union

from ._errors import UsageError
from ._reference import Reference

#: A number, or an expression over parameters, `world` and `rank`, as in `"tokens * hidden"`.
Expression = Union[int, str]

#: The type of a tensor's elements.
DType = Literal["f32", "f16", "bf16", "f64", "e4m3", "e5m2", "i8", "u8", "i32", "u32", "i64", "u64"]

#: What an input holds.
Contents = Literal["normal", "uniform", "integers", "weights"]


@dataclass(frozen=True)
class Bits:
    """The reference's value, rounded once to the tensor's type. Zeros of either sign are equal."""

    def _toml(self) -> dict[str, Any]:
        return {"kind": "bits"}


@dataclass(frozen=True)
class Bound:
    """What `operations` in the accumulator's type, and then `roundings` to the tensor's type, can make of the reference's value.

    Each operation is off by half a unit in the last place of the magnitude, which the reference gives beside the value.
    """

    operations: Expression = 0
    roundings: int = 1
    accumulator: DType = "f32"

    def _toml(self) -> dict[str, Any]:
        return {"kind": "bound", "roundings": self.roundings, "operations": self.operations, "accumulator": self.accumulator}


@dataclass(frozen=True)
class Tolerance:
    """No farther from the reference's value than `absolute + relative * |value|`. Nobody derived it, so it needs a reason."""

    reason: str
    relative: float = 0.0
    absolute: float = 0.0

    def _toml(self) -> dict[str, Any]:
        return {"kind": "tolerance", "relative": float(self.relative), "absolute": float(self.absolute), "reason": self.reason}


@dataclass(frozen=True)
class Unspecified:
    """Anything."""

    def _toml(self) -> dict[str, Any]:
        return {"kind": "unspecified"}


#: What an output may be.
Contract = Union[Bits, Bound, Tolerance, Unspecified]


@dataclass(frozen=True)
class Tensor:
    """A tensor that every rank has. Use `input`, `output` and `input_output` to make one."""

    role: Literal["input", "output", "input_output"]
    shape: tuple[Expression, ...]
    dtype: DType | None = None
    contents: Contents = "normal"
    same_on_all_ranks: bool = False
    contract: Contract | None = None

    def _toml(self, name: str) -> dict[str, Any]:
        table: dict[str, Any] = {"name": name, "role": self.role, "shape": list(map(str, self.shape))}
        if self.dtype is not None:
            table["dtype"] = self.dtype
        if self.contents != "normal":
            table["contents"] = self.contents
        if self.same_on_all_ranks:
            table["same_on_all_ranks"] = True
        if self.contract is not None:
            table["contract"] = self.contract._toml()
        return table


def input(
    *shape: Expression, dtype: DType | None = None, contents: Contents = "normal", same_on_all_ranks: bool = False
) -> Tensor:
    """A tensor that the kernel reads and must leave as it is. Without `dtype` it has the case's type."""
    return Tensor("input", shape, dtype, contents, same_on_all_ranks)


def output(
    *shape: Expression, contract: Contract, dtype: DType | None = None, same_on_all_ranks: bool = False
) -> Tensor:
    """A tensor that the kernel writes. With `same_on_all_ranks` all ranks must have the same bits."""
    return Tensor("output", shape, dtype, "normal", same_on_all_ranks, contract)


def input_output(
    *shape: Expression,
    contract: Contract,
    dtype: DType | None = None,
    contents: Contents = "normal",
    same_on_all_ranks: bool = False,
) -> Tensor:
    """A tensor that the kernel reads and replaces by a result."""
    return Tensor("input_output", shape, dtype, contents, same_on_all_ranks, contract)


class PerRank(tuple[int, ...]):
    """Values of a parameter that ranks may have different ones of, as in `{"tokens": PerRank([0, 1, 17])}`."""


@dataclass(frozen=True)
class Task:
    """What ranks do together: tensors, parameters of their shapes, and how to compute the outputs.

    Args:
        name: The task in case ids: a-z, 0-9 and `_`.
        reference: A function that returns the outputs of a call; or the name of a built-in one (`all_reduce`, `all_reduce_rms_norm`).
        parameters: The values to try of each parameter. `PerRank` if ranks may have different ones.
        tensors: Inputs and outputs by name, in the order of the reference.
    """

    name: str
    reference: Reference | str = field(compare=False)
    tensors: Mapping[str, Tensor] = field(hash=False)
    parameters: Mapping[str, Sequence[int]] = field(default_factory=dict, hash=False)

    def _toml(self, reference: str | list[str]) -> dict[str, Any]:
        table: dict[str, Any] = {"name": self.name, "reference": reference}
        if self.parameters:
            table["parameter"] = [
                {"name": name, "values": list(values), **({"per_rank": True} if isinstance(values, PerRank) else {})}
                for name, values in self.parameters.items()
            ]
        table["tensor"] = [tensor._toml(name) for name, tensor in self.tensors.items()]
        return table


def evaluated(extent: Expression, words: Mapping[str, int]) -> int:
    """The value of a shape's expression on one rank."""
    if isinstance(extent, int):
        return extent
    # Expressions of specifications that shapes have are those of C on unsigned numbers; of these, Python writes / in another way.
    names = {"ceil_div": lambda a, b: -(-a // b), "min": min, "max": max}
    if not re.fullmatch(r"[\w\s+\-*/%(),]*", extent):
        raise UsageError(f"the shape `{extent}` can be had in Python only if it is made of + - * / %, ceil_div, min and max")
    try:
        return int(eval(extent.replace("/", "//"), {"__builtins__": {}}, {**names, **words}))
    except Exception as error:
        raise UsageError(f"the shape `{extent}` has no value: {error}") from None
