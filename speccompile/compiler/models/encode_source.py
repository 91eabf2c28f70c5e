"""Encoding of a source, once a request: keys and values of every cross-attention of a decoder."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from speccompile.bundle.sources import FRAMES_PER_ROW
from speccompile.compiler.models.sourced import EAGER, SourcedModel
from speccompile.compiler.models.speech import hears
from speccompile.compiler.step import ops
from speccompile.compiler.step.decoder import Decoder


class SourceInputs(NamedTuple):
    """Input of an encoder. source int64 [B, n]: all tokens of a source; the requests of a batch have equal lengths. Of
    a model that hears float32 [B, M, F]: features."""

    source: Tensor


class Encoded(NamedTuple):
    """Output of an encoder: the caches of its decoder's cross-attention, float32 [B, G, E, D], in their order."""

    caches: list[Tensor]


class EncodeSource(nn.Module):
    """Writes the rows of a source into the first rows of the caches: others keep what they hold."""

    def __init__(self, decoder: Decoder) -> None:
        """decoder: of a model with an encoder, as its source's readers have it."""
        super().__init__()
        assert isinstance(decoder.model, SourcedModel), "a decoder alone has no source"
        self.model, self.shape = decoder.model, decoder.shape
        config = decoder.model.whole.config
        self.heard = (config.num_mel_bins, FRAMES_PER_ROW * config.max_source_positions) if hears(config) else None
        """Shape of the features of a sound, None for a model of texts."""
        self.names = decoder.cross_names()
        self.shapes = {name: shape for name, shape in decoder.cache_shapes().items() if name in self.names}

    def forward(self, given: SourceInputs, caches: list[Tensor]) -> Encoded:
        self.model.set_attn_implementation(EAGER)
        rows = self.model.cross_rows(self.model.encode(given.source))
        found = [each for layer in rows for each in layer]
        start = torch.zeros(given.source.shape[0], dtype=torch.int64, device=given.source.device)
        return Encoded([ops.commit(cache, each, start, 2) for cache, each in zip(caches, found, strict=True)])
