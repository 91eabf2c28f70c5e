"""Generated pages are up to date, and name every command, key and function."""

import re

import pytest

import speccompile
from scripts.pages import __main__ as script
from scripts.pages import environment, recipe, support
from scripts.pages.__main__ import BY_HAND, PAGES, REFERENCE, main, pages
from scripts.pages.marks import section, with_section
from speccompile.cli.main import COMMANDS
from speccompile.compiler.checkpoints.multimodal import TYPES
from speccompile.drafters import DRAFTING_METHODS
from speccompile.recipe.capabilities import SUPPORT_TABLE
from speccompile.recipe.schema import key_paths
from speccompile.recipe.training_kind import trainable
from tests import multimodal


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    """Return all pages, which take seconds to make: not where tests are only collected."""
    return pages()


@pytest.mark.parametrize("name", [*PAGES, *BY_HAND])
def test_the_page_is_what_the_code_says(name, made):
    assert (REFERENCE / name).read_text(encoding="utf-8") == made[name], "scripts/docs --write"


def test_a_stale_page_is_told_and_written_anew(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(script, "PAGES", {name: PAGES[name] for name in ("environment.md", "errors.md")})
    for name in BY_HAND:
        (tmp_path / name).write_bytes((REFERENCE / name).read_bytes())
    assert main(["--check"], tmp_path) == 1
    assert "errors.md is stale\nhint: run scripts/docs --write" in capsys.readouterr().err
    assert not (tmp_path / "errors.md").exists()
    assert main([], tmp_path) == 0
    assert main(["--check"], tmp_path) == 0
    for name in ("environment.md", "errors.md", *BY_HAND):
        assert (tmp_path / name).read_text() == (REFERENCE / name).read_text()


def test_every_command_key_and_variable_has_its_place(made):
    for command in COMMANDS:
        assert f"\n## speccompile {command}\n" in made["commands.md"]
    keys = made["recipe.md"] + made["training-recipe.md"]
    assert [key for key in key_paths() if f"| `{key}` |" not in keys] == []
    assert {"SPECCOMPILE_CACHE_DIR", "SPECCOMPILE_KERNELS", "SPECCOMPILE_NV_TENSORRT_RTX"} <= environment.named()


def test_defaults_are_those_of_a_plan(made):
    page = made["recipe.md"]
    for key, default in {"cache.batch_size": "1", "verify.method": "exact", "decoding": "greedy"}.items():
        assert re.search(rf"\| `{key}` \|.*\| `{default}` \|$", page, re.MULTILINE), key
    page = made["training-recipe.md"]
    assert re.search(r"\| `train\.schedule\.warmup` \|.*\| `50` \|$", page, re.MULTILINE)


def test_a_key_without_a_meaning_is_refused(monkeypatch):
    monkeypatch.delitem(recipe.MEANING, "cache.max_length")
    with pytest.raises(ValueError, match=r"cache\.max_length"):
        recipe.recipe_page()


def test_every_public_name_of_python_is_on_its_page():
    page = (REFERENCE / "python.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^::: speccompile\.(?:\w+\.)*(\w+)$", page, re.MULTILINE))
    assert {*speccompile.__all__} - {"__version__"} <= shown


def test_the_column_of_what_is_trained_names_what_train_takes():
    assert {kind for kind in DRAFTING_METHODS if support.trained(kind) != "-"} == set(trainable())


def test_what_all_engines_have_in_common_is_said_once():
    for dimension in support.COMMON.values():
        assert len({row[dimension] for row in SUPPORT_TABLE}) == 1


def test_the_multimodal_models_are_those_whose_decoder_is_compared_with_the_whole():
    assert {multimodal.model(name).config.model_type for name in multimodal.NAMES} == set(TYPES)


def test_a_section_stands_between_its_marks():
    page = "a\n<!-- one: made -->\nold\n<!-- /one -->\nb\n<!-- two -->\n<!-- /two -->\n"
    assert section(page, "one") == "old"
    assert with_section(page, "one", "new\nlines") == page.replace("old", "new\nlines")
    assert section(with_section(page, "two", "new"), "two") == "new"
    with pytest.raises(ValueError, match="no section three"):
        section(page, "three")
