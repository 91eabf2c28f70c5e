"""Recipe -> a PARD drafter: a language model with a mask token."""

import pytest

from speccompile.errors import CheckpointError, RecipeError
from speccompile.recipe import TreePlan, load_recipe, make_plan


@pytest.fixture
def plan(make_recipe, make_checkpoint, tmp_path):
    """Plan a recipe with a drafter whose config has these keys."""

    def plan(drafter=(), **config):
        make_checkpoint(tmp_path / "pard", **config)
        return make_plan(load_recipe(make_recipe(drafter={"kind": "pard", "model": "pard"} | dict(drafter))))

    return plan


def test_the_token_comes_from_the_config(plan):
    decided = plan({"tokens": 5, "kind": "auto"}, pard_token=7).drafter
    assert (decided.kind, decided.mask_token) == ("pard", 7)
    assert decided.tree == TreePlan("chain", (-1, 0, 1, 2, 3, 4), 5)
    assert decided.to_json()["mask_token"] == 7


def test_a_language_model_drafts_without(plan):
    assert plan({"kind": "model"}, pard_token=7).drafter.mask_token is None


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "config.json: pard_token: received nothing, expected a token from 0 to 7"),
        ({"pard_token": 8}, "config.json: pard_token: received 8, expected a token from 0 to 7"),
        ({"pard_token": "<mask>"}, "config.json: pard_token: received '<mask>', expected a token from 0 to 7"),
        ({"pard_token": True}, "config.json: pard_token: received True, expected a token from 0 to 7"),
    ],
)
def test_tokens_that_are_none(plan, tmp_path, config, message):
    with pytest.raises(CheckpointError) as caught:
        plan(**config)
    assert f"{tmp_path / 'pard'}/{message}" in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("kind", ["pard", "model"])
def test_its_successor_drafts_without_features(plan, kind):
    assert plan({"kind": kind}, pard_token=3, spd_type="pard2").drafter.kind == kind


def test_the_vocabulary_is_the_targets(plan):
    with pytest.raises(RecipeError, match=r"received a drafter with a vocabulary of 16 tokens, expected the target's"):
        plan(vocab_size=16, pard_token=12, words=None)


def test_the_mask_may_be_padding_that_the_target_lacks(plan):
    decided = plan(vocab_size=16, pard_token=12)
    assert decided.drafter.mask_token == 12


def test_trees_are_for_others(plan):
    with pytest.raises(RecipeError, match=r"drafter.tree: received a static tree, which drafter.kind pard cannot do"):
        plan({"tree": [2, 1]}, pard_token=7)
