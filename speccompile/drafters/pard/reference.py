"""transformers' own forward over the whole text and mask tokens behind it."""

from speccompile.compiler.prove.drafts import Fed, Teacher
from speccompile.compiler.prove.reference import Logits
from speccompile.drafters.model.reference import teachers as language_teachers
from speccompile.drafters.site import Site


def teachers(site: Site) -> list[Teacher]:
    """The model alone. Of the drafts only their number matters."""
    (teacher,), token = language_teachers(site), site.plan.drafter.mask_token
    assert token is not None, "the plan reads it"

    def logits(fed: Fed, drafts: list[int]) -> Logits:
        return teacher(fed, [token] * len(drafts))

    return [logits]
