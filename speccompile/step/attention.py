"""The attention hook: every transformers decoder attends through here, and no model file is copied.

transformers asks three things of a decoder layer: a mask (from the mask interface), its keys and values (put into the
cache), and the attention itself (from the attention interface). All three lead to one `Pass`: the mask interface hands
out a `MaskTag`, the cache keeps the in-step rows, and the attention function calls `speccompile::attend`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.masking_utils import AttentionMaskInterface

from speccompile.errors import UnsupportedModelError
from speccompile.step import ops

HOOK = "speccompile"

# Arguments of transformers' attention functions that change nothing here: bookkeeping, or said again by the mask.
_WITHOUT_EFFECT = {
    "cache_position",
    "dropout",
    "is_causal",
    "output_attentions",
    "output_router_logits",
    "past_key_values",
    "position_embeddings",
    "position_ids",
    "sliding_window",
    "target_dtype",
    "use_cache",
}


@dataclass(frozen=True)
class LayerAttention:
    """How one layer attends; window 0 and softcap 0.0 mean none. Found by the probe, used by the export."""

    key_shape: tuple[int, int]  # heads, width
    value_shape: tuple[int, int]
    window: int

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "LayerAttention":
        """Of its fields."""
        return cls(tuple(data["key_shape"]), tuple(data["value_shape"]), data["window"])


@dataclass(frozen=True)
class MaskTag:
    """Stands where transformers would put a mask tensor: `visible(batch, head, query, key)`, on index tensors."""

    visible: Callable[..., Tensor]


class Rows(CacheLayerMixin):
    """In-step keys and values of one layer, in the order in which they were made."""

    is_compileable = True
    is_sliding = False
    n_seen = 0
    """What a model is told when it asks how many tokens the cache holds. It must not matter: positions are given."""

    def __init__(self) -> None:
        super().__init__()
        self.is_initialized = True
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to prepare: rows are kept as they come."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        self.keys = key_states if self.keys is None else torch.cat([self.keys, key_states], 2)
        self.values = value_states if self.values is None else torch.cat([self.values, value_states], 2)
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0

    def get_seq_length(self) -> int:
        return self.n_seen

    def get_max_length(self) -> int:
        return -1


class Pass(Cache):
    """One round of a decoder: in-step rows over committed caches. A drafter runs several windows in one pass."""

    def __init__(
        self, caches: list[Tensor], length: Tensor, windows: list[int], skipped: frozenset[int] = frozenset()
    ) -> None:
        """caches: key and value of each layer that is not skipped; length int64 [B]; windows: attention window of every
        layer; skipped: layers whose output is thrown away."""
        super().__init__(layers=[Rows() for _ in windows])
        self.kept = [layer for layer in range(len(windows)) if layer not in skipped]
        self.caches, self.length, self.windows = caches, length, windows
        self.positions = self.row_positions = length[:, None]
        self.visible: Tensor | None = None
        self.biases: dict[int, Tensor] = {}

    def look(self, positions: Tensor, row_positions: Tensor, visible: Tensor) -> None:
        """Set what the next run of the decoder may see.

        positions int64 [B, T] of the queries, row_positions int64 [B, R] of all in-step rows, visible bool [B, T, R].
        """
        self.positions, self.row_positions, self.visible, self.biases = positions, row_positions, visible, {}

    def bias(self, window: int) -> Tensor:
        """float32 [B, 1, T, R], added to the scores of in-step rows by a layer with this attention window."""
        if window not in self.biases:
            visible = self.visible
            if window > 0:
                visible = visible & (self.positions[:, :, None] - self.row_positions[:, None, :] < window)
            self.biases[window] = torch.where(visible, 0.0, ops.HIDDEN)[:, None]
        return self.biases[window]

    def attend(self, layer: int, query: Tensor, tag: object, scale: float, softcap: float) -> Tensor:
        """[B, N, T, D] -> [B, N, T, E]; the layer's rows have just been put into this cache."""
        rows, window = self.layers[layer], self.windows[layer]
        if layer not in self.kept:
            return query.new_zeros((*query.shape[:3], rows.values.shape[3]))
        place = 2 * self.kept.index(layer)
        keys, values = self.caches[place : place + 2]
        return ops.attend(
            query, rows.keys, rows.values, keys, values, self.length, self.positions, self.bias(window).to(query.dtype),
            scale, softcap, window,
        )  # fmt: skip

    def commit(self, rows: list[Tensor]) -> list[Tensor]:
        """The caches with some rows [B, G, R, D] behind what is committed, in the order of the caches."""
        pairs = zip(self.caches, rows, strict=True)
        return [ops.commit(cache, row, self.length, 2) for cache, row in pairs]

    def rows(self) -> list[Tensor]:
        """The in-step keys and values, in the order of the caches: each [B, G, R, D]."""
        return [row for layer in self.kept for row in (self.layers[layer].keys, self.layers[layer].values)]


_current: ContextVar[Pass] = ContextVar("current_pass")


@contextmanager
def running(current: Pass) -> Iterator[None]:
    """Everything that attends inside attends through `current`."""
    token = _current.set(current)
    try:
        yield
    finally:
        _current.reset(token)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: object,
    scaling: float | None = None,
    softcap: float | None = None,
    **more: object,
) -> tuple[Tensor, None]:
    current, layer = _current.get(), getattr(module, "layer_idx", None)
    unknown = sorted(name for name, given in more.items() if given is not None and name not in _WITHOUT_EFFECT)
    if unknown:
        raise UnsupportedModelError(f"{type(module).__name__} passes {', '.join(unknown)} to its attention")
    if layer is None or key is not current.layers[layer].keys or value is not current.layers[layer].values:
        raise UnsupportedModelError(f"{type(module).__name__} changes keys or values between its cache and attention")
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    context = current.attend(layer, query, attention_mask, scale, float(softcap or 0.0))
    return context.transpose(1, 2).contiguous(), None


def _mask(*args: object, mask_function: Callable[..., Tensor], **kwargs: object) -> MaskTag:
    return MaskTag(mask_function)


AttentionInterface.register(HOOK, _attention)
AttentionMaskInterface.register(HOOK, _mask)
