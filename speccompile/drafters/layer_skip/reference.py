"""Reference: transformers' whole model over the committed tokens, then the model without the skipped halves over the
bonus token and the drafts, on the whole model's keys and values."""

import torch

from speccompile.compiler.models.eager import attend_eagerly, round_caches
from speccompile.compiler.models.load import load_model
from speccompile.compiler.prove.drafts import DrafterInputs, ReferenceLogits
from speccompile.compiler.prove.reference import Logits, carries_states, whole_caches
from speccompile.compiler.step.layers import skipping
from speccompile.drafters.context import DrafterContext


def teachers(site: DrafterContext) -> list[ReferenceLogits]:
    """Return one reference: the target with some halves of its layers."""
    loaded, layers = load_model(site.target_files.folder, site.shape.max_length), site.drafter.layers
    model = round_caches(loaded, site.inputs.target_cache)
    assert layers is not None, "the plan refuses this kind without"
    attentions, mlps = (set(range(model.config.num_hidden_layers)) - set(its) for its in (layers.attention, layers.mlp))
    attend_eagerly(model)

    @torch.no_grad()
    def logits(fed: DrafterInputs, drafts: list[int]) -> Logits:
        *committed, bonus = fed.known
        caches = whole_caches(model)
        read = [bonus, *drafts]
        model(input_ids=torch.tensor([committed]), use_cache=True, cache=caches)
        parts = [[token] for token in read] if carries_states(caches) else [read]
        with skipping(model, attentions, mlps):
            found = [model(input_ids=torch.tensor([part]), use_cache=True, cache=caches).logits[0] for part in parts]
        return torch.cat(found).float().numpy()

    return [logits]
