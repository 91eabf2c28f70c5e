"""transformers' own model over all that was committed, then without what is skipped over the bonus token and the
drafts, on the keys and values that the whole model left."""

import torch

from speccompile.families.site import Site
from speccompile.models.load import load_model
from speccompile.prove.drafts import Fed, Teacher
from speccompile.prove.reference import Logits, carries_states, whole_caches
from speccompile.step.layers import skipping


def teachers(site: Site) -> list[Teacher]:
    """The target with some halves of its layers."""
    model, layers = load_model(site.plan.target.folder, site.plan.max_length), site.plan.drafter.layers
    assert layers is not None, "the plan refuses this kind without"
    attentions, mlps = (set(range(model.config.num_hidden_layers)) - set(its) for its in (layers.attention, layers.mlp))
    model.set_attn_implementation("eager")

    @torch.no_grad()
    def logits(fed: Fed, drafts: list[int]) -> Logits:
        *committed, bonus = fed.known
        caches = whole_caches(model)
        read = [bonus, *drafts]
        model(input_ids=torch.tensor([committed]), use_cache=True, cache=caches)
        parts = [[token] for token in read] if carries_states(caches) else [read]
        with skipping(model, attentions, mlps):
            found = [model(input_ids=torch.tensor([part]), use_cache=True, cache=caches).logits[0] for part in parts]
        return torch.cat(found).float().numpy()

    return [logits]
