"""P-EAGLE: its drafter against its reference, and bundles. `scripts/references` compares both with speculators."""

from functools import partial

import pytest

from tests.compile.eager_rounds import check_generation, check_rounds, plan_of
from tests.heads.p_eagle import p_eagle


@pytest.mark.parametrize(
    ("head", "drafter"),
    [
        ({"dialect": "vllm", "draft_size": 100}, "tokens: 4"),
        ({"dialect": "vllm", "norm_before_residual": True}, "tokens: 1"),
        ({"dialect": "specforge", "layers": 1}, "tokens: 3"),
    ],
)
def test_drafts_of_rounds_are_those_of_the_whole_text(tmp_path, head, drafter):
    check_rounds(plan_of(tmp_path, partial(p_eagle, **head), drafter))


@pytest.mark.sweep("a bundle with its proof; rounds are in the first tier")
def test_generates_what_the_target_generates(tmp_path):
    plan = plan_of(tmp_path, partial(p_eagle, dialect="vllm", draft_size=100), "tokens: 3")
    assert (plan.drafter.kind, plan.graphs) == ("p_eagle", "fused")
    check_generation(plan, tmp_path)
