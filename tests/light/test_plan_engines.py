"""Recipe -> the engines of the plan: capabilities, precisions, names."""

import itertools

import pytest

from speccompile.errors import RecipeError
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.capabilities import SUPPORT_TABLE
from speccompile.recipe.engines import decide_engines
from speccompile.recipe.stored_precision import StoredPrecision

DRAFTER = {"kind": "model", "model": "drafter"}
RTX = {"backend": "tensorrt_rtx", "compute_capability": "8.9"}
PRECISIONS = ("float32", "float16", "bfloat16", "int8", "int4", "w8a8", "fp8")
CAPABILITIES = [(row, capability) for row in SUPPORT_TABLE for capability in row["compute_capability"]]


def engines(path, *overrides):
    return make_plan(load_recipe(path, overrides)).engines


def refusal(path, *overrides):
    with pytest.raises(RecipeError) as caught:
        engines(path, *overrides)
    assert caught.value.hint
    return str(caught.value)


@pytest.mark.parametrize(
    ("row", "capability", "word"),
    [(row, capability, word) for (row, capability), word in itertools.product(CAPABILITIES, PRECISIONS)],
    ids=lambda value: value if isinstance(value, str) else value["backend"][0],
)
def test_a_precision_builds_where_its_row_says_so(make_recipe, row, capability, word):
    engine = {"backend": row["backend"][0], "compute_capability": capability, "precision": {"target": word}}
    path = make_recipe(engines=[engine])
    if word in row["precision"]:
        (decided,) = engines(path)
        assert (decided.backend, decided.compute_capability) == (row["backend"][0], capability)
        assert decided.precision.target == word
    else:
        message = refusal(path)
        assert f"engines.0.precision.target: received '{word}', which {row['backend'][0]} with compute" in message
        assert capability in message.partition("expected")[0]


def test_one_engine_for_each_capability(make_recipe):
    listed = {"backend": "tensorrt_rtx", "compute_capability": ["8.6", "8.9"], "precision": {"target": "int4"}}
    first, second = engines(make_recipe(engines=[listed]))
    assert (first.name, second.name) == ("tensorrt_rtx-8.6-int4", "tensorrt_rtx-8.9-int4")
    assert first.precision == second.precision
    assert [engine.name for engine in engines(make_recipe(engines=[listed | {"name": "edge"}]))] == [
        "edge-8.6",
        "edge-8.9",
    ]
    assert [engine.name for engine in engines(make_recipe(engines=[RTX | {"name": "edge"}]))] == ["edge"]


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("89", "did you mean '8.9'?"),
        ("true", 'for example `compute_capability: ["8.6", "8.9"]`'),
        ("{a: 1}", 'for example `compute_capability: ["8.6", "8.9"]`'),
    ],
)
def test_what_is_nearly_a_capability_gets_a_hint(make_recipe, written, hint):
    path = make_recipe(engines=[{"backend": "tensorrt_rtx"}])
    with pytest.raises(RecipeError, match=r"engines\.0\.compute_capability") as caught:
        engines(path, f"engines.0.compute_capability={written}")
    assert caught.value.hint == hint


@pytest.mark.parametrize("written", ["8.9", "'8.9'", "[8.9]", "['8.9']"])
def test_a_capability_may_be_written_as_a_number(make_recipe, written):
    path = make_recipe(engines=[{"backend": "tensorrt_rtx"}])
    (engine,) = engines(path, f"engines.0.compute_capability={written}")
    assert (engine.name, engine.compute_capability) == ("tensorrt_rtx-8.9", "8.9")


def test_what_all_engines_have_and_what_one_says_itself(make_recipe):
    common = {"target": "float16", "drafter": "float16"}
    listed = [RTX, RTX | {"precision": {"target": "int4", "block_size": 64}}, RTX | {"precision": {"drafter": "fp8"}}]
    first, second, third = engines(
        make_recipe(
            engines=[{**each, "name": f"e{i}"} for i, each in enumerate(listed)], precision=common, drafter=DRAFTER
        )
    )
    assert (first.precision.target, first.precision.drafter, first.precision.block_size) == ("float16", "float16", None)
    assert (second.precision.target, second.precision.drafter) == ("int4", "float16")
    assert second.precision.block_size == 64
    assert (third.precision.target, third.precision.drafter) == ("float16", "fp8")


def test_weights_in_blocks_of_32_unless_said_otherwise(make_recipe):
    assert engines(make_recipe(precision={"target": "int4"}))[0].precision.block_size == 32


