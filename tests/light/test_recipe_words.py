"""What people call drafting methods and precisions elsewhere is understood, and plans as this version's own words."""

import pytest

from speccompile.drafters import DRAFTING_METHODS, kind_called
from speccompile.errors import RecipeError
from speccompile.plan.precisions import ALIASES
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.capabilities import SUPPORT_TABLE


@pytest.mark.parametrize(
    ("called", "kind"),
    [
        ("ngram", "prompt_lookup"),
        ("prompt-lookup", "prompt_lookup"),
        ("lookup", "prompt_lookup"),
        ("n-gram", "prompt_lookup"),
        ("PLD", "prompt_lookup"),
        ("draft", "model"),
        ("draft_model", "model"),
        ("Draft-Model", "model"),
        ("eagle-3", "eagle3"),
        ("EAGLE3", "eagle3"),
        ("token-recycling", "token_recycling"),
        ("eagle4", "eagle4"),
    ],
)
def test_a_kind_has_other_names(called, kind):
    assert kind_called(called) == kind


def test_no_two_kinds_have_one_name():
    names = [name for kind, family in DRAFTING_METHODS.items() for name in (kind, *family.aliases)]
    assert len(names) == len(set(names))
    assert all(name == name.lower().replace("-", "_") for name in names)


def test_precisions_are_those_of_some_engine():
    known = {word for row in SUPPORT_TABLE for word in row["precision"]}
    assert set(ALIASES.values()) <= known
    assert not ALIASES.keys() & known


def plan(make_recipe, **keys):
    return make_plan(load_recipe(make_recipe(**keys)))


def test_a_recipe_in_other_words_is_the_same_plan(make_recipe):
    ours = plan(make_recipe, drafter={"kind": "prompt_lookup"}, precision={"target": "int8"})
    theirs = plan(make_recipe, drafter={"kind": "N-gram".replace("N-", "n")}, precision={"target": "Q8"})
    assert ours.to_json() == theirs.to_json()
    assert (theirs.drafter.kind, theirs.target.precision) == ("prompt_lookup", "int8")
    inside = {"kind": "draft", "model": "drafter", "then": "lookup"}
    assert plan(make_recipe, drafter=inside).drafter.cascade.then.kind == "prompt_lookup"


@pytest.mark.parametrize(
    ("called", "precision"),
    [("INT4", "int4"), ("int-8", "int8"), ("4-bit", "int4"), ("8bit", "int8"), ("BF16", "bfloat16")],
)
def test_a_precision_has_other_names_and_spellings(make_recipe, called, precision):
    assert plan(make_recipe, precision={"target": called}).target.precision == precision


def test_other_words_are_refused_with_the_nearest(make_recipe):
    with pytest.raises(RecipeError, match=r"received 'prompt_lokup', which is unknown") as caught:
        plan(make_recipe, drafter={"kind": "prompt_lokup"})
    assert "prompt_lookup" in caught.value.hint
    with pytest.raises(RecipeError, match=r"received 'ngrm', which is unknown") as caught:
        plan(make_recipe, drafter={"kind": "ngrm"})
    assert caught.value.hint == "did you mean 'prompt_lookup'?", "ngram is another name of it"
    with pytest.raises(RecipeError, match=r"received 'fp15', which is unknown"):
        plan(make_recipe, precision={"target": "fp15"})
    with pytest.raises(RecipeError, match=r"received 'q9', which is unknown") as caught:
        plan(make_recipe, precision={"target": "q9"})
    assert caught.value.hint == "did you mean 'int8'?", "q8 is another name of it"


@pytest.mark.parametrize("keys", [{"precision": {"target": "w" * 3000}}, {"decoding": "w" * 3000}])
def test_a_long_word_is_shortened(make_recipe, keys):
    with pytest.raises(RecipeError, match=r"received 'w{80}\.\.\.', which is unknown"):
        plan(make_recipe, **keys)


@pytest.mark.parametrize(("called", "like"), [("Q4_K_M", "int4"), ("iq4_xs", "int4"), ("Q8_0", "int8")])
def test_types_of_gguf_files_are_told_what_is_like_them(make_recipe, called, like):
    with pytest.raises(RecipeError, match=f"received '{called}', which is unknown") as caught:
        plan(make_recipe, precision={"target": called})
    assert (
        caught.value.hint
        == f"this is a type of GGUF files: use {like}, or stored for a model that has codes of its own"
    )
