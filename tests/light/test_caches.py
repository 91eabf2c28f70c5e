"""Quantized caches without a build: what a recipe may ask for, what the contract says, and what a plan estimates."""

from dataclasses import replace
from pathlib import Path

import pytest

from speccompile import contract
from speccompile.bundle import caches
from speccompile.contract import Graph, Tensor
from speccompile.errors import RecipeError
from speccompile.plan.caches import CachePlan
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.cache_sizes import cache_bytes, token_bytes

DEMO = Path(__file__).resolve().parents[2] / "recipes" / "demo"


def planned(*overrides: str):
    return make_plan(load_recipe(DEMO, overrides))


def refusal(*overrides: str) -> str:
    with pytest.raises(RecipeError) as caught:
        planned(*overrides)
    return f"{caught.value}\n{caught.value.hint}"


def test_caches_are_floats_unless_asked_for():
    plan = planned()
    assert plan.caches == CachePlan("float", "float")
    assert "caches" not in plan.to_json(), "plans of other bundles stay the same, byte for byte"
    assert planned("cache.dtype=float").to_json() == plan.to_json()


def test_fp8_begins_with_capability_8_9():
    engines = "engines=[{backend: tensorrt_rtx, compute_capability: '8.9'}]"
    assert planned("cache.dtype=fp8", "precision.drafter=float16", engines).caches == CachePlan("fp8", "float")


def test_target_and_drafter_are_asked_for_apart():
    assert planned("cache.dtype=int8").caches == CachePlan("int8", "float")
    assert planned("drafter_cache.dtype=int8").caches == CachePlan("float", "int8")
    assert planned("cache.dtype=int8", "cache.max_divergence=0.5").to_json()["caches"] == {
        "target": "int8", "drafter": "float", "max_divergence": 0.5
    }  # fmt: skip


def test_keys_and_values_are_asked_for_apart():
    assert planned("cache.key=int8", "cache.value=int4").caches == CachePlan(contract.INT4_VALUES, "float")
    assert planned("cache.key=int8", "cache.value=int8").caches == CachePlan("int8", "float")
    assert planned("drafter_cache={key: int8, value: int4}").caches == CachePlan("float", contract.INT4_VALUES)
    plan = planned("cache={key: int8, value: int4}")
    width, heads = 5 * 2 * 2 * 64, 5 * 2 * 2
    assert token_bytes(plan.target, plan.caches.target) == width * 3 // 4 + heads // 2 * (4 + 8)


