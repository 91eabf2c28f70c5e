"""Reference: Kangaroo's formula over the whole text without a cache: the features of committed tokens, transformers'
hidden states of the bonus token and drafts, then the adapter."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from speccompile.compiler.models.eager import attend_eagerly
from speccompile.compiler.prove.drafts import DrafterInputs, ReferenceLogits
from speccompile.compiler.prove.reference import Logits
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.formula import Weights, attention, causal, rms, weights_of
from speccompile.drafters.kangaroo.reading import adapter_shapes, exit_layer
from speccompile.drafters.small import small_layers, write_small
from speccompile.drafters.weights import TargetEmbeddings
from speccompile.plan.head import HeadPlan


def teachers(context: DrafterContext) -> list[ReferenceLogits]:
    """Return one reference: the adapter between the target's first layers and its output head."""
    head, weights, model = context.head, weights_of(context.head), context.eager()
    last = TargetEmbeddings(lambda: model).head
    attend_eagerly(model)

    @torch.no_grad()
    def logits(fed: DrafterInputs, drafts: list[int]) -> Logits:
        text = torch.tensor([[*fed.known, *drafts]])
        hidden = model(input_ids=text, output_hidden_states=True, use_cache=False).hidden_states[exit_layer(head)]
        assert fed.features is not None
        x = torch.cat([torch.tensor(fed.features), hidden[0, len(fed.features) :].float()])
        return last(adapt(x, head, weights)[-1 - len(drafts) :]).numpy()

    return [logits]


def adapt(x: Tensor, head: HeadPlan, weights: Weights) -> Tensor:
    """Map the target's exit features [T, h] of a text to the input of its output head."""
    assert head.layers is not None
    places, visible, eps = torch.arange(len(x)), causal(len(x)), head.layers.eps
    for index in range(head.layers.count):
        read = rms(x, weights[f"layers.{index}.input_layernorm.weight"], eps)
        name = f"layers.{index}.self_attn"
        x = x + attention(read, read, (places, places), visible, weights, name, head.layers)
    return rms(x, weights["norm.weight"], eps)


def small(head: HeadPlan, hidden_size: int, vocabulary_size: int, target_layers: int, folder: Path) -> HeadPlan:
    """Return a small adapter with the same number of layers, after the first layer of a small target."""
    assert head.layers is not None
    assert target_layers > 1, "some layer comes behind the adapter's"
    layers = small_layers(head.layers, hidden_size)
    return replace(
        head, folder=folder, files=(), taps=("layers.0.output",), hidden_size=hidden_size,
        vocabulary_size=vocabulary_size, layers=layers,
        tensors=write_small(adapter_shapes(layers), folder, vocabulary_size),
    )  # fmt: skip
