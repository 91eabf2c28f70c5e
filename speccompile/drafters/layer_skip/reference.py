"""Reference: transformers' whole model over the committed tokens, then the model without the skipped halves over the
bonus token and the drafts, on the whole model's keys and values."""

import torch

from speccompile.compiler.models.eager import attend_eagerly, round_caches
from speccompile.compiler.models.load import load_model
from speccompile.compiler.prove.drafts import DrafterInputs, ReferenceLogits
from speccompile.compiler.prove.reference import Logits, carries_states
from speccompile.compiler.step.layers import skipping
from speccompile.compiler.step.positions import at_positions
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.formula import committed_caches


def teachers(context: DrafterContext) -> list[ReferenceLogits]:
    """Return one reference: the target with some halves of its layers."""
    loaded, layers = load_model(context.target_files.folder, context.shape.max_length), context.drafter.layers
    model = round_caches(loaded, context.inputs.target_cache)
    assert layers is not None, "the plan refuses this kind without"
    attentions, mlps = (set(range(model.config.num_hidden_layers)) - set(its) for its in (layers.attention, layers.mlp))
    attend_eagerly(model)

    @torch.no_grad()
    def logits(fed: DrafterInputs, drafts: list[int]) -> Logits:
        caches, read, found = committed_caches(model, fed), [fed.known[-1], *drafts], []
        places = torch.arange(len(fed.known) - 1, len(fed.known) + len(drafts))[None]
        if fed.pictures is not None and fed.pictures.positions is not None:
            places = torch.tensor(fed.pictures.positions[0])[places]  # behind the prompt, the same on all axes
        size = 1 if carries_states(caches) else len(read)
        with skipping(model, attentions, mlps):
            for start in range(0, len(read), size):
                part, its = torch.tensor([read[start : start + size]]), places[..., start : start + size]
                with at_positions(model, its):
                    found.append(model(input_ids=part, position_ids=its, use_cache=True, cache=caches).logits[0])
        return torch.cat(found).float().numpy()

    return [logits]
