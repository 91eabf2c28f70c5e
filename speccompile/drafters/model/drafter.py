"""A separate language model as drafter."""

from speccompile.compiler.step.draft import Drafter
from speccompile.compiler.step.draft.language import DecoderReader
from speccompile.drafters.context import DrafterContext, token_by_token


def make(site: DrafterContext) -> Drafter:
    """Return the drafter with the recipe's model."""
    (decoder,) = site.drafters()
    return token_by_token(site, DecoderReader(decoder, target_size=site.vocabulary_size, own=site.own_tokens()))
