"""Some of the target's own layers as drafter: self-speculative decoding (Zhang et al. 2024, Elhoushi et al. 2024)."""

from collections.abc import Collection

from speccompile.step.decoder import Decoder
from speccompile.step.layers import check_layers, find_layers


def skip_layers(decoder: Decoder, kept: Collection[int]) -> Decoder:
    """A decoder over the very same weights that runs the layers in `kept` alone, with caches of its own for them.

    Raises UnsupportedModelError where one of the layers does not exist, or the model's layers cannot be found.
    """
    check_layers(decoder.model, kept)
    skipped = set(range(len(find_layers(decoder.model)))) - set(kept)
    return Decoder(decoder.model, decoder.layers, decoder.shape, skipped)
