"""Which drafting methods are compared: the table, a file, and what neither may say."""

import pytest

from speccompile.drafters import DRAFTING_METHODS, KINDS_WITH_WEIGHTS
from speccompile.errors import RecipeError, UsageError
from speccompile.measure.compare.methods import OWN, Method, check_comparable, default_methods, read_methods, replaced
from speccompile.measure.tune.space import TunedRecipe
from tests.light.test_audio import WHISPER
from tests.light.test_sources import BART

MODEL = {"kind": "model", "model": "drafter"}


@pytest.fixture
def source(make_recipe, tmp_path, make_checkpoint):
    """Return a recipe whose target has four layers; keywords are keys of it."""
    make_checkpoint(tmp_path / "deep", num_hidden_layers=4)

    def make(*overrides, **keys):
        return TunedRecipe.of(make_recipe(**({"target": {"model": "deep"}} | keys)), overrides)

    return make


def names(methods):
    return [method.name for method in methods]


def test_every_kind_that_needs_no_training_has_a_default_method():
    free = {
        kind
        for kind, family in DRAFTING_METHODS.items()
        if kind not in KINDS_WITH_WEIGHTS and kind != "none" and "model" not in (family.required_keys or {})
    }
    assert {"prompt_lookup", "layer_skip"} <= free
    assert free <= {kind for kind, family in DRAFTING_METHODS.items() if family.compare_variants}
    tried = [*OWN, *(each for family in DRAFTING_METHODS.values() for each in family.compare_variants)]
    assert len({each.name for each in tried}) == len(tried)


def test_default_methods_of_a_recipe_without_a_drafter_need_no_training(source):
    found = default_methods(source(drafter={"kind": "none"}))
    assert {"prompt_lookup-4", "prompt_lookup-tree", "layer_skip-half"} <= set(names(found))
    assert not [each for each in names(found) if each.startswith("none")]
    settings = {method.name: method.settings for method in found}
    assert settings["prompt_lookup-4"] == ('drafter={"kind": "prompt_lookup", "tokens": 4}',)
    assert settings["layer_skip-half"] == ('drafter={"kind": "layer_skip", "layers": [0, 1], "tokens": 4}',)
    assert settings["layer_skip-quarter"] == ('drafter={"kind": "layer_skip", "layers": [0], "tokens": 4}',)


def test_a_source_of_text_is_looked_up(source, make_checkpoint, tmp_path):
    make_checkpoint(tmp_path / "bart", **BART)
    make_checkpoint(tmp_path / "whisper", **WHISPER)
    variant = "prompt_lookup-source-12"
    found = {each.name: each for each in default_methods(source(target={"model": "bart"}, drafter={"kind": "none"}))}
    assert found[variant].settings == ('drafter={"kind": "prompt_lookup", "over": "source", "tokens": 12}',)
    assert variant not in names(default_methods(source(target={"model": "whisper"}, drafter={"kind": "none"})))
    assert variant not in names(default_methods(source(drafter={"kind": "none"})))


def test_the_recipes_own_drafter_has_lengths_and_trees_once_each(source):
    found = default_methods(source(drafter=MODEL | {"tokens": 8}))
    own = [method for method in found if method.name.startswith("model")]
    assert own[0] == Method("model", ())
    assert own[1:3] == [
        Method("model-tokens-2", ("drafter.tokens=2",)),
        Method("model-tokens-4", ("drafter.tokens=4",)),
    ]
    assert "model-tokens-8" not in names(found)  # which is the recipe's own
    assert Method("model-tree-2.2.1", ("drafter.tokens=null", "drafter.tree=[2, 2, 1]")) in found
    tree = default_methods(source(drafter=MODEL | {"tree": [2, 1]}))
    assert Method("model-tokens-2", ("drafter.tree=null", "drafter.tokens=2")) in tree


def test_variants_that_the_recipe_cannot_have_are_passed_over_and_others_are_not(source, caplog):
    with caplog.at_level("INFO", "speccompile"):
        found = default_methods(source(drafter={"kind": "prompt_lookup", "tokens": 3}, verify={"method": "lenience"}))
    assert "skipping prompt_lookup-tree-2.2.1: " in caplog.text
    assert "prompt_lookup-tree-2.2.1" not in names(found)
    assert "prompt_lookup-tree" in names(found)  # whose row then says why it cannot be


