"""Position scaling in plans: how long texts may be, and what is refused by name before any work."""

import re

import pytest

from speccompile.errors import RecipeError
from speccompile.recipe import load_recipe, make_plan

FACTORS = {"short_factor": [1.0, 1.1], "long_factor": [1.5, 2.0], "original_max_position_embeddings": 32}
LONGROPE = {"rope_parameters": {"rope_type": "longrope", **FACTORS}}


@pytest.fixture
def planned(make_recipe, make_checkpoint, tmp_path):
    """Return a function that plans a target with so many positions and such a config for texts of a length."""

    def plan(config, length=None, positions=64, **cache):
        folder = tmp_path / f"model{len(list(tmp_path.iterdir()))}"
        make_checkpoint(folder, max_position_embeddings=positions, **config)
        cache |= {"max_length": length} if length else {}
        recipe = make_recipe(target={"model": folder.name}, drafter={"kind": "prompt_lookup", "tokens": 2}, cache=cache)
        return make_plan(load_recipe(recipe))

    return plan


@pytest.mark.parametrize("kind", ["yarn", "llama3", "linear"])
def test_a_factor_says_how_long_texts_may_be(planned, kind):
    scaling = {"rope_type": kind, "factor": 4.0}
    for rope in (scaling, scaling | {"original_max_position_embeddings": 64}):
        assert planned({"rope_parameters": rope}, 256).max_length == 256
        with pytest.raises(RecipeError, match="received 257, expected at most 256, the positions of the target"):
            planned({"rope_parameters": rope}, 257)


def test_linear_scaling_beyond_the_positions_that_a_config_names_is_noted(planned):
    rope = {"rope_parameters": {"rope_type": "linear", "factor": 4.0}}
    assert any("divides its positions by 4.0" in note for note in planned(rope, 65).notes)
    assert not any("divides its positions" in note for note in planned(rope, 64).notes)


def test_dynamic_scaling_is_refused_by_name_beyond_the_positions(planned):
    rope = {"rope_scaling": {"type": "dynamic", "factor": 4.0}}
    assert planned(rope, 64).max_length == 64
    with pytest.raises(RecipeError, match=r"received 65, expected at most 64.*its scaling 'dynamic' has other freq"):
        planned(rope, 65)


def test_longrope_is_refused_by_name_beyond_the_original_length_unless_asked_for(planned):
    assert planned(LONGROPE).max_length == 32, "the default is a length at which logits are transformers'"
    with pytest.raises(RecipeError, match=r"received 33, expected at most 32: .* has longrope") as said:
        planned(LONGROPE, 33)
    assert "cache.long_factors to true" in str(said.value.hint)
    plan = planned(LONGROPE, 33, long_factors=True)
    assert plan.max_length == 33
    assert any("all texts have the factors of long ones" in note for note in plan.notes)


@pytest.mark.parametrize("config", [LONGROPE, {}])
def test_long_factors_that_change_nothing_are_refused(planned, config):
    with pytest.raises(RecipeError, match=re.escape("cache.long_factors: received true, expected it only with")):
        planned(config, 32, long_factors=True)


def test_one_list_for_all_lengths_is_no_limit(planned):
    same = {"rope_parameters": LONGROPE["rope_parameters"] | {"long_factor": FACTORS["short_factor"]}}
    assert planned(same, 64).max_length == 64
