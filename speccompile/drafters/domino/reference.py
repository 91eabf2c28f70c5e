"""Reference: Domino's formula over the whole text without a cache, with torch's own GRU."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from speccompile.compiler.prove.drafts import ReferenceLogits
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.dflash.reference import block_teacher, readings, small_block
from speccompile.drafters.domino.reading import own_shapes
from speccompile.drafters.formula import Weights, linear
from speccompile.plan.head import HeadPlan

__all__ = ["readings", "small", "teachers"]


def teachers(context: DrafterContext) -> list[ReferenceLogits]:
    """Return one reference: see `block_teacher`."""
    return [block_teacher(context, _corrected)]


def _corrected(hidden: Tensor, logits: Tensor, before: list[int], head: HeadPlan, weights: Weights) -> Tensor:
    """Add the corrections to the logits [n, Vd] of the first block positions, given their previous tokens."""
    states, said = weights["prefix_gru.weight_hh_l0"].shape[1], head.switches
    gru = nn.GRU(hidden.shape[1], states, batch_first=True, bias=False)
    gru.load_state_dict({name: weights[f"prefix_gru.{name}"] for name in ("weight_ih_l0", "weight_hh_l0")})
    embedded = functional.embedding(torch.tensor(before), weights["embed_tokens.weight"])
    read = torch.cat([hidden, gru(embedded[None])[0][0]], -1)
    found = linear(functional.silu(linear(read, weights, "up_proj")), weights, "out_proj")
    found[: int(said["pure_draft_prefix_len"] or 0)] = 0
    return logits + found


small = partial(small_block, own_shapes)
"""Return a small head with the same switches and numbers of taps and layers, for a small target."""