def test_layers_that_nobody_knows_are_not_skipped(source):
    assert not [each for each in names(default_methods(source(target={"model": "target"}))) if "layer_skip" in each]


def test_a_drafter_without_weights_leaves_their_precision_out(source):
    found = source(drafter=MODEL, precision={"drafter": "int8"})
    assert replaced(found, {"kind": "prompt_lookup"}) == (
        'drafter={"kind": "prompt_lookup"}', "precision.drafter=null",
    )  # fmt: skip
    assert replaced(found, MODEL) == ('drafter={"kind": "model", "model": "drafter"}',)
    assert found.planned(*replaced(found, {"kind": "prompt_lookup"})).drafter.kind == "prompt_lookup"


@pytest.fixture
def read(source, tmp_path):
    def read(text):
        (tmp_path / "methods.yaml").write_text(text)
        return read_methods(tmp_path / "methods.yaml", source(drafter=MODEL))

    return read


def test_a_file_gives_sections_or_settings(read):
    assert read("lookup-8: {kind: prompt_lookup, tokens: 8}\nshort: [drafter.tokens=2]\n") == [
        Method("lookup-8", ('drafter={"kind": "prompt_lookup", "tokens": 8}',)),
        Method("short", ("drafter.tokens=2",)),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "received null, expected a mapping of names"),
        ("[1]", r"received \[1\], expected a mapping of names"),
        ("a: 3", "methods.yaml, a: received 3, expected a section `drafter` or a list"),
        ("a: []", r"methods.yaml, a: received \[\], expected"),
        ("a: {}", r"methods.yaml, a: received \{\}, expected"),
        ("a: [1]", r"methods.yaml, a: received \[1\], expected"),
        ("../a: [x=1]", "received the name '../a', expected a name of letters"),
        ("3: [x=1]", "received the name 3, expected a name"),
        ("autoregressive: [x=1]", "received the name 'autoregressive'"),
        ("a: {kind: none}", "received kind none, expected a drafting method"),
        ("a: [x=1]\na: [x=2]", "the key 'a' stands twice"),
        ("a: [", "received text that is not YAML"),
    ],
)
def test_a_file_that_is_wrong_is_refused(read, text, message):
    with pytest.raises(UsageError, match=message) as caught:
        read(text)
    assert caught.value.hint


def test_a_file_that_is_not_there_or_no_text(source, tmp_path):
    with pytest.raises(UsageError, match=r"received '.*nothing.yaml', expected a file"):
        read_methods(tmp_path / "nothing.yaml", source())
    (tmp_path / "bytes.yaml").write_bytes(b"a\xff")
    with pytest.raises(UsageError, match=r"not UTF-8 \(at byte 1\)"):
        read_methods(tmp_path / "bytes.yaml", source())


@pytest.mark.parametrize(
    ("setting", "changed"),
    [
        ("target.model=target", "the recipe's target"),
        ("decoding=sampling", "the recipe's decoding"),
        ("cache.max_length=32", "the recipe's max_length"),
        ("engines=[{precision: {target: int8}}]", "the engine or the target's precision"),
    ],
)
def test_a_method_changes_how_is_drafted_alone(source, setting, changed):
    found = source(engines=[{"backend": "onnxruntime"}])
    check_comparable(found, found.planned('drafter={"kind": "prompt_lookup"}'))
    with pytest.raises(RecipeError, match=f"received a method that changes {changed}") as caught:
        check_comparable(found, found.planned(setting))
    assert caught.value.hint


def test_an_engine_is_named_or_the_first_for_the_processor(make_recipe):
    rtx = {"backend": "tensorrt_rtx", "compute_capability": "8.9", "name": "edge"}
    recipe = make_recipe(engines=[rtx, {"backend": "onnxruntime", "name": "here"}])
    assert TunedRecipe.of(recipe, ()).engine.name == "here"
    assert TunedRecipe.of(recipe, (), "edge").engine.name == "edge"
    with pytest.raises(RecipeError, match="received edge or here, expected one that is called 'elsewhere'"):
        TunedRecipe.of(recipe, (), "elsewhere")
