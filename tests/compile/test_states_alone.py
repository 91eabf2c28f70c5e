"""Targets without attention: no keys, no values, no positions; convolutions and recurrences alone."""

from pathlib import Path

import pytest

from speccompile.compiler.build import build
from speccompile.recipe import load_recipe, make_plan
from tests import zoo
from tests.compile.tiny_bundles import Built, noisy, save
from tests.native.side_by_side import SideBySide
from tests.suite.selection import sweep_but

pytestmark = pytest.mark.builds(2)

LOOKUP, SUFFIX, MODEL = "kind: prompt_lookup", "kind: suffix", "kind: model, model: drafter, sample: true"
DRAWN = (SUFFIX, MODEL)
PAIRS = [
    ("falcon_mamba", LOOKUP), ("falcon_mamba", MODEL), ("mamba", MODEL), ("mamba", SUFFIX), ("mamba2", MODEL),
    ("mamba2", LOOKUP),
]  # fmt: skip
CHUNK = 5
"""Tokens of a part of the prefill: fewer than most prompts have, and no multiple of the rows or chunks of a state."""


def make(folder: Path, name: str, drafter: str) -> Built:
    """Build a bundle, of which a drafter that is a model is often right."""
    decoding = "sampling" if drafter in DRAWN else "greedy"
    save(zoo.model(name), folder / "target", tokenizer=False)
    if "model" in drafter:
        save(noisy(name, 0.03), folder / "drafter", tokenizer=False)
    (folder / "recipe.yaml").write_text(
        f"name: tiny\ntarget: {{model: target}}\ndrafter: {{{drafter}, tokens: 3}}\ndecoding: {decoding}\n"
        f"cache: {{max_length: 96, prefill_chunk: {CHUNK}}}\nprove: {{max_new_tokens: 4}}\n"
    )
    build(make_plan(load_recipe(folder)), folder / "bundle")
    return Built(folder)


@pytest.mark.parametrize(
    "pair", sweep_but(PAIRS[:1], PAIRS, "a bundle each, with the proof of its distributions"), ids=" ".join
)
def test_both_runtimes_say_what_transformers_says(
    tmp_path: Path, native_library: Path, onnxruntime_library: Path, pair: tuple[str, str]
) -> None:
    built = make(tmp_path, *pair)
    buffers = {tensor.buffer for graph in built.bundle.manifest.graphs for tensor in graph.inputs}
    assert {"target.conv.0", "target.state.1"} <= buffers
    assert not [buffer for buffer in buffers if ".key." in buffer or ".value." in buffer]
    both = SideBySide(built.path, native_library, onnxruntime_library)
    for number, prompt in enumerate(built.prompts()):
        expected = built.reference(prompt)
        for way in ({}, {"adaptive": False}, {"autoregressive": True}):
            (generation,) = both.check([prompt], max_new_tokens=len(expected), **way)
            assert generation.token_ids == expected
        if built.bundle.manifest.decoding == "sampling":
            both.check([prompt], max_new_tokens=20, temperature=0.9, seed=number)
    # What a bundle read before, it goes on from: the state behind the last token is all that a longer prompt needs.
    longer = [*prompt, *expected, 40, 41]
    assert built.bundle.generate(prompt, max_new_tokens=len(expected)).token_ids == expected
    assert built.bundle.generate(longer, max_new_tokens=10).token_ids == built.reference(longer, 10)
