"""int8 caches: a bundle gives the tokens of transformers with caches whose rows are rounded, speculation changes no
bit, and what reads or keeps caches carries their scales. The reference rounds in transformers' own cache, the build's
proof in its attention."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.cache_utils import DynamicCache, DynamicLayer

from speccompile.bundle.caches import cache_dtype
from speccompile.compiler.build import build
from speccompile.contract import INT4_VALUES, Graph
from speccompile.errors import ProofError, UnsupportedModelError, UsageError
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from tests import zoo
from tests.compile.tiny_bundles import noisy, save, window_logits
from tests.native.side_by_side import SideBySide
from tests.suite.selection import sweep_but

pytestmark = pytest.mark.builds(7)

RECIPE = """
name: tiny
target: {model: target}
drafter: {kind: model, model: drafter, tokens: 3}
cache: {max_length: 96, prefill_chunk: 16, batch_size: 2, dtype: int8}
drafter_cache: {dtype: int8}
prove: {held_out: texts.jsonl, max_new_tokens: 8}
"""
NEW = 24


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Path:
    """Return a folder with a target, a drafter like it, texts, and a proven bundle with int8 caches."""
    folder = tmp_path_factory.mktemp("pair")
    save(zoo.model("mistral"), folder / "target", tokenizer=False)
    save(noisy("mistral", 0.03), folder / "drafter", tokenizer=False)
    (folder / "texts.jsonl").write_text("".join(json.dumps({"token_ids": text}) + "\n" for text in prompts()))
    build(planned(folder), folder / "bundle")
    return folder


def planned(folder: Path, *overrides: str):
    (folder / "recipe.yaml").write_text(RECIPE)
    return make_plan(load_recipe(folder / "recipe.yaml", overrides))


def prompts() -> list[list[int]]:
    random = np.random.default_rng(3)
    return [random.integers(3, zoo.VOCABULARY, length).tolist() for length in (2, 7, 16, 33, 50)]


class RoundedLayer(DynamicLayer):
    """transformers' cache of a layer, which gives back rows in steps of a 127th of their largest magnitude."""

    def update(self, key_states, value_states, *args, **kwargs):
        return tuple(map(_in_steps, super().update(key_states, value_states, *args, **kwargs)))


class FourBitsLayer(RoundedLayer):
    """Return the same with values in fifteen steps from a row's least to its largest number."""

    def update(self, key_states, value_states, *args, **kwargs):
        keys, values = DynamicLayer.update(self, key_states, value_states, *args, **kwargs)
        least = values.amin(-1, keepdim=True)
        step = (values.amax(-1, keepdim=True) - least) / 15
        return _in_steps(keys), torch.round((values - least) / step) * step + least


def _in_steps(rows: torch.Tensor) -> torch.Tensor:
    step = rows.abs().amax(-1, keepdim=True) / 127
    return torch.round(rows / step) * step


def reference(folder: Path, prompt: list[int], layer: type[RoundedLayer] = RoundedLayer) -> list[int]:
    """Return what transformers says greedily, over the whole text again for every token."""
    model = AutoModelForCausalLM.from_pretrained(folder / "target", attn_implementation="eager").eval()
    said = list(prompt)
    for _ in range(NEW):
        caches = DynamicCache()
        caches.layers = [layer() for _ in range(model.config.num_hidden_layers)]
        with torch.no_grad():
            said.append(int(model(input_ids=torch.tensor([said]), cache=caches, use_cache=True).logits[0, -1].argmax()))
    return said[len(prompt) :]


def test_tokens_are_those_of_transformers_with_rounded_rows(pair):
    bundle = Bundle.open(pair / "bundle", threads=1)
    assert [cache_dtype(bundle.manifest.graphs, part) for part in ("target", "drafter")] == ["int8", "int8"]
    for prompt in prompts():
        expected = reference(pair, prompt)
        ways = ({"adaptive": False}, {}, {"autoregressive": True})
        assert [bundle.generate(prompt, max_new_tokens=NEW, **way).token_ids for way in ways] == [expected] * 3


