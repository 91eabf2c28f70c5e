"""docs/reference/recipe.md and training-recipe.md: every key of a recipe, from the schema and from plans."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from click.testing import CliRunner
from pydantic.fields import FieldInfo

from speccompile.cli.plan import command
from speccompile.recipe.schema import field_at, key_paths

MEANINGS = Path(__file__).with_name("recipe_keys.toml")
RECIPES = Path(__file__).resolve().parents[2] / "recipes"

RECIPE = """# Recipe

Every key of a recipe. A recipe is a file in YAML that says what `speccompile build` compiles. Paths in it are
relative to the file. `--set KEY=VALUE` overrides a key by its path: `--set drafter.tokens=6`. A key that is not on
this page is refused, with the nearest one as a hint. `speccompile init MODEL` writes a recipe; `speccompile plan
RECIPE` prints every decided value and where it comes from. This page is made from the code by `scripts/docs
--write`.

The column *default* shows what `speccompile plan` decides for the recipe of the demo. No entry there: the value
depends on the model, on the machine or on the drafting method, or there is none.
"""
TRAINING = """# Training recipe

Every key of the section `train` of a recipe, which `speccompile train` reads. [Train a
drafter](../tutorials/train-a-drafter.md) shows its use. This page is made from the code by `scripts/docs --write`.

The column *default* shows what `speccompile plan` decides for `recipes/demo/adapt.yaml`; larger targets get other
ones.
"""


def recipe_page() -> str:
    keys = [key for key in _known() if not key.startswith("train.")]
    sections = {"The recipe": [key for key in keys if "." not in key]}
    for key in keys:
        if "." in key:
            sections.setdefault(f"`{key.partition('.')[0]}`", []).append(key)
    return _page(RECIPE, sections, _defaults(RECIPES / "demo/recipe.yaml"))


def training_page() -> str:
    keys = [key for key in _known() if key.startswith("train.")]
    sections: dict[str, list[str]] = {"`train`": []}
    for key in keys:
        parts = key.split(".")
        sections.setdefault(f"`train.{parts[1]}`" if len(parts) > 2 else "`train`", []).append(key)
    return _page(TRAINING, sections, _defaults(RECIPES / "demo/adapt.yaml"))


def _page(head: str, sections: dict[str, list[str]], defaults: dict[str, str]) -> str:
    return "\n".join([head, *(part for title, keys in sections.items() for part in _chapter(title, keys, defaults))])


def _chapter(title: str, keys: Iterable[str], defaults: dict[str, str]) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| key | meaning | expected | example | default |"
    yield "|---|---|---|---|---|"
    for key in keys:
        field, default = _field(key), defaults.get(key)
        cells = [
            f"`{key}`",
            MEANING[key],
            field.description or "",
            f"`{_example(field)}`",
            f"`{default}`" if default else "",
        ]
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
    yield ""


def _known() -> list[str]:
    """Return the keys of the schema. Raise ValueError unless the table of meanings has the same keys."""
    keys = key_paths()
    if wrong := {*keys} ^ {*MEANING}:
        raise ValueError(f"{MEANINGS}: received other keys than the schema's: {', '.join(sorted(wrong))}")
    return keys


def _field(key: str) -> FieldInfo:
    return field_at(tuple(key.split(".")))[1]


def _example(field: FieldInfo) -> str:
    value = field.examples[0] if field.examples else ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _defaults(recipe: Path) -> dict[str, str]:
    """Return key -> the value that `speccompile plan` decides by default."""
    printed = CliRunner().invoke(command, [str(recipe)], catch_exceptions=False).stdout
    found = re.findall(r"^([a-z]\S*?) {2,}(\S.*?) {2,}default$", printed, re.MULTILINE)
    # A parenthesis is a remark about this machine or model.
    return {key.replace(".0.", "."): value.partition(" (")[0] for key, value in found if not value.startswith("(")}


MEANING: dict[str, str] = tomllib.loads(MEANINGS.read_text(encoding="utf-8"))
