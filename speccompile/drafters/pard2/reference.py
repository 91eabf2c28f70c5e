"""Reference: PARD-2's formula over the whole text and its mask rows without a cache."""

from dataclasses import replace
from pathlib import Path

import torch
from torch.nn import functional

from speccompile.compiler.prove.drafts import DrafterInputs, ReferenceLogits
from speccompile.compiler.prove.reference import Logits
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.formula import decoder_layer, linear, rms, weights_of
from speccompile.drafters.p_eagle.reading import SWITCH
from speccompile.drafters.pard2.reading import SCALE, model_shapes
from speccompile.drafters.probe import shifted_taps
from speccompile.drafters.small import small_layers, small_taps, write_small
from speccompile.drafters.target import NORM
from speccompile.plan.head import HeadPlan


def teachers(context: DrafterContext) -> list[ReferenceLogits]:
    """Return one reference: the draft model. Its logits depend on the number of drafts, not on their tokens."""
    head, weights = context.head, weights_of(context.head)
    layers = head.layers
    assert layers is not None
    weights.setdefault("lm_head.weight", weights["embed_tokens.weight"])

    @torch.no_grad()
    def logits(fed: DrafterInputs, drafts: list[int]) -> Logits:
        assert fed.features is not None
        read = torch.cat([torch.zeros(1, fed.features.shape[1]), torch.tensor(fed.features)])
        read = torch.cat([read, read[-1:].expand(len(drafts), -1)])
        tokens = torch.tensor([*fed.known, *[int(head.switches[SWITCH] or 0)] * len(drafts)])
        x = functional.embedding(tokens, weights["embed_tokens.weight"])
        x = x + float(head.switches[SCALE] or 0) * linear(read, weights, "target_proj")
        for index in range(layers.count):
            x = decoder_layer(x, weights, index, layers)
        hidden = rms(x[-1 - len(drafts) :], weights["norm.weight"], layers.eps)
        return linear(hidden, weights, "lm_head").numpy()

    return [logits]


def small(head: HeadPlan, hidden_size: int, vocabulary_size: int, target_layers: int, folder: Path) -> HeadPlan:
    """Return a small draft model with the same number of taps and layers, for a small target; the mask token is the
    last of the vocabulary."""
    assert head.layers is not None
    layers, taps = small_layers(head.layers, hidden_size), small_taps(head, target_layers)
    bias = "target_proj.bias" in head.tensors
    shapes = model_shapes(layers, len(taps) * hidden_size, vocabulary_size, bias=bias)
    if "lm_head.weight" not in head.tensors:
        del shapes["lm_head.weight"]
    return replace(
        head, folder=folder, files=(), taps=taps, hidden_size=hidden_size, vocabulary_size=vocabulary_size,
        layers=layers, tensors=write_small(shapes, folder, vocabulary_size),
        switches={**head.switches, SWITCH: vocabulary_size - 1},
    )  # fmt: skip


def readings(head: HeadPlan, layers: int) -> dict[str, HeadPlan]:
    """Return interpretations with other taps: a layer earlier or later, or the last one before the final norm."""
    if NORM not in head.taps:
        return shifted_taps(head, layers)
    taps = tuple(f"layers.{layers - 1}.output" if tap == NORM else tap for tap in head.taps)
    return {"last tap before the final norm": replace(head, taps=taps)}
