"""Caches that are rings: a bundle gives the bits of one with full caches, past the window several times over, whatever
the windows, chunks, threads and rows of the batch; transformers' tokens; and what is reused stays within their reach."""

import json
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
from tests.compile.tiny_bundles import noisy, save
from tests.native.side_by_side import SideBySide
from tests.suite.selection import sweep_but

pytestmark = pytest.mark.builds(8)

RECIPE = """
name: tiny
target: {model: target}
drafter: {kind: model, model: drafter, tokens: 3}
cache: {max_length: 240, prefill_chunk: 16, batch_size: 2}
prove: {max_new_tokens: 8}
"""
WINDOW, ROWS = 16, 16 + 32
"""Of the tiny models, and of their rings: a chunk of 16 tokens, and 16 nodes."""
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
        verify = next(graph for graph in bundle.manifest.graphs if graph.name == "verify")
        for width in (1, 3, 4, 7, 16) if name == "ring" else (16,):
            blocks = dict(engine_logits(bundle.engine, verify, texts, width, 2))
            found.append(np.concatenate([blocks[start] for start in sorted(blocks)]))
    for each in found[1:]:
        assert (each.view(np.uint32) == found[0].view(np.uint32)).all()


def test_the_runtime_in_c_says_the_same(pair, native_library, onnxruntime_library):
    both = SideBySide(pair / "ring", native_library, onnxruntime_library)
    for start in (0, 2, 4):
        for way in ({"adaptive": False}, {}, {"autoregressive": True}):
            both.check(prompts()[start : start + 2], max_new_tokens=NEW, logprobs=True, **way)
