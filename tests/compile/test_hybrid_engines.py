"""Hybrid targets in few bits and for every engine: layers of Mamba 2 with experts, beside attention."""

import json

import onnx_ir as ir
import pytest

from speccompile.compiler.build import build
from speccompile.contract import is_recurrent_state
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from tests import zoo
from tests.compile.tiny_bundles import Built, save

pytestmark = pytest.mark.sweep("engines of a hybrid in every precision")

EXPERTS = 4
WORDS = ("int8", "int4")
RECIPE = """
name: hybrid
target: {model: target}
drafter: {kind: model, model: target, tokens: 2}
cache: {max_length: 96, prefill_chunk: 16}
prove: {max_new_tokens: 8}
engines:
- {backend: onnxruntime, precision: {target: int8, drafter: int8}}
- {backend: onnxruntime, precision: {target: int4, drafter: int4}}
- {backend: onnxruntime, provider: cuda, precision: {target: int4, drafter: float16}}
- {backend: tensorrt_rtx, compute_capability: "8.9", precision: {target: int4, drafter: float16}}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Built:
    """Return one bundle for all tests: its build proves every engine's graphs on the CPU."""
    folder = tmp_path_factory.mktemp("hybrid")
    save(zoo.model("granitemoehybrid", num_local_experts=EXPERTS), folder / "target")
    (folder / "recipe.yaml").write_text(RECIPE)
    build(make_plan(load_recipe(folder / "recipe.yaml")), folder / "bundle")
    return Built(folder)


@pytest.mark.sweep("a bundle of many tokens")
@pytest.mark.parametrize("word", WORDS)
def test_drafts_change_no_token(made, word):
    (name,) = (e.name for e in made.bundle.manifest.engines if e.provider == "cpu" and e.precision["target"] == word)
    bundle = Bundle.open(made.path, engine=name, threads=1)
    for prompt in made.prompts()[-3:]:
        alone = bundle.generate(prompt, max_new_tokens=24, autoregressive=True)
        drafted = bundle.generate(prompt, max_new_tokens=24, adaptive=False)
        assert drafted.token_ids == alone.token_ids
    assert drafted.rounds < alone.rounds


def test_every_engine_is_proven(made):
    proof = json.loads((made.path / "proof.json").read_bytes())
    assert len(proof["engines"]) == 4
    assert all(row["equal"] + len(row["near_ties"]) == row["prompts"] > 0 for row in proof["engines"])
    words = {row["precision"]["target"] for row in proof["engines"]}
    assert words == set(WORDS)


def test_states_are_float32_whatever_the_precision(made):
    """Write states beside what they are read from in engines that update only caches in place."""
    for entry in made.bundle.manifest.engines:
        (graph,) = (each for each in entry.graphs if each.name == "verify")
        carried = {t.name: t for t in graph.inputs if is_recurrent_state(t.buffer)}
        assert {name: t.dtype for name, t in carried.items()} == {
            "target.conv.0": "float32", "target.state.0": "float32"
        }  # fmt: skip
        caches = {t.dtype for t in graph.inputs if t.role == "state"} - {"float32"}
        assert caches == (set() if entry.provider == "cpu" else {"float16"})
        beside = set() if entry.provider == "cpu" else set(carried)
        assert set(graph.copy_after_run.values()) == beside
        if entry.build:
            report = entry.build.reports["verify"]
            assert report["aliases"] == graph.aliases
            assert report["parsed_layers"]["KV_CACHE_UPDATE"] == len(graph.aliases)


@pytest.mark.parametrize("word", WORDS)
def test_experts_and_projections_are_stored_once_and_small(made, word):
    """Quantize all but routers, convolutions, norms and the parameters of the recurrence."""
    (entry,) = (e for e in made.bundle.manifest.engines if e.provider == "cpu" and e.precision["target"] == word)
    stored = ir.load(made.path / entry.files["verify"]).graph.initializers
    numbers = {"int8": ".int8", "int4": ".4bits"}[word]
    small = [name for name in stored if name.endswith(numbers)]
    for layer in range(2):
        for part in ("gate_up_proj", "down_proj"):
            names = [f"layers.{layer}.block_sparse_moe.experts.{part}.{expert}{numbers}" for expert in range(EXPERTS)]
            assert [sum(found.endswith(name) for found in small) for name in names] == [1] * EXPERTS
    assert sum(".mamba.in_proj." in name or ".mamba.out_proj." in name for name in small) == 2
    floats = {name for name, v in stored.items() if v.dtype == ir.DataType.FLOAT and len(v.shape) > 1}
    kept = {name.rpartition("layers.")[2] for name in floats if "layers." in name and not name.endswith("scales")}
    assert kept == {"0.mamba.conv1d.weight", *(f"{n}.block_sparse_moe.router.weight.T.float32" for n in range(2))}
