"""Patterns of passes, written as the expression in the trace.

match(Op("Mul", "weight", Op("Reciprocal", "root")), value)   ->  {"weight": .., "root": ..} or None
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

_COMMUTATIVE = ("Add", "Mul")
_LONGEST = 16  # maximum elements of a constant that is read: weights never are


@dataclass(frozen=True, init=False)
class Op:
    """A standard node whose first inputs match `inputs`; those of Add and Mul in either order."""

    op: str
    inputs: tuple["Pattern", ...]

    def __init__(self, op: str, *inputs: "Pattern") -> None:
        object.__setattr__(self, "op", op)
        object.__setattr__(self, "inputs", inputs)


Pattern = Op | str | float
"""A node; a name, which matches any value but the same one everywhere; or a number, for a constant of one element."""

Bound = dict[str, ir.Value]


def match(pattern: Pattern, value: ir.Value | None) -> Bound | None:
    """Return the values of a pattern's names if the pattern matches the expression of `value`; else None."""
    return next(_matches(pattern, value, {}), None)


def match_any(patterns: Iterable[Pattern], value: ir.Value | None) -> Bound | None:
    """Return the values of the first pattern that matches; None if none does."""
    return next((found for pattern in patterns if (found := match(pattern, value)) is not None), None)


def _matches(pattern: Pattern, value: ir.Value | None, bound: Bound) -> Iterator[Bound]:
    if value is None:
        return
    if isinstance(pattern, str):
        if bound.get(pattern, value) is value:
            yield bound | {pattern: value}
    elif isinstance(pattern, Op):
        node = made_by(value, pattern.op)
        if node is not None and len(node.inputs) >= len(pattern.inputs):
            given = node.inputs[: len(pattern.inputs)]
            for order in (given, given[::-1]) if pattern.op in _COMMUTATIVE else (given,):
                yield from _match_all(pattern.inputs, order, bound)
    elif numbers(value) == [pattern]:
        yield bound


def _match_all(patterns: Sequence[Pattern], values: Sequence[ir.Value | None], bound: Bound) -> Iterator[Bound]:
    if not patterns:
        yield bound
        return
    for found in _matches(patterns[0], values[0], bound):
        yield from _match_all(patterns[1:], values[1:], found)


def made_by(value: ir.Value | None, op: str, domain: str = "") -> ir.Node | None:
    """Return the node that produces a value, if it is one of this kind and domain, by default a standard one."""
    node = None if value is None else value.producer()
    return node if node is not None and node.op_type == op and node.domain == domain else None


def numbers(value: ir.Value | None) -> list[float] | None:
    """Return the elements of a short constant of any shape; None for any other value."""
    tensor = None if value is None else ir.convenience.get_const_tensor(value)
    if tensor is None or tensor.size > _LONGEST:
        return None
    found: list[float] = np.ravel(tensor.numpy()).tolist()
    return found


def number(value: ir.Value | None) -> float | None:
    """Return the element of a constant that has one; None for any other value."""
    found = numbers(value)
    return found[0] if found is not None and len(found) == 1 else None


class SliceMatch(NamedTuple):
    """Columns `start`, `start + step`, .. before `stop` of `source`, along its last axis."""

    source: ir.Value
    start: int
    stop: int
    step: int

    @property
    def width(self) -> int:
        """Return the number of columns of the source."""
        assert self.source.shape is not None
        size = self.source.shape[-1]
        assert isinstance(size, int)
        return size


def match_slice(value: ir.Value | None) -> SliceMatch | None:
    """Return the slice of another value of known width, along the last axis alone; None if the value is no such
    slice."""
    node = made_by(value, "Slice")
    source = None if node is None else node.inputs[0]
    if node is None or source is None or source.shape is None or not isinstance(source.shape[-1], int):
        return None
    bounds = [number(bound) for bound in node.inputs[1:]]
    single = [int(bound) for bound in bounds if bound is not None]
    if len(single) != len(bounds) or len(single) < 3:
        return None
    start, stop, axis, step = (*single, 1)[:4]
    if axis not in (-1, len(source.shape) - 1) or min(start, stop, step) < 0:
        return None
    return SliceMatch(source, start, min(stop, source.shape[-1]), step)
