"""The hook for layers that keep a state: convolutions and linear recurrences, as transformers' modeling code has them.

Its decoder layers ask the cache for their states, and hand rows to a few functions of their module, which are the same
in all architectures. While a model runs in a `Pass`, the pass answers that there are no states, and `REPLACED` stand
where those functions do: they take the state from the pass, and leave there the rows by which it moves on. So a state
is read before the window, and written once, as it is after the tokens that were accepted.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.activations import ACT2FN

from speccompile.errors import UnsupportedModelError
from speccompile.replaced import replaced
from speccompile.step import ops
from speccompile.step.own_recurrences import OWN, with_own

if TYPE_CHECKING:
    from speccompile.step.attention import Pass


def state_name(kind: str, layer: int, index: int) -> str:
    """`conv.3`, `state.3`, `conv.3.1`: of the state `index` among those of its kind in a layer."""
    return f"{kind}.{layer}" + (f".{index}" if index else "")


@dataclass(frozen=True)
class Carried:
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
    def from_json(cls, data: dict[str, Any]) -> "Carried":
        """Of its fields."""
        return cls(data["kind"], data["index"], tuple(data["shape"]), data["rows"])


class Steps(ABC):
    """A state in one pass: the rows of all runs in the order in which they were made, each tensor [B, G, T, D]."""

    def __init__(self, state: Tensor, length: Tensor) -> None:
        """state: as it is committed; length int64 [B]: where it is 0, the state counts as zeros."""
        self.state, self.length = state, length
        self.rows: list[Tensor] = []
        self._last: tuple[list[Tensor], Tensor] | None = None

    def take(self, rows: list[Tensor], count: Tensor | None) -> None:
        """A run begins with these rows, of which the first `count` int64 [B] are no padding; None: all. What follows
        reads the state as the runs before have left it."""
        if self._last is not None:
            last, taken = self._last
            self.state, self.length = self.after(last, taken), torch.ones_like(self.length)
        width = rows[0].shape[2]
        self._last = rows, torch.full_like(self.length, width) if count is None else count
        self.rows = [torch.cat(pair, 2) for pair in zip(self.rows, rows, strict=True)] if self.rows else rows

    @abstractmethod
    def after(self, rows: list[Tensor], count: Tensor) -> Tensor:
        """The state after the first `count` int64 [B] of some rows; as it was where that is 0."""


class Convolution(Steps):
    """Rows [B, 1, T, C] of its input; the state holds the last K - 1 of them."""

    def _begun(self) -> Tensor:
        return torch.where((self.length > 0)[:, None, None, None], self.state, 0.0)

    def after(self, rows: list[Tensor], count: Tensor) -> Tensor:
        return ops.shift(rows[0], self.state, self.length, count)

    def run(self, rows: Tensor, weight: Tensor, count: Tensor | None) -> Tensor:
        """The convolution at every row."""
        self.take([rows], count)
        return ops.convolve(rows, self._begun(), weight)


class Recurrence(Steps):
    """Rows key [B, G, T, K], value [B, H, T, V], decay [B, H, T, 1 or K], and beta [B, H, T, 1] of a delta rule."""

    def after(self, rows: list[Tensor], count: Tensor) -> Tensor:
        key, value, decay, beta = _four(rows)
        return ops.advance(key, value, decay, beta, self.state, self.length, count)

    def run(self, query: Tensor, rows: list[Tensor], count: Tensor | None) -> Tensor:
        """What the recurrence gives at every row."""
        self.take(rows, count)
        key, value, decay, beta = _four(rows)
        return ops.recur(query, key, value, decay, beta, self.state, self.length)


def steps_of(carried: Carried, state: Tensor, length: Tensor) -> Steps:
    """One pass over a state [B, ..] of which the last of `length` int64 [B] tokens has been committed."""
    return (Convolution if carried.kind == "conv" else Recurrence)(state, length)


def _four(rows: list[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    key, value, decay = rows[:3]
    return key, value, decay, rows[3] if len(rows) > 3 else None


@contextmanager
def recurring(model: nn.Module, current: "Pass") -> Iterator[None]:
    """Inside, the model's convolutions and recurrences go through `current`."""
    with ExitStack() as places:
        for module in {sys.modules[type(each).__module__] for each in model.modules()}:
            for name in REPLACED.keys() & vars(module).keys():
                places.enter_context(replaced(module, name, _through(current, REPLACED[name])))
            if hasattr(module, "MiniMaxCache"):  # it insists on a cache of its own class
                places.enter_context(replaced(module, "MiniMaxCache", type(current)))
        for layer, each in with_own(model):
            places.enter_context(OWN[type(each).__name__](current, each, layer))
        yield


