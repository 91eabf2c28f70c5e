"""Reference: ReDrafter's formula (section 3 of Zhang et al. 2024, and Apple's code), one token after the other."""

from dataclasses import replace
from pathlib import Path

import torch
from torch.nn import functional

from speccompile.compiler.prove.drafts import DrafterInputs, ReferenceLogits
from speccompile.compiler.prove.reference import Logits
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.formula import linear, weights_of
from speccompile.drafters.numbered import count_numbered
from speccompile.drafters.probe import before_norm
from speccompile.drafters.redrafter.reading import RNN, head_shapes
from speccompile.drafters.small import small_taps, write_small
from speccompile.plan.head import HeadPlan


def teachers(context: DrafterContext) -> list[ReferenceLogits]:
    """Return one reference: the head with the target's embedding."""
    head, weights, table = context.head, weights_of(context.head), context.ends().embed.table

    @torch.no_grad()
    def logits(fed: DrafterInputs, drafts: list[int]) -> Logits:
        assert fed.features is not None
        feature, found = torch.tensor(fed.features)[-1], []
        state = torch.zeros(head.hidden_size)
        for token in (fed.known[-1], *drafts):
            if head.switches["cell"] == RNN:
                state = functional.silu(linear(table[token], weights, "rnn_w") + linear(state, weights, "rnn_u"))
            else:
                state = state + table[token]
            x = torch.cat([feature, state])
            x = linear(x, weights, "input_proj") if "input_proj.weight" in weights else x
            for layer in range(count_numbered(weights, "blocks")):
                x = x + functional.silu(linear(x, weights, f"blocks.{layer}"))
            found.append(linear(x, weights, "output"))
        return torch.stack(found).numpy()

    return [logits]


def small(head: HeadPlan, hidden_size: int, vocabulary_size: int, target_layers: int, folder: Path) -> HeadPlan:
    """Return a small head with the same cell and number of blocks, for a small target."""
    width = 2 * hidden_size if int(head.switches["exit_dim"] or 0) == 2 * head.hidden_size else hidden_size
    shapes = head_shapes(
        count_numbered(head.tensors, "blocks"), width, (hidden_size, vocabulary_size), str(head.switches["cell"])
    )
    return replace(
        head, folder=folder, files=(), taps=small_taps(head, target_layers), hidden_size=hidden_size,
        vocabulary_size=vocabulary_size, switches={**head.switches, "exit_dim": width},
        tensors=write_small(shapes, folder, vocabulary_size),
    )  # fmt: skip


readings = before_norm  # the most frequent mistake: the input of the final norm instead of its output
