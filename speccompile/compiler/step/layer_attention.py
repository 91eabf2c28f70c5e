"""Attention and caches of the layers of a decoder, as the probe finds them and the export uses them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from speccompile.bundle.sources import CROSS_KINDS
from speccompile.compiler.step.cross_attention import SOURCE_ROWS
from speccompile.compiler.step.recurrent_state import RecurrentState


@dataclass(frozen=True)
class LayerAttention:
    """Attention and recurrent states of one layer. Found by the probe, used by the export.

    key_shape, value_shape: heads and width, no heads in a layer that does not attend. window: number of latest
    positions that are seen, 0 for all, -n for those of the position's own chunk of n (Llama 4). source: the earlier
    layer whose keys and values it attends to, None for its own. cross: heads and width of a row of its attention to
    the source of an encoder, None without.
    """

    key_shape: tuple[int, int]
    value_shape: tuple[int, int]
    window: int
    carried: tuple[RecurrentState, ...] = ()
    source: int | None = None
    cross: tuple[int, int] | None = None

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "LayerAttention":
        """Return the layer with these fields."""
        carried = tuple(map(RecurrentState.from_json, data["carried"]))
        shapes = tuple(data["key_shape"]), tuple(data["value_shape"])
        return cls(*shapes, data["window"], carried, data["source"], tuple(data["cross"]) if data["cross"] else None)

    def states(self, layer: int) -> dict[str, tuple[int, int, int]]:
        """Return the cached buffers of this layer by name, in the order of the caches: the shape for one batch slot,
        whose second size is -1 if there is a row for every token, SOURCE_ROWS if there is one for each of a source."""
        shapes = {"key": self.key_shape, "value": self.value_shape} if self.source is None else {}
        rows = {f"{kind}.{layer}": (heads, -1, width) for kind, (heads, width) in shapes.items() if heads}
        if self.cross is not None:
            heads, width = self.cross
            rows |= {f"{kind}.{layer}": (heads, SOURCE_ROWS, width) for kind in CROSS_KINDS}
        return rows | {each.name(layer): each.shape for each in self.carried}


def cached_layers(layers: Sequence[LayerAttention], skipped: Collection[int]) -> list[int]:
    """Return the layers that have cached buffers: those that are not skipped, and those whose keys they attend to."""
    run = {index: layer for index, layer in enumerate(layers) if index not in skipped}
    return sorted({*run, *(layer.source for layer in run.values() if layer.source is not None)})


def cache_windows(layers: Sequence[LayerAttention]) -> dict[int, int]:
    """Return the number of latest positions that are read from the caches of each layer that has some: of the layer's
    own queries and of those of later layers that attend to its rows. 0: all."""
    found: dict[int, list[int]] = {}
    for index, layer in enumerate(layers):
        if layer.key_shape[0]:
            found.setdefault(index if layer.source is None else layer.source, []).append(abs(layer.window))
    return {index: max(windows) if all(windows) else 0 for index, windows in found.items()}
