"""transformers' own forward over the whole text, without the layers that are skipped."""

from speccompile.families.site import Site
from speccompile.models.load import load_model
from speccompile.prove.drafts import Teacher, teacher


def teachers(site: Site) -> list[Teacher]:
    """The target with some of its layers."""
    model = load_model(site.plan.target.folder, site.plan.max_length)
    skipped = sorted(set(range(model.config.num_hidden_layers)) - set(site.plan.drafter.layers))
    return [teacher(model, skipped)]
