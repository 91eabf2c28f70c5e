"""A language model of its own as drafter."""

from speccompile.families.site import Site, token_by_token
from speccompile.step.draft import Drafter
from speccompile.step.draft.language import DecoderReader


def make(site: Site) -> Drafter:
    """Drafts with the recipe's model."""
    (decoder,) = site.drafters()
    return token_by_token(site, DecoderReader(decoder, target_size=site.plan.target.facts.vocabulary_size))
