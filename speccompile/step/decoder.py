"""A transformers causal LM as a function of tokens, positions and caches."""

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from speccompile.step.attention import LayerAttention, Pass, running
from speccompile.step.layers import skipping
from speccompile.step.taps import Taps


@dataclass(frozen=True)
class CacheShape:
    """Shapes of a decoder's caches: `rows` is the length of the static buffers, batch included in every shape."""

    batch_size: int
    rows: int
    max_length: int


class Decoder(nn.Module):
    """The model behind the attention hook, with what the probe found out about its layers.

    `skipped` layers are left out of its runs, and have no caches. Decoders may share one model.
    """

    def __init__(
        self, model: nn.Module, layers: list[LayerAttention], shape: CacheShape, skipped: Iterable[int] = ()
    ) -> None:
        super().__init__()
        self.model, self.layers, self.shape, self.skipped = model, layers, shape, frozenset(skipped)
        self._logit_index: Tensor | None = None
        model.get_output_embeddings().register_forward_pre_hook(self._keep_rows)

    def _keep_rows(self, head: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        """Gather the hidden states whose logits are wanted before the head: prefill needs one row, not all."""
        if self._logit_index is None:
            return None
        hidden = inputs[0]
        index = self._logit_index[:, :, None].expand(-1, -1, hidden.shape[-1])
        return (hidden.gather(1, index), *inputs[1:])

    def cache_shapes(self) -> list[tuple[int, ...]]:
        """Key and value of the first layer that is not skipped, of the second, ..: [B, G, S, D]."""
        return [
            (self.shape.batch_size, heads, self.shape.rows, width)
            for index, layer in enumerate(self.layers)
            if index not in self.skipped
            for heads, width in (layer.key_shape, layer.value_shape)
        ]

    def begin(self, caches: list[Tensor], length: Tensor) -> Pass:
        """A pass over caches of which `length` int64 [B] rows are committed."""
        return Pass(caches, length, [layer.window for layer in self.layers], self.skipped)

    def clamp(self, positions: Tensor) -> Tensor:
        """Keep padding behind the last token of the longest sequence inside the model's positions."""
        return positions.clamp(max=self.shape.max_length - 1)

    def run(self, current: Pass, tokens: Tensor, logit_index: Tensor | None = None, taps: Taps | None = None) -> Tensor:
        """tokens int64 [B, T] -> logits float32 [B, T, V], or [B, R, V] at `logit_index` int64 [B, R].

        `current.look` must have been called for these tokens. Their keys and values stay in the pass. Fills `taps`.
        """
        self._logit_index = logit_index
        skips = skipping(self.model, self.skipped) if self.skipped else nullcontext()
        with running(current), skips, taps.open() if taps else nullcontext():
            output = self.model(
                input_ids=tokens, position_ids=current.positions, past_key_values=current, use_cache=True
            )
        self._logit_index = None
        return output.logits.to(torch.float32)