def test_who_reads_the_target_caches_has_their_dtype():
    reads = ("drafter={kind: layer_skip, layers: [0, 1], tokens: 4}", "precision.drafter=null")
    assert planned(*reads, "cache.dtype=int8").caches == CachePlan("int8", "int8")
    assert planned(*reads, "cache.dtype=int8", "drafter_cache.dtype=int8").caches == CachePlan("int8", "int8")
    engines = "engines=[{backend: tensorrt, compute_capability: '8.6'}]"  # which has no codes of a drafter's own
    assert planned(*reads, "cache.dtype=int8", engines).caches == CachePlan("int8", "int8")
    said = refusal(*reads, "drafter_cache.dtype=int8")
    assert "drafter_cache.dtype: received 'int8', expected 'float', the target's: drafter.kind layer_skip reads" in said


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["cache.dtype=int4"], "cache.dtype: received 'int4', which is not available in this version, expected"),
        (["drafter_cache.dtype=fp8"], "'fp8', which the engine 'onnxruntime-cpu' (onnxruntime on cpu) cannot do"),
        (["cache.dtype=fp8"], "cache.dtype: received 'fp8', which the engine 'onnxruntime-cpu' (onnxruntime on cpu)"),
        (["cache.dtype=in8"], "received 'in8', which is unknown, expected float, int8 or fp8\ndid you mean 'int8'?"),
        (["cache.max_divergence=0.1"], "cache.max_divergence: received 0.1, expected it only with a quantized cache"),
        (["cache.value=int4"], "cache.value: received 'int4' without cache.key, expected cache.dtype, or"),
        (["cache.key=int8", "cache.dtype=int8"], "cache.key: received 'int8' beside cache.dtype, expected cache.d"),
        (["cache.key=int4", "cache.value=int4"], "cache.value: received 'int4' with cache.key 'int4', expected float"),
        (["cache.max_acceptance_loss=0.1"], "received 0.1, expected it only with a quantized cache"),
        (["cache.max_acceptance_loss=1"], "acceptance_loss: received 1, expected a share above 0 and below 1"),
        (["cache.max_divergence=0"], "cache.max_divergence: received 0, expected a number of nats above 0"),
        (
            ["drafter={kind: prompt_lookup}", "precision.drafter=null", "drafter_cache.dtype=int8"],
            "drafter_cache.dtype: received 'int8' with drafter.kind prompt_lookup, expected 'float'",
        ),
        (
            [
                "drafter_cache.dtype=int8", "precision.drafter=float16",
                "engines=[{backend: tensorrt_rtx, compute_capability: '8.9'}]",
            ],
            "drafter_cache.dtype: received 'int8', which the engine 'tensorrt_rtx-8.9' (tensorrt_rtx on cuda) cannot d",
        ),
        (
            [
                "cache={key: int8, value: int4}", "precision.drafter=float16",
                "engines=[{backend: tensorrt_rtx, compute_capability: '8.9'}]",
            ],
            "received 'int8 keys and int4 values', which the engine 'tensorrt_rtx-8.9' (tensorrt_rtx on cuda) c",
        ),
        (
            [
                "cache.dtype=fp8", "precision.drafter=float16",
                "engines=[{backend: tensorrt_rtx, compute_capability: '8.6'}]",
            ],
            "cache.dtype: received 'fp8' for compute capability 8.6, which has no fp8, expected 'int8', or compute cap",
        ),
        (
            ["drafter_cache.dtype=int8", "engines=[{backend: onnxruntime}, {backend: onnxruntime, provider: cuda}]"],
            "drafter_cache.dtype: received 'int8', which the engine 'onnxruntime-cuda' (onnxruntime on cuda) cannot do",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(overrides, said):
    assert said in refusal(*overrides)


def test_a_loss_that_nothing_measures_is_noted():
    without = ("prove.held_out=null", "prove.prompts=null")
    notes = planned("cache.dtype=int8", *without).notes
    (note,) = (note for note in notes if "no texts on which it could compare int8 caches with float caches" in note)
    assert "cache.max_divergence is not checked" in note
    assert not any("caches" in note for note in (*planned("cache.dtype=int8").notes, *planned(*without).notes))


def test_bytes_of_a_token():
    """Count for the demo: a target with 5 layers of 2 heads of 64, a drafter with 2 layers of 1 head of 64."""
    plan = planned("cache.dtype=int8")
    assert token_bytes(plan.target, "float") == 2 * 5 * 2 * 64 * 4
    assert token_bytes(plan.target, "int8") == 2 * 5 * 2 * (64 + 4)
    saved = cache_bytes(planned()) - cache_bytes(plan)
    assert saved / cache_bytes(planned()) > 0.5


CACHE = Tensor("target.key.0", "float32", (1, 2, 48, 16), "target.key.0", "state")
STATE = replace(CACHE, name="target.state.0", buffer="target.state.0")
GRAPH = Graph("verify", (CACHE, STATE), (replace(CACHE, name="target.key.0.out"), STATE))


def test_a_cache_becomes_codes_and_scales():
    graph = caches.with_quantized_caches(GRAPH, ["target.key.0"])
    scales = Tensor("target.key_scale.0", "float32", (1, 2, 48, 1), "target.key_scale.0", "state")
    assert graph.inputs == (replace(CACHE, dtype="int8"), scales, STATE)
    assert [tensor.name for tensor in graph.outputs] == ["target.key.0.out", "target.key_scale.0.out", "target.state.0"]
    assert graph.aliases["target.key_scale.0.out"] == "target.key_scale.0"
    assert [caches.cache_dtype([graph], part) for part in contract.COMPONENTS] == ["int8", "float"]
    assert [caches.cache_token_bytes([each], "target") for each in (GRAPH, graph)] == [2 * 16 * 4, 2 * (16 + 4)]
    assert contract.with_cache_dtypes(graph, {"target": "float16"}).inputs[1] == scales, "scales stay float32"


@pytest.mark.parametrize(
    ("name", "scales"),
    [("target.key.0", "target.key_scale.0"), ("drafter.1.value.3.out", "drafter.1.value_scale.3.out")],
)
def test_names_of_scales(name, scales):
    assert caches.scale_name(name) == scales
    assert contract.is_scale(scales)
    assert not contract.is_scale(name)


def test_models_without_keys_and_values_have_nothing_to_quantize(make_recipe, make_checkpoint, tmp_path):
    make_checkpoint(tmp_path / "states", model_type="mamba2", architectures=["Mamba2ForCausalLM"])
    lookup, own = {"kind": "prompt_lookup"}, {"kind": "model", "model": "states"}
    recipe = make_recipe(target={"model": "states"}, drafter=lookup)
    assert make_plan(load_recipe(recipe)).caches == CachePlan()
    with pytest.raises(
        RecipeError, match=r"cache\.dtype: received 'int8' for 'states', which has no keys and val"
    ) as got:
        make_plan(load_recipe(recipe, ["cache.dtype=int8"]))
    assert got.value.hint == "remove cache.dtype: states stay in float32"
    beside = make_recipe(target={"model": "target"}, drafter=own)
    assert make_plan(load_recipe(beside, ["cache.dtype=int8"])).caches == CachePlan("int8", "float")
    with pytest.raises(RecipeError, match=r"drafter_cache\.dtype: received 'int8' for 'states'"):
        make_plan(load_recipe(beside, ["drafter_cache.dtype=int8"]))
