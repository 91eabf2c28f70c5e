"""Some of the target's own layers as drafter: self-speculative decoding (Zhang et al. 2024, Elhoushi et al. 2024)."""

from collections.abc import Collection

from speccompile.families.site import Site, token_by_token
from speccompile.step.decoder import Decoder
from speccompile.step.draft import Drafter
from speccompile.step.draft.exits import ExitReader
from speccompile.step.draft.language import DecoderReader
from speccompile.step.layers import check_layers, find_layers


def make(site: Site) -> Drafter:
    """Drafts with the layers that the recipe names: over the target's caches where they are its first ones."""
    decoder = skip_layers(site.target(), site.plan.drafter.layers)
    reads_caches = site.plan.drafter.reads_caches
    return token_by_token(site, ExitReader(decoder) if reads_caches else DecoderReader(decoder))


def skip_layers(decoder: Decoder, kept: Collection[int]) -> Decoder:
    """A decoder over the very same weights that runs the layers in `kept` alone, with caches for these alone.

    Raises UnsupportedModelError where one of the layers does not exist, or the model's layers cannot be found.
    """
    check_layers(decoder.model, kept)
    skipped = set(range(len(find_layers(decoder.model)))) - set(kept)
    return Decoder(decoder.model, decoder.layers, decoder.shape, skipped)
