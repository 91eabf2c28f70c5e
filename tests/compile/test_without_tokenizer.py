"""A target folder without tokenizer.json: the bundle takes no text, and whoever could expect that it does is warned."""

import logging

import pytest
from tokenizers import Tokenizer

from speccompile.compiler.build import build
from speccompile.compiler.models.tokenizer import warn_without_tokenizer, write_tokenizer
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.pieces import with_tokenizer
from speccompile.runtime import Bundle
from tests import zoo
from tests.compile.tiny_bundles import save
from tests.light.piece_models import IDS, PIECES, write_translator

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


@pytest.mark.parametrize("name", PIECES)
def test_a_translator_as_it_is_published_has_a_tokenizer(name, tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))
    write_tokenizer(with_tokenizer(write_translator(tmp_path, name)), tmp_path / "bundle")
    tokenizer = Tokenizer.from_file(str(tmp_path / "bundle" / "tokenizer" / "tokenizer.json"))
    assert {text: tokenizer.encode(text).ids for text in IDS[name]} == IDS[name]
