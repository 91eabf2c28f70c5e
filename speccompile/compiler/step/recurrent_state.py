"""Recurrent states of layers, and their updates in a pass."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from speccompile.compiler.step import ops
from speccompile.compiler.step.window import Branches


def state_name(kind: str, layer: int, index: int) -> str:
    """Return the name of state `index` among those of its kind in a layer: `conv.3`, `state.3`, `conv.3.1`."""
    return f"{kind}.{layer}" + (f".{index}" if index else "")


@dataclass(frozen=True)
class RecurrentState:
    """Description of a layer's recurrent state, whose size does not depend on the number of tokens. Found by the probe.

    kind: "conv", the last rows of a convolution's input, or "state", of a recurrence; index: among those of its kind in
    the layer; shape: for one batch slot, [1, K - 1, C] or [H, K, V]; rows: number of tensors by which a window advances
    it.
    """

    kind: str
    index: int
    shape: tuple[int, int, int]
    rows: int

    def name(self, layer: int) -> str:
        """Return the name of its buffer, without a prefix."""
        return state_name(self.kind, layer, self.index)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "RecurrentState":
        """Return the state with these fields."""
        return cls(data["kind"], data["index"], tuple(data["shape"]), data["rows"])


class Steps(ABC):
    """A state in one pass. rows: those of all runs in the order of the runs, each tensor [B, G, T, D]."""

    def __init__(self, state: Tensor, length: Tensor) -> None:
        """state: the committed one; length int64 [B]: where it is 0, the state counts as zeros."""
        self.state, self.length = state, length
        self.rows: list[Tensor] = []
        self._last: tuple[list[Tensor], Tensor] | None = None

    def begin_run(self, rows: list[Tensor], count: Tensor | None) -> None:
        """Begin a run with these rows. The first `count` int64 [B] are no padding; None: all of them. The run reads the
        state after the runs before it."""
        if self._last is not None:
            last, taken = self._last
            self.state, self.length = self.state_after(last, taken), torch.ones_like(self.length)
        width = rows[0].shape[2]
        self._last = rows, torch.full_like(self.length, width) if count is None else count
        self.rows = [torch.cat(pair, 2) for pair in zip(self.rows, rows, strict=True)] if self.rows else rows

    @abstractmethod
    def state_after(self, rows: list[Tensor], count: Tensor) -> Tensor:
        """Return the state after the first `count` int64 [B] of some rows; unchanged where `count` is 0."""


class Convolution(Steps):
    """State of a convolution: the last K - 1 rows of its input, of rows [B, 1, T, C]."""

    def _begun(self) -> Tensor:
        return torch.where((self.length > 0)[:, None, None, None], self.state, 0.0)

    def state_after(self, rows: list[Tensor], count: Tensor) -> Tensor:
        return ops.shift(rows[0], self.state, self.length, count)

    def run(self, rows: Tensor, weight: Tensor, count: Tensor | None, branches: Branches | None) -> Tensor:
        """Return the convolution at every row. branches: paths on which rows follow one another, None for a chain."""
        self.begin_run([rows], count)
        if branches is None:
            return ops.convolve(rows, self._begun(), weight)
        of_paths = ops.convolve(branches.spread(rows), branches.repeated(self._begun()), weight)
        return branches.joined(of_paths)


class Recurrence(Steps):
    """State of a recurrence. Rows are key [B, G, T, K], value [B, H, T, V], decay [B, H, T, 1 or K], and for a delta
    rule beta [B, H, T, 1]."""

    def state_after(self, rows: list[Tensor], count: Tensor) -> Tensor:
        key, value, decay, beta = _four(rows)
        return ops.advance(key, value, decay, beta, self.state, self.length, count)

    def run(self, query: Tensor, rows: list[Tensor], count: Tensor | None, branches: Branches | None) -> Tensor:
        """Return the result of the recurrence at every row. branches: as for a convolution. A path is computed as the
        chain of its tokens, in a batch slot of its own: with the same bits."""
        self.begin_run(rows, count)
        state, length = self.state, self.length
        if branches is not None:
            query, *rows = (branches.spread(each) for each in (query, *rows))
            state, length = branches.repeated(state), branches.repeated(length)
        key, value, decay, beta = _four(rows)
        result = ops.recur(query, key, value, decay, beta, state, length)
        return result if branches is None else branches.joined(result)


def steps_of(carried: RecurrentState, state: Tensor, length: Tensor) -> Steps:
    """Return the steps of one pass over a state [B, ..]. length int64 [B]: number of tokens that are committed into
    it."""
    return (Convolution if carried.kind == "conv" else Recurrence)(state, length)


def _four(rows: list[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    key, value, decay = rows[:3]
    return key, value, decay, rows[3] if len(rows) > 3 else None


class RecurrentStates:
    """Mixin of `CachedPass` that implements transformers' cache interface for layers with recurrent states."""

    def __init__(
        self, caches: dict[str, Tensor], carried: Sequence[tuple[RecurrentState, ...]], length: Tensor
    ) -> None:
        """caches: by name, recurrent states included; carried: recurrent states of every layer; length int64 [B]:
        committed tokens. `count`: see `CachedPass.set_positions`."""
        named = {each.name(layer): each for layer, its in enumerate(carried) for each in its}
        self.count: Tensor | None = None
        self.branches: Branches | None = None
        """Paths of a tree of tokens, on each of which states move on."""
        self.carried = {name: each for name, each in named.items() if name in caches}
        self.steps = {name: steps_of(each, caches[name], length) for name, each in self.carried.items()}
        self.asked: dict[str, tuple[int, int]] = {}
        """By kind, the layer and the index of the state that was requested last."""

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> None:
        """Return None, for no state: `convolve` receives the rows."""
        self.asked["conv"] = layer_idx, state_idx

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> None:
        """Return None, for no state: `recur` receives the rows."""
        self.asked["state"] = layer_idx, state_idx

    def update_conv_state(self, conv_states: Tensor, layer_idx: int, state_idx: int = 0, **kwargs: object) -> Tensor:
        """Return the rows unchanged: `convolve` receives them next."""
        self.asked["conv"] = layer_idx, state_idx
        return conv_states

    def update_recurrent_state(
        self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0, **kwargs: object
    ) -> None:
        """Do nothing: `recur` receives the rows."""

    def convolve(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Convolve rows [B, 1, T, C] of the state requested last with weight [C, K] -> [B, 1, T, C]."""
        steps = self.steps.get(self._name("conv"))
        if steps is None:  # of a skipped layer, whose output is unused
            return rows
        assert isinstance(steps, Convolution)
        return steps.run(rows, weight, self.count, self.branches)

    def recur(self, query: Tensor, rows: list[Tensor]) -> Tensor:
        """Run the recurrence: query [B, G, T, K], rows as in `Recurrence` -> [B, H, T, V]."""
        steps = self.steps.get(self._name("state"))
        if steps is None:
            return rows[1]
        assert isinstance(steps, Recurrence)
        return steps.run(query, rows, self.count, self.branches)

    def next_state(self, kind: str) -> tuple[int, int]:
        """Return the layer and the index of the state whose rows come now. Rows without a new request belong to the
        next state, as those of the heads that Zamba scans separately."""
        layer, index = self.asked[kind]
        self.asked[kind] = layer, index + 1
        return layer, index

    def _name(self, kind: str) -> str:
        return state_name(kind, *self.next_state(kind))
