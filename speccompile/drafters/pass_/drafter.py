"""PaSS: the target reads the bonus token and L trained embeddings after it, over its KV cache."""

import torch
from torch import nn

from speccompile.compiler.step.draft import Drafter
from speccompile.compiler.step.draft.target_masks import MaskReader
from speccompile.drafters.context import DrafterContext, token_by_token
from speccompile.drafters.pass_.dialects import EMBEDDINGS
from speccompile.drafters.weights import load_head
from speccompile.plan.head import HeadPlan


def make(context: DrafterContext) -> Drafter:
    """Return the drafter of a chain."""
    masks = load_head(Masks(context.head), context.head).mask_embeddings
    return token_by_token(context, MaskReader(context.target(), masks[: context.drafter.tokens - 1]))


class Masks(nn.Module):
    """Trained embeddings of the file."""

    def __init__(self, head: HeadPlan) -> None:
        super().__init__()
        self.mask_embeddings = nn.Parameter(torch.empty(head.tensors[EMBEDDINGS].shape))
