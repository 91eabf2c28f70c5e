"""transformers' own forward over the whole text."""

from speccompile.families.site import Site
from speccompile.models.load import load_model
from speccompile.prove.drafts import Teacher, teacher


def teachers(site: Site) -> list[Teacher]:
    """One for each model."""
    return [teacher(load_model(each.folder, site.plan.max_length)) for each in site.plan.drafter.models]
