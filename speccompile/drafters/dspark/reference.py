"""Reference: DSpark's formula over the whole text without a cache (section 3 of DeepSeek's paper, and its code)."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from speccompile.compiler.prove.drafts import Confidence, DrafterInputs, ReferenceLogits
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.dflash import reference as dflash
from speccompile.drafters.dflash.reference import block_teacher, slots, small_block
from speccompile.drafters.dspark.reading import own_shapes
from speccompile.drafters.formula import Weights, linear, with_ends
from speccompile.plan.head import HeadPlan
from speccompile.runtime.devices.engine import Array


def teachers(context: DrafterContext) -> list[ReferenceLogits]:
    """Return one reference: see `block_teacher`."""
    return [block_teacher(context, _corrected)]


def confidences(context: DrafterContext) -> Confidence | None:
    """Return the reference of the confidence in the draft after each token; None without a confidence head."""
    if not context.head.switches["confidence_head"]:
        return None
    head, weights = context.head, with_ends(context.head, context.ends())

    @torch.no_grad()
    def sure(fed: DrafterInputs, drafts: list[int]) -> Array:
        hidden, _ = slots(fed, head, weights)
        before = [fed.known[-1], *drafts]
        read = hidden[: len(before)]
        if head.switches["confidence_head_with_markov"]:
            read = torch.cat([read, weights["markov_head.markov_w1.weight"][before]], -1)
        return linear(read, weights, "confidence_head.proj").sigmoid()[:, 0].numpy()

    return sure


def _corrected(hidden: Tensor, logits: Tensor, before: list[int], head: HeadPlan, weights: Weights) -> Tensor:
    """Add the Markov head's corrections to the logits [n, Vd] of the first block positions, given their previous
    tokens."""
    if not head.switches["markov_rank"]:
        return logits
    embedded = functional.embedding(torch.tensor(before), weights["markov_head.markov_w1.weight"])
    kind, read = head.switches["markov_head_type"], embedded
    if kind == "gated":
        gates = linear(torch.cat([hidden, embedded], -1), weights, "markov_head.gate_proj").sigmoid()
        read = gates * embedded
    if kind == "rnn":
        read = _recurrent(embedded, hidden, lambda x: linear(x, weights, "markov_head.joint_proj"))
    return logits + linear(read, weights, "markov_head.markov_w2")


def _recurrent(embedded: Tensor, hidden: Tensor, joint: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the recurrent cell's outputs over the block positions, with a zero initial memory."""
    rank = embedded.shape[1]
    memory, found = torch.zeros(rank), []
    for e, h in zip(embedded, hidden, strict=True):
        parts = joint(torch.cat([memory, e, h]))
        gate = parts[:rank].sigmoid()
        memory = gate * memory + (1 - gate) * parts[rank : 2 * rank].tanh()
        found.append(parts[2 * rank :].tanh())
    return torch.stack(found)


small = partial(small_block, own_shapes)
"""Return a small head with the same switches and numbers of taps and layers, for a small target."""


def readings(head: HeadPlan, layers: int) -> dict[str, HeadPlan]:
    """Return DFlash's interpretations; with a recurrent Markov head, whose memory starts at the anchor, without the one
    of `sample_from_anchor`."""
    found = dflash.readings(head, layers)
    if head.switches["markov_head_type"] == "rnn":
        found = {words: each for words, each in found.items() if not words.startswith("sample_from_anchor")}
    return found
