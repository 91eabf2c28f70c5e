"""Kangaroo, PaSS and BiTA as they learn: what they say, what learns, and what they export."""

from functools import partial

import pytest

from speccompile.recipe import load_recipe, make_plan
from tests import zoo
from tests.compile.eager_rounds import check_generation
from tests.compile.tiny_bundles import save
from tests.heads.every import bita, masks
from tests.heads.kangaroo import kangaroo
from tests.train.students import BUILT, check_learns, check_said, check_saved


def plan_of(folder, architecture, kind, write):
    """Return a recipe that drafts with what `write` puts beside a tiny target."""
    model = zoo.model(architecture)
    save(model, folder / "target", tokenizer=False)
    write(folder / "head", model.config)
    lines = ("name: tiny", "target: {model: target}", f"drafter: {{kind: {kind}, model: head, tokens: 2}}",
             "cache: {max_length: 64, prefill_chunk: 16, batch_size: 1}")  # fmt: skip
    (folder / "recipe.yaml").write_text("\n".join(lines))
    return make_plan(load_recipe(folder))


adapter = partial(kangaroo, exit_layer=1, pickle="")
CASES = {
    "kangaroo": ("llama", "kangaroo", partial(adapter, layers=2), 3),
    "kangaroo, a window in the target": ("mistral", "kangaroo", adapter, 3),
    "pass": ("mistral", "pass", masks, 4),
    "pass, a scaled embedding": ("gemma3_text", "pass", masks, 3),
    "bita": ("llama", "bita", bita, 4),
    "bita by a projection": ("qwen3", "bita", partial(bita, projection=5), 3),
}


@pytest.mark.parametrize("name", CASES)
def test_anchors_of_a_text_say_what_the_reference_says_of_each(tmp_path, name):
    *parts, depth = CASES[name]
    check_said(plan_of(tmp_path, *parts), depth)


@pytest.mark.parametrize("name", CASES)
def test_what_is_trained_learns_and_comes_back(tmp_path, name):
    *parts, depth = CASES[name]
    plan = plan_of(tmp_path, *parts)
    check_saved(plan, check_learns(plan, depth), depth)


@pytest.mark.sweep(BUILT)
@pytest.mark.parametrize("name", ["kangaroo", "pass", "bita"])
def test_what_is_left_is_built(tmp_path, name):
    *parts, depth = CASES[name]
    plan = plan_of(tmp_path, *parts)
    check_generation(check_saved(plan, check_learns(plan, depth), depth), tmp_path)
