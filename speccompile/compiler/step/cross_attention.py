"""Attention to the source of an encoder: its keys and values were made once, and a round only reads them.

transformers keeps such rows in a cache of their own. `SourcedCache` gives the rows of a pass to its layers as if they
were there already, and the attention hook tells them from a layer's own rows by the tensor itself.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import Cache, EncoderDecoderCache

from speccompile.bundle.sources import CROSS_KINDS, is_cross_state
from speccompile.compiler.step import ops

SOURCE_ROWS = -2
"""Placeholder in the shape of a state for the number of rows of a source."""


class SourceRows(NamedTuple):
    """Keys and values of one layer, float32 [B, G, E, D], as a layer of transformers' caches."""

    keys: Tensor
    values: Tensor


class CrossRows:
    """The rows of a source in a pass. named: all caches of the pass; source_length int64 [B]: rows that count."""

    def __init__(self, named: Mapping[str, Tensor], source_length: Tensor | None) -> None:
        self.source_length = source_length
        self.updated = {name: cache for name, cache in named.items() if not is_cross_state(name)}
        """The caches that a round writes."""
        layers = {int(name.rpartition(".")[2]) for name in named if is_cross_state(name)}
        self.cross = {
            layer: SourceRows(*(named[f"{kind}.{layer}"] for kind in CROSS_KINDS)) for layer in sorted(layers)
        }

    def cross_layer(self, key: Tensor) -> int | None:
        """Return the layer whose keys of the source these are, None for rows of the text."""
        return next((layer for layer, rows in self.cross.items() if rows.keys is key), None)

    def attend_source(self: Any, query: Tensor, layer: int, scaling: float | None, softcap: float) -> Tensor:
        """Attend to the source: [B, N, T, D] -> [B, N, T, D], by `ops.attend` without any in-step row."""
        assert self.source_length is not None, "a pass over a source knows its length"
        rows = self.cross[layer]
        none = query.new_zeros((query.shape[0], rows.keys.shape[1], 0, rows.keys.shape[3]))
        places = torch.zeros(query.shape[0], query.shape[2], dtype=torch.int64, device=query.device)
        bias = query.new_zeros((query.shape[0], 1, query.shape[2], 0))
        scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
        own = (self.stored(kind, none) for kind in CROSS_KINDS)  # codes beside codes
        found: Tensor = ops.attend(query, *own, *rows, self.source_length, places, bias, scale, softcap, 0, None, False)
        return found


class SourcedCache(EncoderDecoderCache):
    """A pass and the rows of its source as transformers' layers expect them: the latter are complete. A layer that is
    skipped has none, and reads those of another for an output that is unused."""

    def __init__(self, current: Any) -> None:
        self.self_attention_cache: Cache = current
        every, unused = range(len(current.layers)), next(iter(current.cross.values()))
        self.cross_attention_cache: Any = _Layers({layer: current.cross.get(layer, unused) for layer in every})
        self.is_updated = dict.fromkeys(every, True)


class _Layers:
    """Cache of transformers, as far as layers use it, over the rows of a source. rows: layer -> keys and values."""

    def __init__(self, rows: Mapping[int, SourceRows]) -> None:
        self.layers = rows

    def get_seq_length(self, layer: int = 0) -> int:
        return int(self.layers[layer].keys.shape[2])
