"""ReDrafter: its drafter against its formula over the whole text, Apple's cell, and bundles."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from speccompile.compiler.build.inputs import open_round
from speccompile.compiler.build.modules import drafter_context
from speccompile.compiler.prove.drafts import DrafterInputs
from speccompile.drafters.redrafter import reference
from tests.compile.eager_rounds import check_generation, check_rounds, plan_of
from tests.heads.redrafter import redrafter

HEADS = {
    "cell": redrafter,
    "cell, projected": partial(redrafter, exit_dim=24, layers=1),
    "sum, within a model": partial(redrafter, rnn=False, prefix="drafter."),
}


@pytest.mark.parametrize("tokens", [4, 1])
@pytest.mark.parametrize("head", HEADS)
def test_drafts_of_rounds_are_those_of_the_whole_text(head, tokens, tmp_path):
    check_rounds(plan_of(tmp_path, HEADS[head], f"tokens: {tokens}"))


@torch.no_grad()
def test_the_reference_is_a_gated_free_recurrent_network_of_torch(tmp_path):
    """torch's RNNCell has tanh or relu: with relu, and SiLU replaced by relu, both are one formula."""
    plan = plan_of(tmp_path, partial(redrafter, layers=0), "tokens: 3")
    site = drafter_context(open_round(plan).draft)
    (teacher,) = reference.teachers(site)
    weights, table = reference.weights_of(site.head), site.ends().embed.table
    hidden = site.head.hidden_size
    cell = nn.RNNCell(hidden, hidden, nonlinearity="relu")
    cell.weight_ih.copy_(weights["rnn_w.weight"])
    cell.weight_hh.copy_(weights["rnn_u.weight"])
    cell.bias_hh.copy_(weights["rnn_u.bias"])
    cell.bias_ih.zero_()
    features = torch.randn(5, hidden, generator=torch.Generator().manual_seed(3))
    state, expected = torch.zeros(hidden), []
    for token in (7, 3, 11):
        state = cell(table[token], state)
        expected.append(weights["output.weight"] @ torch.cat([features[-1], state]))
    fed = DrafterInputs([1, 2, 3, 4, 5, 7], features.numpy(), [2, 3, 4, 5, 7])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference.functional, "silu", torch.relu)
        found = teacher(fed, [3, 11])
    np.testing.assert_allclose(found, torch.stack(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.sweep("trees and proofs of bundles are the same code for all kinds; rounds are in the first tier")
@pytest.mark.parametrize(
    ("drafter", "more"),
    [
        ("tokens: 3", "decoding: sampling\ngraphs: separate"),
        ("tree: {depth: 3, top_k: 3, nodes: 7}", ""),
    ],
)
def test_generates_what_the_target_generates(drafter, more, tmp_path):
    plan = plan_of(tmp_path, redrafter, drafter, more)
    assert (plan.drafter.kind, plan.graphs) == ("redrafter", "separate" if more else "fused")
    check_generation(plan, tmp_path)
