"""A target folder without tokenizer.json: the bundle takes no text, and whoever could expect that it does is warned."""

import logging

import pytest

from speccompile.compiler.build import build
from speccompile.compiler.models.tokenizer import warn_without_tokenizer
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from tests import zoo
from tests.compile.tiny_bundles import save

pytestmark = pytest.mark.builds(1)

RECIPE = """
name: tiny
target: {model: target}
drafter: {kind: none}
cache: {max_length: 32, prefill_chunk: 8}
"""


def warnings(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_build_warns_where_parts_of_a_tokenizer_lie(tmp_path, caplog):
    save(zoo.model("llama"), tmp_path / "target", tokenizer=False)
    (tmp_path / "target" / "tokenizer_config.json").write_text("{}")
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    folder = build(make_plan(load_recipe(tmp_path)), tmp_path / "bundle", prove=False)
    (said,) = [each for each in warnings(caplog) if "tokenizer" in each]
    assert said.startswith(
        f"{tmp_path / 'target'}: found tokenizer_config.json, but no tokenizer.json: the bundle will"
    )
    assert "\nhint: AutoTokenizer" in said
    assert Bundle.open(folder).text is None


def test_a_folder_without_any_is_not_warned_of(tmp_path, caplog):
    (tmp_path / "config.json").write_text("{}")
    warn_without_tokenizer(tmp_path)
    assert warnings(caplog) == []
    for name in ("tokenizer.model", "vocab.json"):
        (tmp_path / name).touch()
    warn_without_tokenizer(tmp_path)
    assert "found tokenizer.model and vocab.json, but no tokenizer.json" in warnings(caplog)[0]
