"""Domino: its drafter against its formula, which torch's GRU computes, and bundles."""

from functools import partial

import pytest

from tests.compile.eager_rounds import check_generation, check_rounds, plan_of
from tests.heads import dflash as heads

WRITERS = {
    "masks alone": heads.domino,
    "anchor": partial(heads.domino, own={"shift_label": True, "pure_draft_prefix_len": 0}, prefix="logit_head."),
    "own vocabulary": partial(heads.speculators, kind="domino", draft_size=64),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_drafts_of_rounds_are_those_of_the_whole_text(tmp_path, writer):
    check_rounds(plan_of(tmp_path, WRITERS[writer], "kind: domino"))


@pytest.mark.sweep("a bundle with its proof")
@pytest.mark.parametrize("drafter", ["tree: {kind: blocks, nodes: 9}", "tokens: 4"])
def test_generates_what_the_target_generates(tmp_path, drafter):
    more = "decoding: sampling" if "tokens" in drafter else ""
    plan = plan_of(tmp_path, WRITERS["anchor"], f"kind: auto, {drafter}", more)
    assert (plan.drafter.kind, plan.graphs) == ("domino", "fused")
    check_generation(plan, tmp_path)
