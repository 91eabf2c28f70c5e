"""What is tried for a recipe, how a recipe says it, and what cannot be tuned."""

import pytest

from speccompile.errors import RecipeError, UsageError
from speccompile.measure.tune.space import DraftShape, TunedRecipe, draft_shapes, precisions

DRAFTER = {"kind": "model", "model": "drafter"}
SEVERAL = {"kind": "models", "models": ["drafter", "drafter"]}
LOOKUP = {"kind": "prompt_lookup"}
RTX = {"backend": "tensorrt_rtx", "compute_capability": "8.9"}


@pytest.fixture
def recipe(make_recipe):
    """Return a recipe with a drafter; keywords are keys of it."""

    def make(drafter=DRAFTER, **keys):
        return make_recipe(drafter=drafter, **keys)

    return make


def test_usual_candidates_hold_the_recipes_own(recipe):
    chains = [DraftShape(drafts=drafts) for drafts in (1, 2, 3, 4, 5, 6, 8)]
    trees = [DraftShape(tree=tree) for tree in ("[2,1]", "[2,2,1]", "eagle-25", '{"depth":5,"top_k":4,"nodes":12}')]
    small = {"model": "target"}  # a vocabulary of eight tokens

    def usual(drafter, **keys):
        return draft_shapes(TunedRecipe.read(recipe(drafter, target=small, **keys), ()), (), ())

    assert usual(DRAFTER) == [*chains, *trees]
    assert usual(DRAFTER | {"tokens": 7}) == [*chains, *trees, DraftShape(drafts=7)]
    assert usual(DRAFTER | {"tree": [3, 1]})[-1] == DraftShape(tree="[3,1]")
    assert usual(DRAFTER | {"tree": "eagle-25"}) == [*chains, *trees]
    own = {"depth": 2, "top_k": 2, "nodes": 3}
    assert usual(DRAFTER | {"tree": own})[-1] == DraftShape(tree='{"depth":2,"top_k":2,"nodes":3}')
    assert usual(SEVERAL) == [*trees[:3], DraftShape(drafts=4)]
    assert usual(LOOKUP) == [*chains, *trees[:3]]
    assert usual(DRAFTER, verify={"method": "lenience"}) == chains


def test_a_tree_of_the_drafters_own_is_tried_and_left(recipe):
    source = TunedRecipe.read(recipe({"kind": "token_recycling", "nodes": 9}), ())
    own = DraftShape(keys=(("nodes", 9),))
    tried = draft_shapes(source, (), ())
    assert tried[-1] == own
    assert DraftShape(keys=(("nodes", 24),)) in tried
    assert source.shape_settings(own) == ("drafter.nodes=9",)
    assert source.planned(*source.shape_settings(own)).drafter.tree == source.plan.drafter.tree
    assert source.planned(*source.shape_settings(DraftShape(drafts=3))).drafter.tokens == 3
    assert own.label == "nodes 9"


def test_the_sizes_of_a_lookahead_are_tried(recipe):
    source = TunedRecipe.read(recipe({"kind": "lookahead", "window": 3, "level": 4, "guesses": 2}), ())
    tried = draft_shapes(source, (), ())
    assert tried[-1] == DraftShape(keys=(("window", 3), ("level", 4), ("guesses", 2)))
    drafts = {source.planned(*source.shape_settings(shape)).drafter.tokens for shape in tried}
    assert len(drafts) == len(tried) > 4
    with pytest.raises(UsageError, match="nothing is left to try of chain of 3"):
        draft_shapes(source, (3,), ())


def test_what_a_recipe_cannot_have_is_passed_over_with_a_reason(recipe, caplog):
    source = TunedRecipe.read(recipe(LOOKUP), ())
    with caplog.at_level("INFO", "speccompile"):
        assert draft_shapes(source, (3,), ['{"depth":5,"top_k":4,"nodes":12}']) == [DraftShape(drafts=3)]
    assert 'skipping tree {"depth":5,"top_k":4,"nodes":12}: setting drafter.tree' in caplog.text
    with pytest.raises(UsageError, match="nothing is left to try of tree oak or tree elm"):
        draft_shapes(source, (), ["oak", "elm"])


