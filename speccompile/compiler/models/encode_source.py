"""Encoding of a source, once a request: keys and values of every cross-attention of a decoder."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from speccompile.bundle.sources import FRAMES_PER_ROW
from speccompile.compiler.models.sourced import EAGER, SourcedModel
from speccompile.compiler.models.speech import hears
from speccompile.compiler.step import ops
from speccompile.compiler.step.attention import stored_rows
from speccompile.compiler.step.decoder import Decoder

ALONE, WRITES, READS = "alone", "writes", "reads"
"""Use of an encoder's states: one decoder's own, also written for another decoder, or read instead of encoding."""


class SourceInputs(NamedTuple):
    """Input of an encoder. source int64 [B, n]: all tokens of a source; the requests of a batch have equal lengths. Of
    a model that hears float32 [B, M, F]: features. encoded float32 [B, E, H]: states of another model's encoder, in
    place of a source."""

    source: Tensor | None = None
    encoded: Tensor | None = None


class Encoded(NamedTuple):
    """Output of an encoder: the caches of its decoder's cross-attention, float32 [B, G, E, D], in their order. encoded
    float32 [B, E, H]: the encoder's states."""

    caches: list[Tensor]
    encoded: Tensor


class EncodeSource(nn.Module):
    """Module that writes the rows of a source into the first rows of the caches, and keeps the others."""

    def __init__(self, decoder: Decoder, sharing: str = ALONE) -> None:
        """decoder: of a model with an encoder, as its source's readers have it. sharing: ALONE, WRITES or READS."""
        super().__init__()
        assert isinstance(decoder.model, SourcedModel), "a decoder alone has no source"
        self.model, self.shape, self.sharing = decoder.model, decoder.shape, sharing
        config = decoder.model.whole.config
        self.feature_shape = (
            (config.num_mel_bins, FRAMES_PER_ROW * config.max_source_positions) if hears(config) else None
        )
        """Shape [M, F] of the features of a sound, None for a model of texts."""
        self.states = (self.shape.source, int(config.d_model)) if sharing != ALONE else None
        """Shape of the states of an encoder that two decoders read."""
        self.names = decoder.cross_names()
        self.shapes = {name: shape for name, shape in decoder.cache_shapes().items() if name in self.names}

    def forward(self, given: SourceInputs, caches: list[Tensor]) -> Encoded:
        self.model.set_attn_implementation(EAGER)
        encoded = self._states(given)
        rows = [each for layer in self.model.cross_rows(encoded) for each in layer]
        found = [stored_rows(each, self.shape.dtype, name) for each, name in zip(rows, self.names, strict=True)]
        start = torch.zeros(encoded.shape[0], dtype=torch.int64, device=encoded.device)
        updated = [ops.commit(cache, each, start, 2) for cache, each in zip(caches, found, strict=True)]
        return Encoded(updated, encoded)

    def _states(self, given: SourceInputs) -> Tensor:
        if given.encoded is not None:
            return given.encoded
        assert given.source is not None, "a source, or the states of its encoder"
        return self.model.encode(given.source)
