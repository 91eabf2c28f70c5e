"""A transformers causal LM as a function of tokens, positions and caches."""

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from speccompile.bundle.sources import CROSS_KINDS
from speccompile.compiler.step.attention import CachedPass, attending_through
from speccompile.compiler.step.cross_attention import SOURCE_ROWS
from speccompile.compiler.step.layer_attention import LayerAttention, cache_windows, cached_layers
from speccompile.compiler.step.layers import skipping
from speccompile.compiler.step.positions import at_positions
from speccompile.compiler.step.recurrence import recurring
from speccompile.compiler.step.taps import Taps
from speccompile.contract import FLOAT_CACHE
from speccompile.errors import UnsupportedModelError
from speccompile.plan.caches import FULL, ring_size


@dataclass(frozen=True)
class CacheShape:
    """Shapes of a decoder's caches. `rows` is the length of the static buffers; every shape includes the batch. dtype:
    of stored keys and values, one of `contract.CACHE_DTYPES`. source: rows of the longest source, 0 without any.
    sliding: of layers that see a window, one of `plan.caches.SLIDING`; ring_rows: see `plan.caches.ring_size`."""

    batch_size: int
    rows: int
    max_length: int
    dtype: str = FLOAT_CACHE
    source: int = 0
    sliding: str = FULL
    ring_rows: int | None = None

    def rows_of(self, window: int) -> int:
        """Return the rows of a cache of which the latest `window` are read, 0 for all: `rows`, or fewer in a ring.
        Raise UnsupportedModelError for a ring that is too small."""
        if self.sliding == FULL or not window:
            return self.rows
        least = ring_size(window, self.rows - self.max_length)
        if self.ring_rows is not None and self.ring_rows < least:
            raise UnsupportedModelError(
                f"cache.ring_rows: received {self.ring_rows}, expected {least} or more, for a window of {window} rows",
                hint=f"set cache.ring_rows to {least}, or remove it",
            )
        return min(self.rows, self.ring_rows or least)


class Decoder(nn.Module):
    """The model with the attention hook, and the probe's results about its layers.

    Its runs omit the attention of `skipped` layers, which have no caches, and the MLP of `skipped_mlps`, by default the
    same layers. Decoders may share one model.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: list[LayerAttention],
        shape: CacheShape,
        skipped: Iterable[int] = (),
        skipped_mlps: Iterable[int] | None = None,
    ) -> None:
        super().__init__()
        self.model, self.layers, self.shape, self.skipped = model, layers, shape, frozenset(skipped)
        self.skipped_mlps = self.skipped if skipped_mlps is None else frozenset(skipped_mlps)
        self._logit_index: Tensor | None = None
        model.get_output_embeddings().register_forward_pre_hook(self._keep_rows)

    def _keep_rows(self, head: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        """Gather, before the head, the hidden states whose logits are needed: prefill needs one row, not all."""
        if self._logit_index is None:
            return None
        hidden = inputs[0]
        index = self._logit_index[:, :, None].expand(-1, -1, hidden.shape[-1])
        return (hidden.gather(1, index), *inputs[1:])

    @property
    def skips(self) -> bool:
        """Return whether some attention or MLP is skipped."""
        return bool(self.skipped or self.skipped_mlps)

    def cache_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of caches by name, for each layer whose attention runs or whose keys and values such a
        layer reads: `key.0`, `value.0`, .. [B, G, S, D], one row per token, and its recurrent states."""
        shape, windows = self.shape, cache_windows(self.layers)
        rows = {name: shape.rows_of(windows.get(int(name.rpartition(".")[2]), 0)) for name in self._states()}
        return {
            name: (shape.batch_size, heads, self._size(size, rows[name]), width)
            for name, (heads, size, width) in self._states().items()
        }

    def rings(self) -> dict[int, int]:
        """Return layer -> window, of the layers whose caches are rings."""
        windows = cache_windows(self.layers)
        return {index: window for index, window in windows.items() if self.shape.rows_of(window) < self.shape.rows}

    def empty(self, rows: int) -> list[Tensor]:
        """Return zero-filled caches of one batch slot for `rows` tokens, in the order of `cache_shapes`."""
        shapes = self._states().values()
        return [torch.zeros(1, heads, self._size(size, rows), width) for heads, size, width in shapes]

    def _size(self, size: int, rows: int) -> int:
        return self.shape.source if size == SOURCE_ROWS else rows if size < 0 else size

    def _states(self) -> dict[str, tuple[int, int, int]]:
        kept = cached_layers(self.layers, self.skipped)
        return {name: shape for index in kept for name, shape in self.layers[index].states(index).items()}

    @property
    def is_recurrent(self) -> bool:
        """Return whether a layer that is not skipped has a recurrent state."""
        return any(layer.carried for index, layer in enumerate(self.layers) if index not in self.skipped)

    @property
    def has_source(self) -> bool:
        """Return whether it attends to the source of an encoder."""
        return bool(self.cross_names())

    def cross_names(self) -> list[str]:
        """Return the names of the caches that hold rows of the source: those of all layers, in their order."""
        return [f"{kind}.{index}" for index, layer in enumerate(self.layers) if layer.cross for kind in CROSS_KINDS]

    def begin(self, caches: list[Tensor], length: Tensor, source_length: Tensor | None = None) -> CachedPass:
        """Return a pass over caches of which `length` int64 [B] rows are committed, and over a source of
        `source_length` int64 [B] rows for a decoder that attends to one."""
        windows = [layer.window for layer in self.layers]
        its = windows, self.skipped, self.layers, self.shape.dtype, source_length, self.rings()
        return CachedPass(caches, length, *its)

    def clamp(self, positions: Tensor) -> Tensor:
        """Keep padding after the last token of the longest sequence inside the model's positions."""
        return positions.clamp(max=self.shape.max_length - 1)

    def run(
        self, current: CachedPass, tokens: Tensor, logit_index: Tensor | None = None, taps: Taps | None = None
    ) -> Tensor:
        """Run the model over tokens int64 [B, T], or over embeddings float32 [B, T, H], and return logits float32 [B,
        T, V], or [B, R, V] at `logit_index` int64 [B, R].

        Call `current.set_positions` for these tokens first. Their keys and values stay in the pass. Fills `taps`.
        """
        self._logit_index = logit_index
        skips = skipping(self.model, self.skipped, self.skipped_mlps) if self.skips else nullcontext()
        with attending_through(current), recurring(self.model, current), skips, taps.open() if taps else nullcontext():
            output = call(self.model, tokens, current)
        self._logit_index = None
        return output.logits.to(torch.float32)


def no_tree(decoder: Decoder, role: str) -> UnsupportedModelError:
    """Return the error for a tree given to a model with recurrent states."""
    found = next(each.name(index) for index, layer in enumerate(decoder.layers) for each in layer.carried)
    return UnsupportedModelError(
        f"{role}, {type(decoder.model).__name__}, carries states from token to token, the first is {found}: received a "
        "tree, expected a chain, in which each token follows one",
        hint="give `drafter.tokens` instead of `drafter.tree`",
    )


def call(model: nn.Module, tokens: Tensor, current: CachedPass) -> Any:
    """Return the model's output for tokens int64 [B, T], or for embeddings [B, T, H], at the positions of a pass, which
    is its cache."""
    read = "inputs_embeds" if tokens.is_floating_point() else "input_ids"
    with at_positions(model, current.positions):
        return model(**{read: tokens}, cache=current, position_ids=current.positions, use_cache=True)
