"""The source of a model while its attention is probed."""

import torch
from torch import Tensor

from speccompile.compiler.models.sourced import EAGER, SourcedModel, fill_cross
from speccompile.compiler.step.cross_attention import SourceRows
from speccompile.compiler.step.decoder import Decoder


def empty_caches(decoder: Decoder, rows: int, hook: str) -> list[Tensor]:
    """Return caches for `rows` tokens, with the rows of the source that the model has read, if it reads one. hook: name
    of the attention that is set again."""
    caches = decoder.empty(rows)
    if isinstance(decoder.model, SourcedModel):
        fill_cross(list(decoder.cache_shapes()), caches, cross_rows(decoder.model, hook))
    return caches


def source_length(decoder: Decoder) -> Tensor | None:
    """Return int64 [1]: tokens of the source that the model has read, None without a source."""
    encoded = decoder.model.encoded if isinstance(decoder.model, SourcedModel) else None
    return None if encoded is None else torch.tensor([encoded.shape[1]])


def cross_rows(model: SourcedModel, hook: str) -> list[SourceRows]:
    """Return the rows of the source that the model has read. hook: name of the attention that is set again."""
    assert model.encoded is not None, "a source is read before"
    model.set_attn_implementation(EAGER)
    rows = model.cross_rows(model.encoded)
    model.set_attn_implementation(hook)
    return rows
