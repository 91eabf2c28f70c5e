"""Reference: DFlash's formula over the whole text without a cache (Chen et al. 2026; z-lab's code for DFlash2)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import gcd
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from speccompile.compiler.prove.drafts import DrafterInputs, ReferenceLogits
from speccompile.compiler.prove.reference import Logits
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.dflash.reading import block_shapes, first_slot, own_shapes
from speccompile.drafters.formula import Weights, attention, linear, mlp, over_target, rms, with_ends
from speccompile.drafters.probe import flipped, shifted_taps
from speccompile.drafters.small import small_layers, small_taps, write_small
from speccompile.plan.head import HeadPlan, Switch
from speccompile.plan.layers import LayerShape, Shapes

OPTIONAL = ("embed_tokens.weight", "lm_head.weight", "d2t", "mask_embedding")


Finished = Callable[[Tensor, Tensor, list[int], HeadPlan, Weights], Tensor]
"""Return the final logits [n, V] of the first n block positions, given their normed hidden states [n, h], their logits
[n, V] and their n previous tokens."""


def block_teacher(context: DrafterContext, finished: Finished) -> ReferenceLogits:
    """Return the reference of a head, with the target's embedding and output head if it has none."""
    head, weights = context.head, with_ends(context.head, context.ends())

    @torch.no_grad()
    def logits(fed: DrafterInputs, drafts: list[int]) -> Logits:
        hidden, said = slots(fed, head, weights)
        before = [fed.known[-1], *drafts][: len(said)]  # another interpretation may have one block position less
        found = finished(hidden[: len(before)], said[: len(before)], before, head, weights)
        return over_target(found, head, weights).numpy()

    return logits


def teachers(context: DrafterContext) -> list[ReferenceLogits]:
    """Return one reference: see `block_teacher`."""
    return [block_teacher(context, _all_selected)]


def _all_selected(hidden: Tensor, logits: Tensor, before: list[int], head: HeadPlan, weights: Weights) -> Tensor:
    return torch.stack([_selected(hidden[i], logits[i], token, head, weights) for i, token in enumerate(before)])


def slots(fed: DrafterInputs, head: HeadPlan, weights: Weights) -> tuple[Tensor, Tensor]:
    """Return normed hidden states [S, h] and logits [S, Vd] of the block positions that predict drafts."""
    layers, said = head.layers, head.switches
    assert layers is not None
    assert fed.features is not None
    context = rms(linear(torch.tensor(fed.features), weights, "fc"), weights["hidden_norm.weight"], layers.eps)
    size, start = int(said["block_size"] or 0), len(context)
    tokens = torch.tensor([fed.known[-1], *[said["mask_token_id"]] * (size - 1)])
    x = functional.embedding(tokens, weights["embed_tokens.weight"])
    if "mask_embedding" in weights:
        x = torch.cat([x[:1], weights["mask_embedding"].expand(size - 1, -1)])
    x = x * said["input_embedding_scale"]
    for index in range(layers.count):
        x = _layer(x, context, index, head, weights)
    hidden = rms(x, weights["norm.weight"], layers.eps)[first_slot(said) :]
    logits = linear(hidden, weights, "lm_head") * said["output_multiplier"]
    cap = said["final_logit_softcapping"]
    assert start == len(fed.known) - 1, "a feature for every committed token"
    return hidden, cap * torch.tanh(logits / cap) if cap else logits


def _layer(x: Tensor, context: Tensor, index: int, head: HeadPlan, weights: Weights) -> Tensor:
    """Apply a layer to the block [size, h], which attends to the context [n, h] and to itself."""
    layers, said, name = head.layers, head.switches, f"layers.{index}"
    assert layers is not None
    start, size = len(context), len(x)
    places, window = torch.arange(start + size), layers.windows[index]
    own = places[start:]
    counted = torch.full_like(own, start) if said["window_from_anchor"] else own
    visible = (places < start) & (counted[:, None] - places < window) if window else (places < start).expand(size, -1)
    is_causal = said["causal_sliding"] if window else said["causal"]
    visible = visible | (places >= start) & ((places <= own[:, None]) if is_causal else (places >= start))

    def attend(read: Tensor) -> Tensor:
        rows = torch.cat([context, read])
        return attention(read, rows, (own, places), visible, weights, f"{name}.self_attn", layers)

    normed = rms(x, weights[f"{name}.input_layernorm.weight"], layers.eps)
    x = x + _convolved(normed, attend, f"{name}.attention_conv", weights)
    normed = rms(x, weights[f"{name}.post_attention_layernorm.weight"], layers.eps)
    return x + _convolved(normed, lambda read: mlp(read, weights, f"{name}.mlp", layers), f"{name}.mlp_conv", weights)


