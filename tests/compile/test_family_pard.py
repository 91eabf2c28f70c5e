"""PARD: its drafter against transformers' forward over text and mask tokens, and bundles."""

import pytest

from tests.compile.eager_rounds import check_generation, check_rounds, plan_of
from tests.compile.tiny_bundles import noisy, save
from tests.json_files import merge_json

MASK = 9


def pard(folder, target):
    """Write a language model like the target, whose config names a mask token."""
    save(noisy("llama", 0.02), folder, tokenizer=False)
    merge_json(folder / "config.json", {"pard_token": MASK})


@pytest.mark.parametrize("tokens", [4, 1])
def test_drafts_of_rounds_are_those_of_the_whole_text(tmp_path, tokens):
    plan = plan_of(tmp_path, pard, f"tokens: {tokens}")
    assert (plan.drafter.kind, plan.drafter.mask_token) == ("pard", MASK)
    check_rounds(plan)


@pytest.mark.sweep("a bundle with its proof; rounds are in the first tier")
def test_generates_what_the_target_generates(tmp_path):
    check_generation(plan_of(tmp_path, pard, "tokens: 4"), tmp_path)
