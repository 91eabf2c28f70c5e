"""Reference: Medusa's formula (section 2.1 of Cai et al. 2024), head by head."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from speccompile.compiler.prove.drafts import DrafterInputs, ReferenceLogits
from speccompile.compiler.prove.reference import Logits
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.formula import Weights, linear, over_target, weights_of
from speccompile.drafters.medusa.reading import head_shapes
from speccompile.drafters.numbered import count_numbered
from speccompile.drafters.probe import before_norm
from speccompile.drafters.small import write_small
from speccompile.plan.head import OFFSETS, TOKEN_MAP, HeadPlan


def teachers(context: DrafterContext) -> list[ReferenceLogits]:
    """Return one reference: the heads, with the target's projection if they have none."""
    head, weights = context.head, weights_of(context.head)
    shared = weights.get("lm_head.weight")
    if shared is None and "lm_heads.0.weight" not in weights:
        shared = context.ends().head.weight

    @torch.no_grad()
    def logits(fed: DrafterInputs, drafts: list[int]) -> Logits:
        assert fed.features is not None
        x, found = torch.tensor(fed.features[-1]), []
        for number in range(1 + len(drafts)):
            project = weights[f"lm_heads.{number}.weight"] if shared is None else shared
            found.append(over_target(_known(project @ block(x, weights, number), weights), head, weights))
        return torch.stack(found).numpy()

    return [logits]


def block(x: Tensor, weights: Weights, number: int) -> Tensor:
    """Apply the residual layers of a head to a hidden state [H]."""
    for layer in range(count_numbered(weights, f"blocks.{number}.layers")):
        x = x + functional.silu(linear(x, weights, f"blocks.{number}.layers.{layer}"))
    return x


def _known(logits: Tensor, weights: Weights) -> Tensor:
    """Return the logits of the draft vocabulary if the projection has more."""
    ids = weights.get(TOKEN_MAP)
    return logits if ids is None or len(ids) == len(logits) else logits[ids.long()]


def small(head: HeadPlan, hidden_size: int, vocabulary_size: int, target_layers: int, folder: Path) -> HeadPlan:
    """Return small heads with the same numbers of heads and layers, for a small target; with a draft vocabulary, as
    offsets, if `head` has one."""
    own = vocabulary_size * 3 // 4 if head.draft_vocabulary_size < head.vocabulary_size else None
    rows = {name: own or vocabulary_size for name in head.tensors if name.startswith("lm_head")}
    layers = count_numbered(head.tensors, "blocks.0.layers")
    has_bias = "blocks.0.layers.0.bias" in head.tensors
    shapes = head_shapes(count_numbered(head.tensors, "blocks"), layers, hidden_size, rows, own, has_bias=has_bias)
    shapes = {OFFSETS if name == TOKEN_MAP else name: shape for name, shape in shapes.items()}
    return replace(
        head, folder=folder, files=(), hidden_size=hidden_size, vocabulary_size=vocabulary_size,
        tensors=write_small(shapes, folder, vocabulary_size),
    )  # fmt: skip


readings = before_norm  # the most frequent mistake: the input of the final norm instead of its output
