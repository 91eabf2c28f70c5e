"""Reference: transformers' forward over the embeddings of the whole text and the mask tokens, with the prefix in the
cache, masked out for the text."""

from dataclasses import replace
from pathlib import Path

import torch
from transformers import DynamicCache

from speccompile.compiler.models.eager import attend_eagerly
from speccompile.compiler.prove.drafts import DrafterInputs, ReferenceLogits
from speccompile.compiler.prove.reference import Logits
from speccompile.drafters.bita.dialects import MASKS, PREFIX
from speccompile.drafters.bita.drafter import parts
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.pass_.reference import embedded
from speccompile.drafters.small import write_small
from speccompile.plan.head import HeadPlan


def teachers(context: DrafterContext) -> list[ReferenceLogits]:
    """Return one reference: the target. Its logits depend on the number of drafts, not on their tokens."""
    (masks, prefix), model = parts(context.head), context.eager()
    n_prefix = prefix[0].shape[1]

    @torch.no_grad()
    def logits(fed: DrafterInputs, drafts: list[int]) -> Logits:
        attend_eagerly(model)
        read, known = embedded(model, fed.known, masks[: len(drafts)]), len(fed.known)
        cache = DynamicCache()
        for layer in range(len(prefix) // 2):
            cache.update(prefix[2 * layer][None], prefix[2 * layer + 1][None], layer)
        places = torch.arange(read.shape[1])
        visible = torch.cat([(places >= known)[:, None].expand(-1, n_prefix), places <= places[:, None]], 1)
        hidden = torch.where(visible, 0.0, torch.finfo(torch.float32).min)[None, None]
        found: Logits = (
            model(inputs_embeds=read, attention_mask=hidden, position_ids=places[None], cache=cache)
            .logits[0, -1 - len(drafts) :]
            .float()
            .numpy()
        )
        return found

    return [logits]


def small(head: HeadPlan, hidden_size: int, vocabulary_size: int, target_layers: int, folder: Path) -> HeadPlan:
    """Return small parameters with the same numbers of mask tokens and prefix rows, for a small target with one key
    head of width 16."""
    key_heads, width = 1, 16
    shapes = {
        MASKS: (head.tensors[MASKS].shape[0], hidden_size),
        PREFIX: (head.tensors[PREFIX].shape[0], 2 * target_layers * key_heads * width),
    }
    return replace(
        head, folder=folder, files=(), hidden_size=hidden_size, vocabulary_size=vocabulary_size,
        switches={**head.switches, "key_heads": key_heads, "head_dim": width},
        tensors=write_small(shapes, folder, vocabulary_size),
    )  # fmt: skip
