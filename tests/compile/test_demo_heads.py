"""The heads that were trained for the demo's target: what they accept, compiled as their recipes say."""

from pathlib import Path

import pytest

from speccompile.bundle.prompts import read_prompts
from speccompile.compiler.build import build
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.resource_estimate import estimate_resources
from speccompile.runtime import Bundle

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
NEW_TOKENS = 64
LARGEST = 4_000_000
"""Bytes of a head that is part of the repository."""

WAYS = {
    "eagle3, chain of 4": ("demo-eagle3", ["drafter.tree=null", "drafter.tokens=4"], 2.6),
    "eagle3, its tree": ("demo-eagle3", [], 3.2),
    "medusa, its tree": ("demo-medusa", [], 2.2),
    "dflash, block of 8": ("demo-dflash", [], 3.3),
}
"""Recipe, what is set in it, and new tokens per round that all prompts together give at least. They were measured well
above that; what decides is the order of logits, so that another processor may change a few."""


@pytest.mark.sweep(
    "the demo is built each time; tests/train/test_evaluate_compiled.py does it with EAGLE-3 in the first tier"
)
@pytest.mark.parametrize("way", WAYS)
def test_what_the_trained_heads_accept(tmp_path, way):
    name, overrides, least = WAYS[way]
    plan = make_plan(load_recipe(RECIPES / name, overrides))
    assert plan.drafter.head.weight_bytes <= LARGEST
    folder = build(plan, tmp_path / "bundle", prove=False)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert estimate_resources(plan).bundle == pytest.approx(size, rel=0.15)
    bundle = Bundle.open(folder, threads=1)
    prompts = read_prompts(RECIPES / "demo" / "prompts.jsonl")
    runs = [bundle.generate(prompt, max_new_tokens=NEW_TOKENS, adaptive=False) for prompt in prompts]
    alone = [bundle.generate(prompt, max_new_tokens=NEW_TOKENS, autoregressive=True) for prompt in prompts[:4]]
    assert [one.token_ids for one in runs[:4]] == [one.token_ids for one in alone]
    assert sum(len(one.token_ids) - 1 for one in runs) / sum(one.rounds for one in runs) >= least


def test_the_kinds_are_found_by_their_folders():
    for name in ("demo-eagle3", "demo-medusa", "demo-dflash"):
        recipe = RECIPES / name
        assert make_plan(load_recipe(recipe, ["drafter.kind=auto"])) == make_plan(load_recipe(recipe))
