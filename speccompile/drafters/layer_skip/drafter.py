"""Some of the target's layers as drafter: self-speculative decoding (Zhang et al. 2024, Elhoushi et al. 2024)."""

from collections.abc import Collection

from speccompile.compiler.models.sublayers import check_sublayers
from speccompile.compiler.step.decoder import Decoder
from speccompile.compiler.step.draft import Drafter
from speccompile.compiler.step.draft.target_layers import LayersReader
from speccompile.compiler.step.layers import check_layers, find_layers
from speccompile.drafters.context import DrafterContext, token_by_token


def make(context: DrafterContext) -> Drafter:
    """Return the drafter with the layers, or halves of layers, that the recipe names, over the target's KV cache."""
    layers = context.drafter.layers
    assert layers is not None, "the plan refuses this kind without"
    reader, media = LayersReader(skip_layers(context.target(), layers.attention, layers.mlp)), context.inputs.media
    reader.media = media if media is not None and media.axes else None  # behind a picture, positions alone differ
    return token_by_token(context, reader)


def skip_layers(decoder: Decoder, attentions: Collection[int], mlps: Collection[int] | None = None) -> Decoder:
    """Return a decoder over the same weights that runs these attention and MLP halves alone, with caches for the
    attention halves. mlps: by default those of the same layers.

    Raise UnsupportedModelError if a layer does not exist, the model's layers cannot be found, or a half cannot be
    skipped alone.
    """
    kept = (set(attentions), set(attentions if mlps is None else mlps))
    check_layers(decoder.model, set.union(*kept))
    every = set(range(len(find_layers(decoder.model))))
    check_sublayers(decoder.model, kept[0] ^ kept[1])
    return Decoder(decoder.model, decoder.layers, decoder.shape, *(every - its for its in kept))
