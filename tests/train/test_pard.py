"""PARD as it learns: what it says, what learns, and the language model that it exports."""

import pytest
import torch

from speccompile.recipe import load_recipe, make_plan
from tests import zoo
from tests.compile.eager_rounds import check_generation
from tests.heads.every import MASK
from tests.json_files import merge_json
from tests.train import tiny_drafters
from tests.train.students import ANCHORS, check_computed_again, check_learns, check_said, seen_by, student_of

pytestmark = pytest.mark.builds(2)

DEPTH = 4


def plan_of(folder, architecture="llama", **settings):
    """Return a recipe that drafts with a language model of its own beside a tiny target."""
    tiny_drafters.target(folder)
    zoo.save(architecture, folder / "head", **settings)
    merge_json(folder / "head" / "config.json", {"pard_token": MASK})
    recipe = "name: tiny\ntarget: {model: target}\ndrafter: {kind: pard, model: head, tokens: 2}\n"
    (folder / "recipe.yaml").write_text(recipe + "cache: {max_length: 64, prefill_chunk: 16}\n")
    return make_plan(load_recipe(folder))


@pytest.mark.parametrize("architecture", ["llama", "mistral", "gemma3_text"])
def test_masks_behind_a_text_say_what_the_reference_says_of_each(tmp_path, architecture):
    check_said(plan_of(tmp_path, architecture), DEPTH)
    if architecture == "mistral":
        check_said(plan_of(tmp_path, architecture), 1)


def plan_of_export(plan, student, folder):
    """Return the plan of the same recipe with the exported student."""
    student.save(folder / "exported", torch.float32)
    recipe = (folder / "recipe.yaml").read_text()
    (folder / "recipe.yaml").write_text(recipe.replace("model: head", "model: exported"))
    return make_plan(load_recipe(folder))


@pytest.mark.sweep("a training and a bundle; the masks and the loss are above and below, in the first tier")
def test_what_is_trained_learns_comes_back_and_is_built(tmp_path):
    plan = plan_of(tmp_path)
    check_computed_again(plan, DEPTH)
    student = check_learns(plan, DEPTH)
    exported = plan_of_export(plan, student, tmp_path)
    assert exported.drafter.mask_token == MASK
    seen = seen_by(plan, student)
    with torch.no_grad():
        pairs = zip(student(seen, ANCHORS, DEPTH), student_of(exported, DEPTH)(seen, ANCHORS, DEPTH), strict=True)
        assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
    check_generation(exported, tmp_path)


def test_a_new_one_is_read_and_learns(tmp_path):
    model = tiny_drafters.target(tmp_path)
    tiny_drafters.begin(tmp_path, model, "pard", sizes={"mask_token": 44})
    plan = tiny_drafters.planned(tmp_path, "pard")
    assert plan.drafter.mask_token == 44
    check_said(plan, DEPTH)
    check_learns(plan, DEPTH)
