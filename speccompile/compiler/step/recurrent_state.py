"""States that layers carry from token to token, and what a pass does with them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from speccompile.compiler.step import ops


def state_name(kind: str, layer: int, index: int) -> str:
    """`conv.3`, `state.3`, `conv.3.1`: of the state `index` among those of its kind in a layer."""
    return f"{kind}.{layer}" + (f".{index}" if index else "")


@dataclass(frozen=True)
class RecurrentState:
    """A state of a layer: what it carries from token to token, whatever their number. Found by the probe.

    kind: "conv", the last rows of a convolution's input, or "state", of a recurrence; index: among those of its kind in
    the layer; shape: of one row of the batch, [1, K - 1, C] or [H, K, V]; rows: tensors by which a window moves it on.
    """

    kind: str
    index: int
    shape: tuple[int, int, int]
    rows: int

    def name(self, layer: int) -> str:
        """Its buffer's, behind the name of what it is a part of."""
        return state_name(self.kind, layer, self.index)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "RecurrentState":
        """Of its fields."""
        return cls(data["kind"], data["index"], tuple(data["shape"]), data["rows"])


class Steps(ABC):
    """A state in one pass: the rows of all runs in the order in which they were made, each tensor [B, G, T, D]."""

    def __init__(self, state: Tensor, length: Tensor) -> None:
        """state: as it is committed; length int64 [B]: where it is 0, the state counts as zeros."""
        self.state, self.length = state, length
        self.rows: list[Tensor] = []
        self._last: tuple[list[Tensor], Tensor] | None = None

    def begin_run(self, rows: list[Tensor], count: Tensor | None) -> None:
        """A run begins with these rows, of which the first `count` int64 [B] are no padding; None: all. What follows
        reads the state as the runs before have left it."""
        if self._last is not None:
            last, taken = self._last
            self.state, self.length = self.state_after(last, taken), torch.ones_like(self.length)
        width = rows[0].shape[2]
        self._last = rows, torch.full_like(self.length, width) if count is None else count
        self.rows = [torch.cat(pair, 2) for pair in zip(self.rows, rows, strict=True)] if self.rows else rows

    @abstractmethod
    def state_after(self, rows: list[Tensor], count: Tensor) -> Tensor:
        """The state after the first `count` int64 [B] of some rows; as it was where that is 0."""


class Convolution(Steps):
    """Rows [B, 1, T, C] of its input; the state holds the last K - 1 of them."""

    def _begun(self) -> Tensor:
        return torch.where((self.length > 0)[:, None, None, None], self.state, 0.0)

    def state_after(self, rows: list[Tensor], count: Tensor) -> Tensor:
        return ops.shift(rows[0], self.state, self.length, count)

    def run(self, rows: Tensor, weight: Tensor, count: Tensor | None) -> Tensor:
        """The convolution at every row."""
        self.begin_run([rows], count)
        return ops.convolve(rows, self._begun(), weight)


class Recurrence(Steps):
    """Rows key [B, G, T, K], value [B, H, T, V], decay [B, H, T, 1 or K], and beta [B, H, T, 1] of a delta rule."""

    def state_after(self, rows: list[Tensor], count: Tensor) -> Tensor:
        key, value, decay, beta = _four(rows)
        return ops.advance(key, value, decay, beta, self.state, self.length, count)

    def run(self, query: Tensor, rows: list[Tensor], count: Tensor | None) -> Tensor:
        """What the recurrence gives at every row."""
        self.begin_run(rows, count)
        key, value, decay, beta = _four(rows)
        return ops.recur(query, key, value, decay, beta, self.state, self.length)


def steps_of(carried: RecurrentState, state: Tensor, length: Tensor) -> Steps:
    """One pass over a state [B, ..] of which the last of `length` int64 [B] tokens has been committed."""
    return (Convolution if carried.kind == "conv" else Recurrence)(state, length)


def _four(rows: list[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    key, value, decay = rows[:3]
    return key, value, decay, rows[3] if len(rows) > 3 else None


class RecurrentStates:
    """The part of a `Pass` that layers with states ask: mixed into it, so that transformers' calls arrive here."""

    def __init__(
        self, caches: dict[str, Tensor], carried: Sequence[tuple[RecurrentState, ...]], length: Tensor
    ) -> None:
        """caches: by name, those of states among them; carried: of every layer; count: see `Pass.look`."""
        named = {each.name(layer): each for layer, its in enumerate(carried) for each in its}
        self.count: Tensor | None = None
        self.carried = {name: each for name, each in named.items() if name in caches}
        self.steps = {name: steps_of(each, caches[name], length) for name, each in self.carried.items()}
        self.asked: dict[str, tuple[int, int]] = {}
        """Of each kind, the layer and the index of the state that was asked for last."""

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> None:
        """That there is none: rows come to `convolve`."""
        self.asked["conv"] = layer_idx, state_idx

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> None:
        """That there is none: rows come to `recur`."""
        self.asked["state"] = layer_idx, state_idx

    def update_conv_state(self, conv_states: Tensor, layer_idx: int, state_idx: int = 0, **kwargs: object) -> Tensor:
        """The rows as they are: what follows is given to `convolve`."""
        self.asked["conv"] = layer_idx, state_idx
        return conv_states

    def update_recurrent_state(
        self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0, **kwargs: object
    ) -> None:
        """Nothing: `recur` has the rows."""

    def convolve(self, rows: Tensor, weight: Tensor) -> Tensor:
        """rows [B, 1, T, C] of the state that was asked for last, weight [C, K] -> [B, 1, T, C]."""
        steps = self.steps.get(self._name("conv"))
        if steps is None:  # of a layer whose output is thrown away
            return rows
        assert isinstance(steps, Convolution)
        return steps.run(rows, weight, self.count)

    def recur(self, query: Tensor, rows: list[Tensor]) -> Tensor:
        """query [B, G, T, K], rows as `Recurrence` has them -> [B, H, T, V]."""
        steps = self.steps.get(self._name("state"))
        if steps is None:
            return rows[1]
        assert isinstance(steps, Recurrence)
        return steps.run(query, rows, self.count)

    def next_state(self, kind: str) -> tuple[int, int]:
        """The layer and the index of the state whose rows come now. Rows that follow unasked are the next state's, as
        those of the heads that Zamba scans one by one."""
        layer, index = self.asked[kind]
        self.asked[kind] = layer, index + 1
        return layer, index

    def _name(self, kind: str) -> str:
        return state_name(kind, *self.next_state(kind))