def test_a_block_size_for_nothing_is_refused(make_recipe):
    message = refusal(make_recipe(precision={"block_size": 32}))
    assert "precision.block_size: received 32, expected it only where target or drafter is int4" in message


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ([{"name": "a"}, {"name": "b"}], "engines.1: received onnxruntime on cpu a second time, expected engines that"),
        ([RTX, RTX], "engines.1: received tensorrt_rtx on 8.9 a second time, expected engines that differ"),
        ([{"name": "a"}, {"name": "a", "provider": "cuda"}], "engines.1.name: received 'a' a second time, expected a "),
        ([{"compute_capability": "8.9"}], "engines.0.compute_capability: received '8.9', expected nothing, because on"),
        ([{"backend": "tensorrt_rtx"}], "engines.0.compute_capability: received nothing, expected one or several of 7"),
        ([RTX | {"compute_capability": ["8.9", 8.9]}], "engines.0.compute_capability: received '8.9' twice, expected "),
        ([RTX | {"compute_capability": "9.0"}], "engines.0.compute_capability: received '9.0', which tensorrt_rtx wit"),
        ([RTX | {"compute_capability": "6.1"}], "engines.0.compute_capability: received '6.1', which is unknown"),
        ([RTX | {"compute_capability": []}], "engines.0.compute_capability: received [], expected a compute capabilit"),
        ([RTX | {"compute_capability": 89}], "engines.0.compute_capability: received '89', which is unknown, expected"),
        ([RTX | {"provider": "cpu"}], "engines.0.provider: received 'cpu', which tensorrt_rtx with compute capability"),
        ([{"defer": True}], "engines.0.defer: received true, expected nothing, because onnxruntime opens its graphs"),
        ([{"precision": {"drafter": "float32"}}], "engines.0.precision.drafter: received a key that means nothing for"),
        ([{"precision": {"block_size": 32}}], "engines.0.precision.block_size: received 32, expected it only where ta"),
        (
            [{"precision": {"target": "int4", "block_size": 48}}],
            "engines.0.precision.block_size: received '48', which is unknown, expected 32",
        ),
        ([{"precision": {"target": "fp8"}}], "engines.0.precision.target: received 'fp8', which onnxruntime on cpu ca"),
    ],
)  # fmt: skip
def test_engines_that_are_refused(make_recipe, listed, message):
    assert message in refusal(make_recipe(engines=listed))


CODED, FLOAT = StoredPrecision("float32", "float32"), StoredPrecision("float32", "bfloat16", coded=("target",))


@pytest.mark.parametrize(
    ("kind", "target", "stored", "drafter"),
    [
        ("model", "float32", StoredPrecision(), "float32"),
        ("model", "bfloat16", StoredPrecision(), "float32"),
        ("model", "int4", StoredPrecision(), "int8"),
        ("model", "int8", StoredPrecision("bfloat16", "bfloat16"), "int8"),
        ("model", "int8", StoredPrecision("int4", "int4"), "int4"),
        ("eagle3", "bfloat16", StoredPrecision(), "bfloat16"),
        ("eagle3", "int8", StoredPrecision(), "int8"),
        ("eagle3", "int4", StoredPrecision(), "int8"),
        ("model", "stored", FLOAT, "int8"),
        ("model", "stored", CODED, "stored"),
        ("layer_skip", "int4", StoredPrecision(), "int4"),
    ],
)
def test_drafts_beside_codes_are_in_eight_bits_by_default(make_recipe, kind, target, stored, drafter):
    def precision(**more):
        recipe = load_recipe(make_recipe(precision={"target": target, **more}))
        return decide_engines(recipe, [], kind, stored)[0].precision

    assert precision().drafter == drafter
    if kind != "layer_skip":
        assert precision(drafter="float32").drafter == "float32"


@pytest.mark.parametrize(("kind", "stored"), [("model", CODED), ("model", FLOAT), ("eagle3", CODED)])
def test_on_a_gpu_drafts_beside_codes_are_in_sixteen(make_recipe, kind, stored):
    recipe = load_recipe(make_recipe(engines=[RTX], precision={"target": "int4"}))
    expected = "bfloat16" if stored is FLOAT else "float16"
    assert decide_engines(recipe, [], kind, stored)[0].precision.drafter == expected


def test_a_weight_only_drafter_is_refused_where_the_builder_crashes(make_recipe):
    path = make_recipe(engines=[RTX | {"precision": {"drafter": "int4"}}], drafter=DRAFTER)
    message = refusal(path)
    assert "engines.0.precision.drafter: received 'int4', which tensorrt_rtx with compute capability" in message


def test_fusing_nothing_is_refused(make_recipe):
    message = refusal(make_recipe(graphs="fused", drafter={"kind": "none"}))
    assert "graphs: received 'fused', but there is no drafter to fuse" in message
    assert make_plan(load_recipe(make_recipe(graphs="fused", drafter=DRAFTER))).graphs == "fused"
