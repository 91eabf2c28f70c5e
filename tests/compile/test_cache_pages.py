"""Caches take the memory that a text fills, not that of `cache.max_length`, in both runtimes."""

from pathlib import Path

import pytest

from speccompile.compiler.build import build
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from tests import zoo
from tests.compile.tiny_bundles import save
from tests.native.native_api import NativeBundle

pytestmark = pytest.mark.builds(1)

POSITIONS = 131_072
CACHES = POSITIONS * 2 * 2 * 2 * 16 * 4
"""Bytes of keys and values of two layers, two heads of 16 numbers each, in float32."""
PROMPT = list(range(3, 40))


def anonymous() -> int:
    """Return the bytes of this process that are in memory and not mapped from files."""
    rows = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(rows["RssAnon"].split()[0])


@pytest.mark.sweep("a build for one figure of memory")
def test_a_short_text_leaves_a_long_cache_untouched(tmp_path, native_library, onnxruntime_library):
    save(zoo.model("llama", max_position_embeddings=POSITIONS), tmp_path / "target", tokenizer=False)
    recipe = f"name: tiny\ntarget: {{model: target}}\ndrafter: {{kind: none}}\ncache: {{max_length: {POSITIONS}}}\n"
    (tmp_path / "recipe.yaml").write_text(recipe)
    folder = build(make_plan(load_recipe(tmp_path / "recipe.yaml")), tmp_path / "bundle", prove=False)
    before = anonymous()
    with Bundle.open(folder, threads=1) as bundle:
        said = bundle.generate(PROMPT, max_new_tokens=8).token_ids
        assert anonymous() - before < CACHES / 4
    before = anonymous()
    native = NativeBundle(folder, library=native_library, onnxruntime=onnxruntime_library, threads=1)
    (found,) = native.session().generate([PROMPT], max_new_tokens=8)
    assert found["token_ids"] == said
    assert anonymous() - before < CACHES / 4