@pytest.fixture(scope="module")
def four_bits(pair) -> Path:
    """Return a proven bundle with keys in int8 and values in int4, of both models."""
    caches = ("cache.dtype=null", "cache.key=int8", "cache.value=int4", "drafter_cache={key: int8, value: int4}")
    return build(planned(pair, *caches, "cache.max_divergence=0.5"), pair / "four-bits")


@pytest.mark.sweep("a bundle with its proof; kernels and bodies of these codes are in the first tier")
def test_values_in_four_bits(four_bits, pair, tmp_path, native_library, onnxruntime_library, monkeypatch):
    bundle, prompt, path = Bundle.open(four_bits, threads=1), prompts()[2], tmp_path / "session"
    assert [cache_dtype(bundle.manifest.graphs, part) for part in ("target", "drafter")] == [INT4_VALUES] * 2
    ways = ({"adaptive": False}, {}, {"autoregressive": True})
    for each in prompts():
        said = [bundle.generate(each, max_new_tokens=NEW, **way).token_ids for way in ways]
        assert said == [reference(pair, each, FourBitsLayer)] * 3
    found = [window_logits(bundle, prompts(), width) for width in (1, 3, 5, 16)]
    assert all((each.view(np.uint32) == found[0].view(np.uint32)).all() for each in found[1:])
    SideBySide(four_bits, native_library, onnxruntime_library).check(prompts()[:2], max_new_tokens=NEW, logprobs=True)
    first = bundle.generate(prompt, session=path, max_new_tokens=8)
    longer = prompt + first.token_ids + [7, 8]
    found = Bundle.open(four_bits).generate(longer, session=path, max_new_tokens=NEW)
    assert found.cached_tokens > 0
    assert found.token_ids == Bundle.open(four_bits).generate(longer, max_new_tokens=NEW).token_ids
    with pytest.raises(UsageError, match=r"cache\.dtype 'int8 keys and int4 values', expected 'int8'"):
        Bundle.open(pair / "bundle").load_session(path)
    monkeypatch.setenv("SPECCOMPILE_KERNELS", "none")  # standard operators, which meet caches without rows
    assert Bundle.open(four_bits).generate(prompt, max_new_tokens=NEW).token_ids == reference(
        pair, prompt, FourBitsLayer
    )


def test_windows_chunks_and_threads_give_the_same_bits(pair):
    texts, found = prompts(), []
    for threads in (1, 2):
        bundle = Bundle.open(pair / "bundle", threads=threads)
        for width in (1, 2, 3, 4, 5, 7, 16):
            found.append(window_logits(bundle, texts, width))
    for each in found[1:]:
        assert (each.view(np.uint32) == found[0].view(np.uint32)).all()


def test_the_runtime_in_c_says_the_same(pair, native_library, onnxruntime_library):
    both = SideBySide(pair / "bundle", native_library, onnxruntime_library)
    for start in (0, 2):
        for way in ({"adaptive": False}, {}, {"autoregressive": True}):
            both.check(prompts()[start : start + 2], max_new_tokens=NEW, logprobs=True, **way)


def test_prompts_that_begin_alike_reuse_rows_and_scales(pair):
    bundle, prompt = Bundle.open(pair / "bundle", threads=1), prompts()[3]
    alone = [Bundle.open(pair / "bundle", threads=1).generate([*prompt, t], max_new_tokens=NEW) for t in (5, 9)]
    bundle.generate_batch([prompt, prompt], max_new_tokens=NEW)
    again = [bundle.generate([*prompt, t], max_new_tokens=NEW) for t in (5, 9)]
    assert [each.token_ids for each in again] == [each.token_ids for each in alone]


def test_a_session_holds_codes_and_scales(pair, tmp_path):
    prompt, path = prompts()[2], tmp_path / "session"
    first = Bundle.open(pair / "bundle").generate(prompt, session=path, max_new_tokens=8)
    longer = prompt + first.token_ids + [7, 8]
    expected = Bundle.open(pair / "bundle").generate(longer, max_new_tokens=NEW)
    found = Bundle.open(pair / "bundle").generate(longer, session=path, max_new_tokens=NEW)
    assert found.token_ids == expected.token_ids
    assert found.cached_tokens > 0
    plain = build(planned(pair, "cache.dtype=float"), pair / "float", prove=False)
    with pytest.raises(UsageError, match=r"received a session with cache\.dtype 'int8', expected 'float'"):
        Bundle.open(plain).load_session(path)


