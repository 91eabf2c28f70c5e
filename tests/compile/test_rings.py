"""Caches that are rings: a bundle gives the bits of one with full caches, past the window several times over, for all
windows, chunks, threads and rows of the batch; transformers' tokens; and what is reused stays within their reach."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from speccompile.compiler.build import build
from speccompile.compiler.prove.quality import engine_logits
from speccompile.errors import UsageError
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from tests import zoo
from tests.compile.tiny_bundles import noisy, save, window_logits
from tests.native.scheduler_operations import NativeSchedule, PythonSchedule
from tests.native.side_by_side import SideBySide

pytestmark = pytest.mark.builds(8)

RECIPE = """
name: tiny
target: {model: target}
drafter: {kind: model, model: drafter, tokens: 3}
cache: {max_length: 240, prefill_chunk: 16, batch_size: 2}
prove: {max_new_tokens: 8}
"""
WINDOW, ROWS = 16, 16 + 32
"""Window of the tiny models, and rows of their rings: a chunk of 16 tokens, and 16 nodes."""
NEW = 60
LENGTHS = (2, 15, 47, 48, 49, 70, 150)
FULL = "cache.sliding=full"


def planned(folder: Path, *overrides: str):
    (folder / "recipe.yaml").write_text(RECIPE)
    return make_plan(load_recipe(folder / "recipe.yaml", overrides))


def models(folder: Path, name: str) -> Path:
    save(zoo.model(name), folder / "target", tokenizer=False)
    save(noisy(name, 0.03), folder / "drafter", tokenizer=False)
    return folder


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> Path:
    """Return a folder with models, layers of one of which see a window, and bundles with rings and without."""
    folder = models(tmp_path_factory.mktemp("pair"), "cohere2")
    build(planned(folder), folder / "ring")
    build(planned(folder, FULL), folder / "full", prove=False)
    return folder


def prompts() -> list[list[int]]:
    random = np.random.default_rng(3)
    return [random.integers(3, zoo.VOCABULARY, length).tolist() for length in LENGTHS]


def reference(folder: Path, prompt: list[int], new: int = NEW) -> list[int]:
    model = AutoModelForCausalLM.from_pretrained(folder / "target", attn_implementation="eager").eval()
    ids = torch.tensor([prompt])
    found = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=new, eos_token_id=None
    )
    return found[0, len(prompt) :].tolist()


def rows_of(bundle: Bundle) -> dict[str, int]:
    verify = next(graph for graph in bundle.manifest.graphs if graph.name == "verify")
    return {tensor.name: tensor.shape[2] for tensor in verify.inputs if tensor.name.startswith("target.")}


def test_layers_that_see_a_window_have_rings(pair):
    bundle, full = (Bundle.open(pair / name) for name in ("ring", "full"))
    sliding = [f"target.{kind}.0" for kind in ("key", "value")]
    assert bundle.manifest.rings == dict.fromkeys(sliding, WINDOW)
    assert {name: rows for name, rows in rows_of(bundle).items() if name in sliding} == dict.fromkeys(sliding, ROWS)
    assert {rows for name, rows in rows_of(bundle).items() if name not in sliding} == {240 + 32}
    assert set(rows_of(full).values()) == {240 + 32}
    assert "rings" not in full.manifest.to_json()
    assert make_plan(load_recipe(pair / "recipe.yaml", [])).to_json()["caches"]["sliding"] == "ring"


def test_tokens_are_those_of_transformers(pair):
    bundle = Bundle.open(pair / "ring", threads=1)
    for prompt in prompts():
        expected = reference(pair, prompt)
        ways = ({"adaptive": False}, {}, {"autoregressive": True})
        assert [bundle.generate(prompt, max_new_tokens=NEW, **way).token_ids for way in ways] == [expected] * 3


def test_rings_give_the_bits_of_full_caches(pair):
    texts, found = prompts(), []
    for name, threads in (("full", 1), ("ring", 1), ("ring", 2)):
        bundle = Bundle.open(pair / name, threads=threads)
        for width in (1, 3, 4, 7, 16) if name == "ring" else (16,):
            found.append(window_logits(bundle, texts, width))
    for each in found[1:]:
        assert (each.view(np.uint32) == found[0].view(np.uint32)).all()


def test_the_runtime_in_c_says_the_same(pair, native_library, onnxruntime_library):
    both = SideBySide(pair / "ring", native_library, onnxruntime_library)
    for start in (0, 2, 4):
        for way in ({"adaptive": False}, {}, {"autoregressive": True}):
            both.check(prompts()[start : start + 2], max_new_tokens=NEW, logprobs=True, **way)


@pytest.mark.parametrize("asked", [{}, {"autoregressive": True}])
def test_a_session_goes_on_as_far_as_the_ring_reaches(pair, tmp_path, asked):
    prompt, path = prompts()[5], tmp_path / "session"
    first = Bundle.open(pair / "ring").generate(prompt, session=path, max_new_tokens=NEW)
    text = prompt + first.token_ids
    for kept, is_reused in ((len(text), True), (len(text) - 12, True), (len(text) - 60, False), (20, False)):
        longer = [*text[:kept], 7, 8]
        expected = Bundle.open(pair / "full").generate(longer, max_new_tokens=NEW, **asked)
        bundle = Bundle.open(pair / "ring")
        bundle.load_session(path)
        found = bundle.generate(longer, max_new_tokens=NEW, **asked)
        assert found.token_ids == expected.token_ids
        assert (found.cached_tokens > 0) == is_reused
        assert not is_reused or found.cached_tokens >= kept - 1


def test_sessions_of_other_caches_are_refused(pair, tmp_path):
    for mine, other in (("ring", "full"), ("full", "ring")):
        path = tmp_path / mine
        Bundle.open(pair / mine).generate(prompts()[1], session=path, max_new_tokens=4)
        words = {"ring": f"ring of {ROWS} rows", "full": "full"}
        said = rf"received a session with cache\.sliding '{words[mine]}', expected '{words[other]}'"
        with pytest.raises(UsageError, match=said):
            Bundle.open(pair / other).load_session(path)


def test_both_runtimes_take_each_others_sessions(pair, tmp_path, native_library, onnxruntime_library):
    both, prompt = SideBySide(pair / "ring", native_library, onnxruntime_library), prompts()[6]
    first = both.python.generate(prompt, session=tmp_path / "python", max_new_tokens=NEW, adaptive=False)
    both.session.generate([prompt], max_new_tokens=NEW, adaptive=False)
    both.session.save(tmp_path / "native")
    assert (tmp_path / "native").read_bytes() == (tmp_path / "python").read_bytes()
    text = prompt + first.token_ids
    for kept, is_reused in ((len(text), True), (len(text) - 10, True), (len(text) - 60, False)):
        longer = [*text[:kept], 9, 8]
        for path in ("python", "native"):
            both.python.load_session(tmp_path / path)
            both.session.load(tmp_path / path)
            expected = both.python.generate(longer, max_new_tokens=20)
            (found,) = both.session.generate([longer], max_new_tokens=20)
            assert (expected.cached_tokens > 0) == is_reused
            assert (found["cached_tokens"], found["token_ids"]) == (expected.cached_tokens, expected.token_ids)
            assert expected.token_ids == Bundle.open(pair / "full").generate(longer, max_new_tokens=20).token_ids


@pytest.mark.parametrize("sequences", [1, 2])
def test_a_service_reuses_what_the_rings_hold(pair, sequences):
    """Prompts that leave an earlier text near its end, far before it, and at its beginning, in turn."""
    dice, served = np.random.default_rng(sequences), Bundle.open(pair / "ring")
    fresh, said, cached = Bundle.open(pair / "full"), list[list[int]](), 0
    with served.serve() as service:
        texts = [prompts()[5]]
        for _ in range(12):
            base = texts[dice.integers(len(texts))]
            kept = len(base) - int(dice.choice([0, 3, 12, 40, 70]))
            prompt = [*base[: max(1, kept)], *dice.integers(3, 200, 2).tolist()][-170:]
            for request in [service.submit(prompt, max_new_tokens=30) for _ in range(sequences)]:
                (found,) = request.generations()
                said.append(found.token_ids)
                cached += found.cached_tokens > 0
                assert found.token_ids == fresh.generate(prompt, max_new_tokens=30).token_ids
            texts.append(prompt + found.token_ids)
    assert 0 < cached < len(said)


def test_both_schedulers_reuse_what_the_rings_hold(pair, native_build, onnxruntime_library):
    dice, terms = np.random.default_rng(5), {"client": "", "salt": "", "reuse": True}
    fresh, texts, cached = Bundle.open(pair / "full"), [prompts()[5]], list[bool]()
    ours = PythonSchedule(Bundle.open(pair / "ring", threads=1), [4], {})
    with NativeSchedule(native_build / "scheduler_lines", pair / "ring", onnxruntime_library, [4], {}) as theirs:
        for _ in range(10):
            base = texts[dice.integers(len(texts))]
            prompt = [*base[: max(1, len(base) - int(dice.choice([0, 3, 12, 40, 70])))], 3, int(dice.integers(3, 200))]
            asked, tokens, admitted, is_idle = {"submit": {"max_new_tokens": 30}, "terms": terms}, [], [], False
            asked["prompt"] = prompt = prompt[-170:]
            while not is_idle:
                expected, found = ours.run(asked), theirs.run(asked)
                assert found == expected
                asked, is_idle = {"step": None}, found["idle"]
                tokens += [token for delta in found["deltas"] for token in delta[3]]
                admitted += [event for event in found["events"] if event[0] == "admitted"]
            assert tokens == fresh.generate(prompt, max_new_tokens=30).token_ids
            cached.append(admitted[0][2] > 0)
            texts.append(prompt + tokens)
    assert {*cached} == {False, True}


LAYERS = "drafter={kind: layer_skip, layers: [0], tokens: 3}"
CASES = {
    "layer_skip, fused, int8": ("mistral", {}, [LAYERS, "graphs=fused", "cache.dtype=int8"]),
    "layer_skip, separate": ("gemma2", {}, [LAYERS, "graphs=separate"]),
    "tree": ("gemma3_text", {}, ["drafter.tokens=null", "drafter.tree=[2, 2]"]),
    "sinks": ("gpt_oss", {}, []),
    "more rows": ("exaone4", {}, ["cache.ring_rows=77", "cache.dtype=int8"]),
    "chunked attention": ("llama4_chunked", {}, []),
    "shared rows": ("gemma3n_text", {}, [LAYERS]),
    "lookups": ("mimo_v2_flash", {}, ["drafter={kind: prompt_lookup, tokens: 5}"]),
    **{f"window {size}": ("mistral", {"sliding_window": size}, []) for size in (1, 2, 3, 5, 33, 100)},
}  # fmt: skip


@pytest.mark.sweep("a build each: other models, drafters and windows")
@pytest.mark.parametrize("case", CASES)
def test_rings_of_other_models(tmp_path, case):
    """Proven by the build against transformers; here against full caches, over texts that go round the ring."""
    name, settings, overrides = CASES[case]
    save(zoo.model(name, **settings), tmp_path / "target", tokenizer=False)
    save(noisy(name, 0.03), tmp_path / "drafter", tokenizer=False)
    ring = Bundle.open(build(planned(tmp_path, *overrides), tmp_path / "ring"), threads=1)
    full = Bundle.open(
        build(planned(tmp_path, *overrides, FULL, "cache.ring_rows=null"), tmp_path / "full", prove=False)
    )
    assert ring.manifest.rings
    found = []
    for bundle in (full, ring):
        verify = next(graph for graph in bundle.manifest.graphs if graph.name == "verify")
        blocks = dict(engine_logits(bundle.engine, verify, prompts(), 16 if bundle is full else 5, 2))
        found.append(np.concatenate([blocks[start] for start in sorted(blocks)]))
    assert (found[0].view(np.uint32) == found[1].view(np.uint32)).all()
    for prompt in prompts()[1::2]:
        expected = full.generate(prompt, max_new_tokens=NEW, adaptive=False)
        for way in ({"adaptive": False}, {}, {"autoregressive": True}):
            assert ring.generate(prompt, max_new_tokens=NEW, **way).token_ids == expected.token_ids
        again = ring.generate(prompt, max_new_tokens=NEW, adaptive=False)
        assert again.path_lengths == expected.path_lengths, "the drafter reads the same rows"
