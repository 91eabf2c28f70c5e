"""Reference: P-EAGLE's formula over the whole text and its mask rows without a cache: one pass of EAGLE-3's rows."""

from dataclasses import replace
from pathlib import Path

import torch

from speccompile.compiler.prove.drafts import DrafterInputs, ReferenceLogits
from speccompile.compiler.prove.reference import Logits
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.eagle3 import reference as eagle3
from speccompile.drafters.formula import following, linear, over_target, text_positions, weights_of
from speccompile.drafters.p_eagle.dialects import MASK
from speccompile.drafters.p_eagle.reading import SWITCH
from speccompile.drafters.probe import flipped, shifted_taps
from speccompile.drafters.weights import Embedding
from speccompile.plan.head import HeadPlan


def teachers(context: DrafterContext) -> list[ReferenceLogits]:
    """Return one reference: the head. Its logits depend on the number of drafts, not on their tokens."""
    head, weights = context.head, weights_of(context.head)
    if "embed_tokens.weight" not in weights:
        weights["embed_tokens.weight"] = context.ends().embed.table

    @torch.no_grad()
    def logits(fed: DrafterInputs, drafts: list[int]) -> Logits:
        assert fed.features is not None
        assert head.layers is not None
        masks = weights[MASK].reshape(1, -1).expand(len(drafts), -1)
        x = eagle3.fuse(torch.cat([torch.tensor(fed.features), masks]), head, weights)
        masked = [int(head.switches[SWITCH] or 0)] * len(drafts)
        embedded = following(fed, masked, Embedding(weights["embed_tokens.weight"]))
        hidden, _ = eagle3.rows(x, embedded, text_positions(fed, len(x), head.layers), head, weights)
        return over_target(linear(hidden[-1 - len(drafts) :], weights, "lm_head"), head, weights).numpy()

    return [logits]


def small(head: HeadPlan, hidden_size: int, vocabulary_size: int, target_layers: int, folder: Path) -> HeadPlan:
    """Return EAGLE-3's small head with a mask, whose token is the last of the vocabulary."""
    more = {MASK: (1, 1, len(head.taps) * hidden_size)}
    made = eagle3.small(head, hidden_size, vocabulary_size, target_layers, folder, more)
    return replace(made, switches={**made.switches, SWITCH: vocabulary_size - 1})


def readings(head: HeadPlan, layers: int) -> dict[str, HeadPlan]:
    """Return interpretations with other taps, and with the other norm of the residual: its default differs from
    EAGLE-3's."""
    return {**shifted_taps(head, layers), **flipped(head, "norm_before_residual")}
