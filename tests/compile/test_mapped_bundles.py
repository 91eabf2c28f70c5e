"""Bundles whose weights are packed once and mapped: the same numbers bit for bit, and nothing held twice."""

import tracemalloc
from pathlib import Path

import pytest

from speccompile.builder import build
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle, packed
from speccompile.runtime.generation import Row
from tests import zoo
from tests.compile.tiny_bundles import save

PROMPT = [17, 230, 45, 99, 101] * 6
RECIPE = """
name: tiny
target: {model: target}
drafter: {kind: prompt_lookup, tokens: 3}
graphs: fused
cache: {max_length: 96, prefill_chunk: 16}
engines:
- {backend: onnxruntime, name: float32}
- {backend: onnxruntime, name: int8, precision: {target: int8}}
- {backend: onnxruntime, name: int4, precision: {target: int4}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("mapped")
    save(zoo.model("llama"), made / "target", tokenizer=False)
    (made / "recipe.yaml").write_text(RECIPE)
    build(make_plan(load_recipe(made)), made / "bundle", prove=False)
    return made / "bundle"


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch) -> packed.PackedWeights:
    """A cache for the test, into which small weights go too."""
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(packed, "SMALLEST_GRAPH", 1)
    monkeypatch.setattr(packed, "SMALLEST_FILE", 1)
    return packed.PackedWeights()


def said(bundle: Bundle) -> list[tuple[list[int], list[float] | None]]:
    ways = [bundle.generate(PROMPT, max_new_tokens=30, autoregressive=each, logprobs=True) for each in (False, True)]
    return [(each.token_ids, each.logprobs) for each in ways]


@pytest.mark.parametrize("engine", ["float32", "int8", "int4"])
def test_mapped_weights_change_no_bit(folder, own, monkeypatch, engine):
    monkeypatch.setenv("SPECCOMPILE_CACHE_LIMIT_GB", "0")
    expected = said(Bundle.open(folder, engine=engine, threads=1))
    assert not own.folder.exists()
    monkeypatch.delenv("SPECCOMPILE_CACHE_LIMIT_GB")
    assert said(Bundle.open(folder, engine=engine, threads=1)) == expected
    step, verify = [{path.name: path.stat().st_ino for path in (own.folder / each.digest).iterdir()}
                    for each in sorted(own.entries(), key=lambda entry: str(entry.key["files"]))]  # fmt: skip
    assert len(step.items() & verify.items()) == len(step) - 2 > 0, "all files but entry.json and hashes.json"
    assert said(Bundle.open(folder, engine=engine, threads=1)) == expected


def test_a_bundle_that_is_opened_twice_has_its_sessions_once(folder):
    first, second = (Bundle.open(folder, threads=1) for _ in range(2))
    assert first.engine._sessions["step"] is second.engine._sessions["step"]
    assert said(first) == said(second)


@pytest.mark.parametrize("speculative", [False, True])
def test_rounds_bind_nothing_and_leave_nothing_behind(folder, monkeypatch, speculative):
    bundle = Bundle.open(folder, threads=1)

    def rounds(new_tokens: int):
        row = Row(PROMPT, new_tokens, bundle.manifest.max_length, (), None)
        yield from bundle._loop.generate([row], speculative)

    for _ in rounds(60):  # every width that it takes
        pass
    bound = []
    monkeypatch.setattr(type(bundle.engine), "bind", lambda *arguments: bound.append(arguments))
    running = rounds(60)
    for _ in range(5):
        next(running)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    counted = sum(1 for _ in running)
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert counted > 10
    assert bound == []
    # The tokens themselves, their counts, and what one round has at hand: no array of the size of a window's logits.
    assert after - before < 150 * counted
    assert peak - before < 20_000