def _convolved(x: Tensor, part: Callable[[Tensor], Tensor], name: str, weights: Weights) -> Tensor:
    """Apply a part of a layer between DFlash2's convolutions, if the head has them."""
    base = weights.get(f"{name}.base_kernel")
    if base is None:
        return part(x)
    _, kernel, width = base.shape
    added = linear(x, weights, f"{name}.kernel_projection").view(len(x), 2, kernel, -1)
    kernels = base + added.repeat_interleave(width // added.shape[-1], -1)  # [S, 2, kernel, h]

    def mixed(rows: Tensor, side: int) -> Tensor:
        return torch.stack([
            torch.stack([kernels[slot, side, back] * rows[slot - back] for back in range(min(slot + 1, kernel))]).sum(0)
            for slot in range(len(rows))
        ])  # fmt: skip

    return mixed(part(mixed(x, 0)), 1)


def _selected(hidden: Tensor, logits: Tensor, before: int, head: HeadPlan, weights: Weights) -> Tensor:
    """Return logits [V] of a block position, with the selector's scores added for the candidates and -inf for other
    tokens (DFlash2)."""
    if "selector_top_k" not in head.switches:
        return logits
    best = torch.topk(logits, int(head.switches["selector_top_k"] or 0)).indices
    projected = linear(hidden, weights, "candidate_selector.hidden_projection")
    follows = weights["candidate_selector.successor_codebook.weight"][best] @ (
        projected * weights["candidate_selector.predecessor_codebook.weight"][before]
    )
    return torch.full_like(logits, -torch.inf).index_put((best,), logits[best] + follows)


def small_block(
    own: Callable[[LayerShape, Mapping[str, Switch], tuple[int, int]], Shapes],
    head: HeadPlan,
    hidden_size: int,
    vocabulary_size: int,
    target_layers: int,
    folder: Path,
) -> HeadPlan:
    """Return a small block drafter. own: returns the tensors that only its method has, as in `read_block`."""
    assert head.layers is not None
    layers, taps = small_layers(head.layers, hidden_size), small_taps(head, target_layers)
    said = dict(head.switches) | {"mask_token_id": min(int(head.switches["mask_token_id"] or 0), vocabulary_size - 1)}
    for name, most in (("conv_group_size", hidden_size), ("selector_rank", 8), ("selector_top_k", vocabulary_size)):
        if name in said:
            value = int(said[name] or 0)
            said[name] = gcd(value, most) if name == "conv_group_size" else min(value, most)
    if said.get("markov_rank"):
        said["markov_rank"] = 8
    size = vocabulary_size * 3 // 4 if "d2t" in head.tensors else vocabulary_size
    shapes = block_shapes(layers, len(taps), hidden_size, (vocabulary_size, size))
    shapes |= own(layers, said, (vocabulary_size, size))
    shapes = {name: shape for name, shape in shapes.items() if name not in OPTIONAL or name in head.tensors}
    tensors = write_small(shapes, folder, vocabulary_size)
    return replace(
        head, folder=folder, files=(), taps=taps, hidden_size=hidden_size, vocabulary_size=vocabulary_size,
        layers=layers, switches=said, tensors=tensors,
    )  # fmt: skip


small = partial(small_block, own_shapes)
"""Return a small head with the same switches and numbers of taps and layers, for a small target."""


def readings(head: HeadPlan, layers: int) -> dict[str, HeadPlan]:
    """Return interpretations with other taps, and with the other value of `sample_from_anchor`."""
    return {**shifted_taps(head, layers), **flipped(head, "sample_from_anchor")}