def _through(current: "Pass", function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        return function(current, *args, **kwargs)

    return called


def _rows(tensor: Tensor) -> Tensor:
    """[B, T, H, D] -> float32 [B, H, T, D]."""
    return tensor.transpose(1, 2).float()


def _convolution(
    current: "Pass", hidden_states: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str | None = None,
    **more: object,
) -> Tensor:  # fmt: skip
    """`causal_conv1d_fn`: hidden_states [B, C, T], which the pass was shown as the rows of a state; weight [C, K]."""
    rows = hidden_states.transpose(1, 2)[:, None]
    result = current.convolve(rows, weight)[:, 0]
    result = result if bias is None else result + bias
    result = result if activation is None else ACT2FN[activation](result)
    return result.transpose(1, 2).contiguous()


def _delta_rule(
    current: "Pass", query: Tensor, key: Tensor, value: Tensor, g: Tensor, beta: Tensor, *args: object,
    use_qk_l2norm_in_kernel: bool = False, **more: object,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The gated delta rule: query, key [B, T, G, K], value [B, T, H, V], beta [B, T, H]; g, the logarithm of the decay,
    [B, T, H], or [B, T, H, K] as Kimi has it."""
    queries, keys, values = _rows(query), _rows(key), _rows(value)
    if use_qk_l2norm_in_kernel:
        queries, keys = _normalized(queries), _normalized(keys)
    decay = _rows(g) if g.dim() == 4 else _rows(g[..., None])
    result = current.recur(queries * queries.shape[-1] ** -0.5, [keys, values, decay, _rows(beta[..., None])])
    return result.transpose(1, 2).contiguous().to(query.dtype), _no_state(result)


def _normalized(rows: Tensor) -> Tensor:
    return rows * torch.rsqrt((rows * rows).sum(-1, keepdim=True) + 1e-6)


def _mamba2(
    current: "Pass", hidden_states: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, chunk_size: int,
    D: Tensor | None = None, dt_bias: Tensor | None = None, initial_states: Tensor | None = None,
    dt_softplus: bool = False, dt_limit: tuple[float, float] = (0.0, float("inf")), return_final_states: bool = False,
    z: Tensor | None = None, **more: object,
) -> Any:  # fmt: skip
    """`mamba2_chunk_scan`: hidden_states [B, T, H, V], dt [B, T, H], A [H], B and C [B, T, G, K], D [H]."""
    step = _step_sizes(dt if dt_bias is None else dt + dt_bias, softplus=dt_softplus).clamp(*dt_limit)
    values = hidden_states.float() * step[..., None].float()
    decay = (A.float() * step.float())[..., None]
    result = current.recur(_rows(C), [_rows(B), _rows(values), _rows(decay)]).transpose(1, 2).contiguous()
    result = result if D is None else result + D[:, None] * hidden_states.float()
    if z is not None:
        raise UnsupportedModelError("its scan is given a gate, which no architecture of transformers 5.24 does")
    return (result, _no_state(result)) if return_final_states else result


def _mamba(
    current: "Pass", hidden_states: Tensor, dt: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None = None,
    z: Tensor | None = None, delta_bias: Tensor | None = None, delta_softplus: bool = False,
    return_last_state: bool = False, **more: object,
) -> Any:  # fmt: skip
    """`mamba_selective_scan`: hidden_states, dt, z [B, C, T], A [C, K], B and C [B, K, T], D [C]. Every channel is a
    head of one value; the key channels are its states."""
    step = _step_sizes(dt if delta_bias is None else dt + delta_bias[:, None], softplus=delta_softplus).float()
    decay = A[:, None, :] * step[..., None]  # [B, C, T, K]
    values = (hidden_states.float() * step)[..., None]
    keys, queries = (each.transpose(1, 2)[:, None].float() for each in (B, C))
    result = current.recur(queries, [keys, values, decay])[..., 0]
    result = result if D is None else result + hidden_states * D[:, None]
    result = result if z is None else result * functional.silu(z)
    return (result, _no_state(result)) if return_last_state else result


def _no_state(result: Tensor) -> Tensor:
    """What is handed to the cache as the state after a run: the pass does not read it."""
    return result.new_empty(0)


def _step_sizes(dt: Tensor, *, softplus: bool) -> Tensor:
    return functional.softplus(dt) if softplus else dt


REPLACED: dict[str, Callable[..., Any]] = {
    "causal_conv1d_fn": _convolution,
    "torch_chunk_gated_delta_rule": _delta_rule,
    "chunk_kimi_delta_attention": _delta_rule,
    "mamba2_chunk_scan": _mamba2,
    "mamba_selective_scan": _mamba,
}
"""Name in a modeling module -> what stands for it, given the pass. The forms for one token alone, as
`causal_conv1d_update`, are never called: the pass has no states to give."""


class CarriedStates:
    """The part of a `Pass` that layers with states ask: mixed into it, so that transformers' calls arrive here."""

    def __init__(self, caches: dict[str, Tensor], carried: Sequence[tuple[Carried, ...]], length: Tensor) -> None:
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

    def claim(self, kind: str) -> tuple[int, int]:
        """The layer and the index of the state whose rows come now. Rows that follow unasked are the next state's, as
        those of the heads that Zamba scans one by one."""
        layer, index = self.asked[kind]
        self.asked[kind] = layer, index + 1
        return layer, index

    def _name(self, kind: str) -> str:
        return state_name(kind, *self.claim(kind))
