"""Reference: transformers' forward over the whole text and the mask tokens after it."""

from speccompile.compiler.prove.drafts import DrafterInputs, ReferenceLogits
from speccompile.compiler.prove.reference import Logits
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.model.reference import teachers as language_teachers


def teachers(context: DrafterContext) -> list[ReferenceLogits]:
    """Return one reference: the model. Its logits depend on the number of drafts, not on their tokens."""
    token = context.drafter.mask_token
    assert token is not None, "the plan reads it"
    (teacher,) = language_teachers(context, token)

    def logits(fed: DrafterInputs, drafts: list[int]) -> Logits:
        return teacher(fed, [token] * len(drafts))

    return [logits]