def test_what_is_lost_is_measured_and_bounded(pair, tmp_path):
    quality = json.loads((pair / "bundle" / "proof.json").read_text())["quality"]
    lost = quality["cache"]
    assert lost["dtype"] == "int8"
    assert 0 < lost["kl_divergence"] < 0.01
    assert abs(lost["perplexity"] / quality["engines"][0]["perplexity"] - 1) < 1e-3, "the engine has the same caches"
    (row,) = quality["cache_acceptance"]
    rounds, depths = [row[word]["rounds"] for word in ("quantized", "float")], 3
    assert all(count > len(prompts()) for count in rounds)
    assert [len(row[word]["tried"]) for word in ("quantized", "float")] == [depths] * 2
    with pytest.raises(ProofError, match=r"cache\.dtype: int8 caches change .* at most 1e-07: cache.max_div") as raised:
        build(planned(pair, "cache.max_divergence=0.0000001"), tmp_path / "bundle")
    asked = str(raised.value.hint).rpartition("=")[2]
    assert lost["kl_divergence"] <= float(asked) < 1.2 * lost["kl_divergence"]
    assert planned(pair, f"cache.max_divergence={asked}").caches.max_divergence == float(asked)
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize("graphs", sweep_but(["fused"], ["fused", "separate"], "both cuts into graphs"))
def test_a_drafter_reads_the_codes_of_the_target(pair, tmp_path, graphs):
    overrides = ["drafter={kind: layer_skip, layers: [0], tokens: 3}", "drafter_cache=null", f"graphs={graphs}"]
    bundle = Bundle.open(build(planned(pair, *overrides), tmp_path / "bundle"), threads=1)
    drafting = next(graph for graph in bundle.manifest.graphs if graph.name in ("draft", "step"))
    assert "target.key_scale.0" in {tensor.name for tensor in drafting.inputs}
    prompt = prompts()[1]
    assert bundle.generate(prompt, max_new_tokens=NEW, adaptive=False).token_ids == reference(pair, prompt)


@pytest.mark.sweep("engines take longest; the lowering, its bodies and the copies of rows are in the first tier")
@pytest.mark.parametrize(("dtype", "capability"), [("int8", "8.6"), ("fp8", "8.9")])
def test_engines_for_gpus_are_proven_and_built(pair, tmp_path, dtype, capability):
    overrides = ["drafter={kind: prompt_lookup, tokens: 3}", "drafter_cache=null", "precision={target: float16}"]
    overrides += [f"cache.dtype={dtype}", "cache.max_divergence=0.5"]
    overrides.append(f"engines=[{{backend: tensorrt_rtx, compute_capability: '{capability}'}}]")
    folder = build(planned(pair, *overrides), tmp_path / "bundle")
    manifest = json.loads((folder / "manifest.json").read_text())
    (engine,) = manifest["engines"]
    assert cache_dtype(map(Graph.from_json, engine["graphs"]), "target") == dtype
    assert json.loads((folder / "proof.json").read_text())["quality"]["cache"]["dtype"] == dtype


@pytest.mark.filterwarnings("ignore:The tensor attribute")  # of a trace that ends early
@pytest.mark.parametrize(
    ("name", "reason"), [("deepseek_v3", "has latent attention"), ("diffllama", "pairs values with other heads' keys")]
)
def test_models_whose_rows_are_not_those_of_heads_are_refused(tmp_path, name, reason):
    save(zoo.model(name), tmp_path / "target", tokenizer=False)
    (tmp_path / "texts.jsonl").write_text(json.dumps({"token_ids": [5, 9, 7]}))
    plan = planned(tmp_path, "drafter={kind: none}", "drafter_cache=null")
    with pytest.raises(
        UnsupportedModelError, match=rf"cache\.dtype: received int8, expected float: this model {reason}"
    ):
        build(plan, tmp_path / "bundle")
