"""A separate language model as drafter."""

from speccompile.compiler.step.draft import Drafter
from speccompile.compiler.step.draft.language import DecoderReader
from speccompile.drafters.context import DrafterContext, token_by_token


def make(context: DrafterContext) -> Drafter:
    """Return the drafter with the recipe's model."""
    (decoder,) = context.drafters()
    return token_by_token(
        context, DecoderReader(decoder, target_size=context.vocabulary_size, own=context.own_tokens())
    )
