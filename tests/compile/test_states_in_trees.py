"""Trees over targets with recurrent states: each path is computed as the chain of its tokens."""

from pathlib import Path

import pytest

from speccompile.compiler.build import build
from speccompile.recipe import load_recipe, make_plan
from tests import zoo
from tests.compile.tiny_bundles import Built, save
from tests.native.side_by_side import SideBySide

LOOKUP, RECYCLING, MODEL = "kind: prompt_lookup", "kind: token_recycling", "kind: model, model: drafter, sample: true"
GROWN = "kind: model, model: drafter"
DYNAMIC = {GROWN}
PAIRS = [("mamba2", LOOKUP), ("qwen3_5_text", RECYCLING), ("falcon_h1", LOOKUP), ("mamba2", MODEL), ("mamba2", GROWN),
         ("qwen3_5_text", GROWN)]  # fmt: skip


def make(folder: Path, name: str, drafter: str) -> Built:
    """Build a bundle. A draft model has attention: states of its own could not follow several paths."""
    save(zoo.model(name), folder / "target", tokenizer=False)
    if "kind: model" in drafter:
        save(zoo.model("llama"), folder / "drafter", tokenizer=False)
    decoding = "sampling" if drafter == MODEL else "greedy"
    tree = "{depth: 3, top_k: 2, nodes: 6}" if drafter in DYNAMIC else "[2, 2, 1]"
    (folder / "recipe.yaml").write_text(
        f"name: tiny\ntarget: {{model: target}}\ndrafter: {{{drafter}, tree: {tree}}}\ndecoding: {decoding}\n"
        "cache: {max_length: 96, prefill_chunk: 5}\nprove: {max_new_tokens: 4}\n"
    )
    build(make_plan(load_recipe(folder)), folder / "bundle")
    return Built(folder)


@pytest.mark.sweep("a bundle each, with the proof of its distributions; the formula is in the light tests")
@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_both_runtimes_say_what_transformers_says(
    tmp_path: Path, native_library: Path, onnxruntime_library: Path, pair: tuple[str, str]
) -> None:
    built = make(tmp_path, *pair)
    both, longest = SideBySide(built.path, native_library, onnxruntime_library), 0
    for number, prompt in enumerate(built.prompts()):
        expected = built.reference(prompt)
        for way in ({}, {"adaptive": False}, {"autoregressive": True}):
            (generation,) = both.check([prompt], max_new_tokens=len(expected), **way)
            assert generation.token_ids == expected
            longest = max(longest, *generation.path_lengths)
        if built.bundle.manifest.decoding == "sampling":
            both.check([prompt], max_new_tokens=20, temperature=0.9, seed=number)
    assert longest > 1
