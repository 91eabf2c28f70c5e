"""Bundles whose weights are mapped: no array repeats them in memory."""

import tracemalloc
from pathlib import Path

import pytest

from speccompile.compiler.build import build
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from speccompile.runtime.devices import prepacked
from speccompile.runtime.generation import SequenceState
from tests import zoo
from tests.compile.kernel_runs import needs_library
from tests.compile.tiny_bundles import save

pytestmark = pytest.mark.builds(2)

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


def said(bundle: Bundle) -> list[tuple[list[int], list[float] | None]]:
    ways = [bundle.generate(PROMPT, max_new_tokens=30, autoregressive=each, logprobs=True) for each in (False, True)]
    return [(each.token_ids, each.logprobs) for each in ways]


@needs_library
@pytest.mark.skipif(not Path("/proc/self/maps").is_file(), reason="this system does not list what is mapped")
@pytest.mark.parametrize("engine", ["float32", "int8", "int4"])
def test_weights_are_read_where_they_lie(folder, tmp_path, monkeypatch, engine):
    """Map weights without copies and packing: all sessions and processes share the page cache."""
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    bundle = Bundle.open(folder, engine=engine, threads=1)
    assert said(bundle)
    mapped = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    assert [str(path) for path in folder.glob(f"graphs/target.{engine}*.weights") if str(path) not in mapped] == []
    assert not (tmp_path / "cache" / prepacked.NAME).exists()


def test_a_bundle_that_is_opened_twice_has_its_sessions_once(folder):
    first, second = (Bundle.open(folder, threads=1) for _ in range(2))
    assert first.engine._sessions["step"] is second.engine._sessions["step"]
    assert said(first) == said(second)


@pytest.mark.parametrize("speculative", [False, True])
def test_rounds_bind_nothing_and_leave_nothing_behind(folder, monkeypatch, speculative):
    bundle = Bundle.open(folder, threads=1)

    def rounds(new_tokens: int):
        row = SequenceState(PROMPT, new_tokens, bundle.manifest.max_length, (), None)
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
    # The tokens, their counts, and the arrays of one round: none is as large as a window's logits.
    assert after - before < 150 * counted
    assert peak - before < 20_000
