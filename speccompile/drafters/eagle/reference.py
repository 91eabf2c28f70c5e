"""Reference: EAGLE's formula over the whole text without a cache (section 4.1 of the paper; no first norm, as in its
code)."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from speccompile.compiler.prove.drafts import DrafterInputs, ReferenceLogits
from speccompile.compiler.prove.reference import Logits
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.eagle.reading import head_shapes
from speccompile.drafters.formula import (
    Weights,
    attention,
    causal,
    decoder_layer,
    following,
    linear,
    mlp,
    rms,
    text_positions,
    weights_of,
)
from speccompile.drafters.probe import before_norm
from speccompile.drafters.small import small_layers, small_taps, write_small
from speccompile.plan.head import HeadPlan
from speccompile.plan.layers import LayerShape


def teachers(context: DrafterContext) -> list[ReferenceLogits]:
    """Return one reference: the head, between the target's embedding and output head."""
    weights, ends, layers = weights_of(context.head), context.ends(), context.head.layers
    assert layers is not None

    @torch.no_grad()
    def logits(fed: DrafterInputs, drafts: list[int]) -> Logits:
        assert fed.features is not None
        x, found = torch.tensor(fed.features), list[Tensor]()
        for count in range(len(drafts) + 1):
            embedded = following(fed, drafts[:count], ends.embed)
            hidden = rows(x, embedded, text_positions(fed, len(x), layers), layers, weights)[-1:]
            found.append(functional.linear(hidden[0], ends.head.weight, ends.head.bias))
            x = torch.cat([x, hidden])
        return torch.stack(found).numpy()

    return [logits]


def rows(x: Tensor, embedded: Tensor, places: Tensor, layers: LayerShape, weights: Weights) -> Tensor:
    """Return hidden states [n, H] of features or fed-back outputs [n, H] and embeddings [n, H] of the next tokens, at
    positions int64 [n] or [3, n]."""
    x, visible = linear(torch.cat([embedded, x], -1), weights, "fc"), causal(len(x), layers.windows[0])
    x = x + attention(x, x, (places, places), visible, weights, "layers.0.self_attn", layers)
    normed = rms(x, weights["layers.0.post_attention_layernorm.weight"], layers.eps)
    x = x + mlp(normed, weights, "layers.0.mlp", layers)
    for index in range(1, layers.count):
        x = decoder_layer(x, weights, index, layers, places)
    return x


def small(head: HeadPlan, hidden_size: int, vocabulary_size: int, target_layers: int, folder: Path) -> HeadPlan:
    """Return a small head with the same number of layers and the same biases, for a small target."""
    assert head.layers is not None
    layers = small_layers(head.layers, hidden_size)
    tensors = write_small(head_shapes(layers, has_bias="fc.bias" in head.tensors), folder, vocabulary_size)
    return replace(
        head, folder=folder, files=(), taps=small_taps(head, target_layers), hidden_size=hidden_size,
        vocabulary_size=vocabulary_size, layers=layers, tensors=tensors,
    )  # fmt: skip


readings = before_norm  # the most frequent mistake: the input of the final norm instead of its output
