"""Pages that are made from the code are what the code says, and name everything that there is."""

import re

import pytest

import speccompile
from scripts.pages import environment, recipe, support
from scripts.pages.__main__ import REFERENCE, pages
from scripts.pages.marks import section, with_section
from speccompile.cli.main import COMMANDS
from speccompile.compiler.checkpoints.multimodal import TYPES
from speccompile.drafters import DRAFTING_METHODS
from speccompile.recipe.capabilities import SUPPORT_TABLE
from speccompile.recipe.schema import key_paths
from speccompile.recipe.training_kind import trainable
from tests import multimodal

MADE = pages()


@pytest.mark.parametrize("path", MADE, ids=lambda path: path.name)
def test_the_page_is_what_the_code_says(path):
    assert path.read_text(encoding="utf-8") == MADE[path], "scripts/docs --write"


def test_every_command_key_and_variable_has_its_place():
    for command in COMMANDS:
        assert f"\n## speccompile {command}\n" in MADE[REFERENCE / "commands.md"]
    keys = MADE[REFERENCE / "recipe.md"] + MADE[REFERENCE / "training-recipe.md"]
    assert [key for key in key_paths() if f"| `{key}` |" not in keys] == []
    assert {"SPECCOMPILE_CACHE_DIR", "SPECCOMPILE_KERNELS", "SPECCOMPILE_NV_TENSORRT_RTX"} <= environment.named()


def test_defaults_are_those_of_a_plan():
    page = MADE[REFERENCE / "recipe.md"]
    for key, default in {"cache.batch_size": "1", "verify.method": "exact", "decoding": "greedy"}.items():
        assert re.search(rf"\| `{key}` \|.*\| `{default}` \|$", page, re.MULTILINE), key
    page = MADE[REFERENCE / "training-recipe.md"]
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
