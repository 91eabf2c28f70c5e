"""Medusa: its drafter against its formula over the whole text, and bundles."""

from functools import partial

import pytest

from tests.compile.eager_rounds import check_generation, check_rounds, plan_of
from tests.heads.medusa import faster_decoding, vllm

pytestmark = pytest.mark.builds(2)

HEADS = {
    "own": faster_decoding,
    "the target's projection": partial(faster_decoding, projections=False, layers=1),
    "shared": partial(vllm, shared=True, own=100),
    "mapped": partial(vllm, own=100, narrowed=False, bias=False),
}


@pytest.mark.parametrize("tokens", [3, 1])
@pytest.mark.parametrize("head", HEADS)
def test_drafts_of_rounds_are_those_of_the_whole_text(head, tokens, tmp_path):
    check_rounds(plan_of(tmp_path, HEADS[head], f"tokens: {tokens}"))


@pytest.mark.sweep("a bundle each, with its proof", but=["fused"])
@pytest.mark.parametrize(
    ("head", "drafter", "more"),
    [
        ("shared", "tree: [3, 2, 1]", ""),
        ("the target's projection", "tree: [2, 2]", "graphs: fused"),
    ],
)
def test_generates_what_the_target_generates(head, drafter, more, tmp_path):
    plan = plan_of(tmp_path, HEADS[head], drafter, more)
    assert (plan.drafter.kind, plan.graphs) == ("medusa", "fused" if more else "separate")
    check_generation(plan, tmp_path)