def test_settings_replace_what_is_written(recipe):
    source = TunedRecipe.read(recipe(DRAFTER | {"tree": [2, 1]}), ())
    assert source.shape_settings(DraftShape(drafts=3)) == ("drafter.tree=null", "drafter.tokens=3")
    source = TunedRecipe.read(recipe(DRAFTER | {"tokens": 2}), ())
    assert source.shape_settings(DraftShape(tree="[2,1]")) == ("drafter.tokens=null", "drafter.tree=[2,1]")


@pytest.mark.parametrize(
    ("keys", "settings"),
    [
        ({}, ("precision.drafter=int8",)),
        ({"precision": {"drafter": "int4", "block_size": 32}}, ("precision.drafter=int8", "precision.block_size=null")),
        ({"precision": {"target": "int4", "block_size": 32}}, ("precision.drafter=int8",)),
        ({"engines": [{"precision": {"drafter": "float32"}}]}, ("engines.0.precision.drafter=int8",)),
        ({"engines": [RTX, {"backend": "onnxruntime"}]}, ("engines.1.precision.drafter=int8",)),
        (
            {"engines": [{"precision": {"drafter": "int4", "block_size": 32}}]},
            ("engines.0.precision.drafter=int8", "engines.0.precision.block_size=null"),
        ),
    ],
)
def test_precision_is_set_in_the_engine_that_is_tuned(recipe, keys, settings):
    source = TunedRecipe.read(recipe(**keys), ())
    assert source.precision_settings("int8") == settings
    plan = source.planned(*settings)
    assert [each.precision.drafter for each in plan.engines if each.backend == "onnxruntime"] == ["int8"]


@pytest.mark.parametrize(
    "keys",
    [
        {"precision": {"drafter": "int8"}},
        {"engines": [{"precision": {"drafter": "int4"}}], "graphs": "fused"},
        {"verify": {"method": "typical", "epsilon": 0.1}, "decoding": "sampling"},
    ],
)
def test_no_drafter_can_always_be_chosen(recipe, keys):
    source = TunedRecipe.read(recipe(**keys), ())
    assert source.planned(*source.none_settings()).drafter.tokens == 0


def test_the_first_engine_on_the_processor_is_tuned(recipe):
    engines = [RTX, {"backend": "onnxruntime", "name": "mine"}]
    assert TunedRecipe.read(recipe(engines=engines), ()).engine.name == "mine"
    with pytest.raises(RecipeError, match=r"engines: received tensorrt_rtx-8.9, expected one of onnxruntime on cpu"):
        TunedRecipe.read(recipe(engines=[RTX]), ())


def test_a_recipe_without_a_drafter_has_nothing_to_tune(recipe):
    with pytest.raises(RecipeError, match=r"drafter.kind: received 'none', expected a drafter to tune"):
        TunedRecipe.read(recipe({"kind": "none"}), ())


def test_precisions_are_those_of_the_engine(recipe):
    source = TunedRecipe.read(recipe(), ())
    assert precisions(source, ()) == ["float32", "bfloat16", "int8", "int4"]
    assert precisions(source, ("int4",)) == ["int4"]
    with pytest.raises(UsageError, match="received 'fp8', expected float32, bfloat16, int8, int4 or stored"):
        precisions(source, ("int8", "fp8"))
    lookup = TunedRecipe.read(recipe(LOOKUP), ())
    assert precisions(lookup, ()) == [None]
    with pytest.raises(
        UsageError, match=r"--precision: received int8, expected nothing: drafter.kind prompt_lookup has"
    ):
        precisions(lookup, ("int8",))
