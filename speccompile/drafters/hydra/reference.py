"""Reference: Hydra's formula (section 3 of Ankner et al. 2024) over the whole text without a cache."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from speccompile.compiler.prove.drafts import DrafterInputs, ReferenceLogits
from speccompile.compiler.prove.reference import Logits
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.formula import Weights, decoder_layer, linear, rms, weights_of
from speccompile.drafters.hydra.reading import head_shapes
from speccompile.drafters.numbered import count_numbered
from speccompile.drafters.probe import before_norm
from speccompile.drafters.small import small_layers, small_taps, write_small
from speccompile.plan.head import HeadPlan


def teachers(context: DrafterContext) -> list[ReferenceLogits]:
    """Return one reference: the heads, with the target's embedding if they have none."""
    head, weights = context.head, weights_of(context.head)
    is_grounded = bool(head.switches["grounded_heads"])
    if is_grounded and "embed_tokens.weight" not in weights:
        weights["embed_tokens.weight"] = context.ends().embed.table

    @torch.no_grad()
    def logits(fed: DrafterInputs, drafts: list[int]) -> Logits:
        assert fed.features is not None
        x, found = hidden(torch.tensor(fed.features), head, weights), []
        for number, token in enumerate([fed.known[-1], *drafts]):
            x = torch.cat([x, weights["embed_tokens.weight"][token]]) if is_grounded else x
            found.append(linear(mlp(x, weights, number), weights, f"lm_heads.{number}"))
        return torch.stack(found).numpy()

    return [logits]


def hidden(features: Tensor, head: HeadPlan, weights: Weights) -> Tensor:
    """Return the heads' input [H], given the features [n, H] of all committed tokens."""
    if head.layers is None:
        return features[-1]
    return rms(decoder_layer(features, weights, 0, head.layers)[-1], weights["norm.weight"], head.layers.eps)


def mlp(x: Tensor, weights: Weights, number: int) -> Tensor:
    """Apply a head's MLP: [(number + 2) H] -> [H], or [H] -> [H] for heads that read no tokens."""
    for layer in range(count_numbered(weights, f"mlps.{number}")):
        name = f"mlps.{number}.{layer}"
        kept = linear(x, weights, f"{name}.res_connection") if f"{name}.res_connection.weight" in weights else x
        x = kept + functional.silu(linear(x, weights, f"{name}.linear"))
    return x


def small(head: HeadPlan, hidden_size: int, vocabulary_size: int, target_layers: int, folder: Path) -> HeadPlan:
    """Return small heads with the same numbers of heads and blocks, for a small target."""
    layers = None if head.layers is None else small_layers(head.layers, hidden_size)
    shapes = head_shapes(
        count_numbered(head.tensors, "mlps"), count_numbered(head.tensors, "mlps.0"), (hidden_size, vocabulary_size),
        layers, is_grounded=bool(head.switches["grounded_heads"]),
    )  # fmt: skip
    if "embed_tokens.weight" not in head.tensors:
        shapes.pop("embed_tokens.weight", None)
    return replace(
        head, folder=folder, files=(), taps=small_taps(head, target_layers), hidden_size=hidden_size,
        vocabulary_size=vocabulary_size, layers=layers, tensors=write_small(shapes, folder, vocabulary_size),
    )  # fmt: skip


readings = before_norm  # the most frequent mistake: the input of the final norm instead of its output
