"""Reference: EAGLE-3's formula over the whole text without a cache (section 3 of the paper, and 3.1's switches)."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from speccompile.compiler.prove.drafts import DrafterInputs, ReferenceLogits
from speccompile.compiler.prove.reference import Logits
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.eagle3.reading import head_shapes
from speccompile.drafters.formula import (
    Weights,
    attention,
    causal,
    decoder_layer,
    following,
    linear,
    mlp,
    over_target,
    rms,
    text_positions,
    with_ends,
)
from speccompile.drafters.probe import flipped, shifted_taps
from speccompile.drafters.small import small_layers, small_taps, write_small
from speccompile.drafters.weights import Embedding
from speccompile.plan.head import HeadPlan


def teachers(context: DrafterContext) -> list[ReferenceLogits]:
    """Return one reference: the head, with the target's embedding and output head if it has none."""
    head, weights = context.head, with_ends(context.head, context.ends())

    @torch.no_grad()
    def logits(fed: DrafterInputs, drafts: list[int]) -> Logits:
        assert fed.features is not None
        assert head.layers is not None
        x, found = fuse(torch.tensor(fed.features), head, weights), list[Tensor]()
        for count in range(len(drafts) + 1):
            embedded = following(fed, drafts[:count], Embedding(weights["embed_tokens.weight"]))
            hidden, feedback = rows(x, embedded, text_positions(fed, len(x), head.layers), head, weights)
            found.append(over_target(linear(hidden[-1], weights, "lm_head"), head, weights))
            x = torch.cat([x, feedback[-1:]])
        return torch.stack(found).numpy()

    return [logits]


def fuse(features: Tensor, head: HeadPlan, weights: Weights) -> Tensor:
    """Map features [n, F] to the head's width [n, h]."""
    assert head.layers is not None
    eps = head.layers.eps
    if head.switches["fc_norm"]:
        parts = features.chunk(len(head.taps), -1)
        features = torch.cat([rms(part, weights[f"fc_norm.{i}.weight"], eps) for i, part in enumerate(parts)], -1)
    if head.switches["norm_before_fc"]:
        features = rms(features, weights["input_norm.weight"], eps)
    return linear(features, weights, "fc") if "fc.weight" in weights else features


def rows(x: Tensor, embedded: Tensor, places: Tensor, head: HeadPlan, weights: Weights) -> tuple[Tensor, Tensor]:
    """Apply the layers to rows [n, h] and the embeddings [n, h] of the tokens after them, at positions int64 [n] or [3,
    n]. Return the output head's input and the fed-back output, both [n, h]."""
    layers, switches = head.layers, head.switches
    assert layers is not None
    if switches["use_input_layernorm_in_first_layer"]:
        embedded = rms(embedded, weights["layers.0.input_layernorm.weight"], layers.eps)
    normed = rms(x, weights["layers.0.hidden_norm.weight"], layers.eps)
    read = torch.cat([embedded, normed], -1)
    visible = causal(len(x), layers.windows[0])
    context = attention(read, read, (places, places), visible, weights, "layers.0.self_attn", layers)
    x = (normed if switches["norm_before_residual"] else x) + context
    x = x + mlp(
        rms(x, weights["layers.0.post_attention_layernorm.weight"], layers.eps), weights, "layers.0.mlp", layers
    )
    for index in range(1, layers.count):
        x = decoder_layer(x, weights, index, layers, places)
    hidden = rms(x, weights["norm.weight"], layers.eps) if switches["use_last_layernorm"] else x
    return hidden, hidden if switches["norm_output"] else x


def small(
    head: HeadPlan,
    hidden_size: int,
    vocabulary_size: int,
    target_layers: int,
    folder: Path,
    more: Mapping[str, tuple[int, ...]] | None = None,
) -> HeadPlan:
    """Return a small head with the same switches and numbers of taps and layers, for a small target; with a draft
    vocabulary if the head has one. more: tensors in addition to EAGLE-3's."""
    assert head.layers is not None
    layers, taps = small_layers(head.layers, hidden_size), small_taps(head, target_layers)
    own = "d2t" in head.tensors
    size = vocabulary_size * 3 // 4 if own else vocabulary_size
    kept = {"embed_tokens.weight", "fc.weight", "fc.bias", *(["d2t"] if own else [])}
    given = {name: source for name, source in head.tensors.items() if name in kept}
    shapes = head_shapes(layers, len(taps), (hidden_size, vocabulary_size), size, given, head.switches)
    shapes = {name: shape for name, shape in shapes.items() if name not in kept or name in given}
    tensors = write_small({**shapes, **(more or {})}, folder, vocabulary_size)
    return replace(
        head, folder=folder, files=(), taps=taps, hidden_size=hidden_size, vocabulary_size=vocabulary_size,
        layers=layers, tensors=tensors,
    )  # fmt: skip


def readings(head: HeadPlan, layers: int) -> dict[str, HeadPlan]:
    """Return interpretations of the settings that published configs are known to get wrong: taps, and 3.1's norms."""
    return {**shifted_taps(head, layers), **flipped(head, "norm_output", "norm_before_residual")}
