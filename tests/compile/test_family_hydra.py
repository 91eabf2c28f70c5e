"""Hydra and Hydra++: their drafter against their formula over the whole text, and bundles."""

from functools import partial

import pytest

from tests import zoo
from tests.compile.eager_rounds import check_generation, check_rounds, plan_of
from tests.heads.hydra import hydra


def copied(folder, target):
    """Return the original's state dict, which has the target's embedding."""
    return hydra(folder, target, embedding=zoo.model("llama").get_input_embeddings().weight.data)


HEADS = {
    "hydra": partial(hydra, layers=1),
    "own embedding": copied,
    "hydra++": partial(hydra, prefix=True),
    "without tokens": partial(hydra, grounded=False, hidden_state_offset=1),
}


@pytest.mark.parametrize("tokens", [3, 1])
@pytest.mark.parametrize("head", HEADS)
def test_drafts_of_rounds_are_those_of_the_whole_text(head, tokens, tmp_path):
    check_rounds(plan_of(tmp_path, HEADS[head], f"tokens: {tokens}"))


@pytest.mark.sweep("trees and proofs of bundles are the same code for all kinds; rounds are in the first tier")
@pytest.mark.parametrize(
    ("head", "drafter", "more"),
    [
        ("hydra++", "tree: [2, 2, 1]", "graphs: separate"),
        ("hydra++", "tree: {depth: 3, top_k: 3, nodes: 7}", ""),
    ],
)
def test_generates_what_the_target_generates(head, drafter, more, tmp_path):
    plan = plan_of(tmp_path, HEADS[head], drafter, more)
    assert (plan.drafter.kind, plan.graphs) == ("hydra", "separate" if more else "fused")
    check_generation(plan, tmp_path)
