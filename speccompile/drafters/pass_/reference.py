"""Reference: transformers' forward over the embeddings of the whole text, followed by the trained embeddings."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from speccompile.compiler.models.eager import attend_eagerly
from speccompile.compiler.prove.drafts import DrafterInputs, ReferenceLogits
from speccompile.compiler.prove.reference import Logits
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.formula import weights_of
from speccompile.drafters.pass_.dialects import EMBEDDINGS
from speccompile.drafters.small import write_small
from speccompile.plan.head import HeadPlan


def teachers(context: DrafterContext) -> list[ReferenceLogits]:
    """Return one reference: the target. Its logits depend on the number of drafts, not on their tokens."""
    masks, model = weights_of(context.head)[EMBEDDINGS], context.eager()

    @torch.no_grad()
    def logits(fed: DrafterInputs, drafts: list[int]) -> Logits:
        attend_eagerly(model)
        read = embedded(model, fed.known, masks[: len(drafts)])
        found: Logits = model(inputs_embeds=read, use_cache=False).logits[0, -1 - len(drafts) :].float().numpy()
        return found

    return [logits]


def embedded(model: nn.Module, text: list[int], masks: Tensor) -> Tensor:
    """Return float32 [1, T + n, H]: the target's embeddings of T tokens, and n mask rows."""
    return torch.cat([model.get_input_embeddings()(torch.tensor([text])), masks[None]], 1)


def small(head: HeadPlan, hidden_size: int, vocabulary_size: int, target_layers: int, folder: Path) -> HeadPlan:
    """Return the same number of embeddings for a small target."""
    shapes = {EMBEDDINGS: (head.tensors[EMBEDDINGS].shape[0], hidden_size)}
    return replace(
        head, folder=folder, files=(), hidden_size=hidden_size, vocabulary_size=vocabulary_size,
        tensors=write_small(shapes, folder, vocabulary_size),
    )  # fmt: skip
