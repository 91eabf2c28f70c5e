"""What the README says of support is what the code and the zoo say."""

import re
from pathlib import Path

from speccompile.cli.main import COMMANDS
from speccompile.compiler.checkpoints.multimodal import TYPES
from speccompile.compiler.checkpoints.quantization import METHODS
from speccompile.drafters import DRAFTING_METHODS, OWN
from speccompile.recipe.capabilities import SUPPORT_TABLE
from speccompile.recipe.combinations import COMBINATIONS, KEYS
from speccompile.recipe.training_kind import trainable
from tests import multimodal

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
COLUMNS = {"backend": "backend", "provider": "provider", "compute_capability": "compute_capability",
           "precision.target": "precision", "precision.drafter": "drafter_precision",
           "precision.block_size": "block_size"}  # fmt: skip
COMMON = {"graphs": "graphs", "drafter.kind": "drafter", "verify.method": "method", "decoding": "decoding"}


def section(name: str) -> str:
    """The text between a section's two marks."""
    found = re.search(rf"<!-- {name}[^>]*-->\n(.*?)<!-- /{name} -->", README, re.DOTALL)
    assert found, f"README.md has no section {name}"
    return found[1].strip()


def words(row, dimension):
    return ", ".join(f"`{word}`" for word in row[dimension]) or "-"


def table() -> str:
    """The table of support, as the README must have it. What all engines have in common stands below it."""
    common = {key: {words(row, dimension) for row in SUPPORT_TABLE} for key, dimension in COMMON.items()}
    lines = [f"| {' | '.join(f'`{title}`' for title in COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    lines += [f"| {' | '.join(words(row, dimension) for dimension in COLUMNS.values())} |" for row in SUPPORT_TABLE]
    return "\n".join([*lines, "", *(f"- `{key}`: {' / '.join(each)}" for key, each in common.items())])


def test_the_table_of_support_is_the_table_of_capabilities():
    assert section("supported") == table()
    for dimension in COMMON.values():
        assert len({row[dimension] for row in SUPPORT_TABLE}) == 1


def combinations() -> str:
    """The table of what goes together, as the README must have it."""
    lines = [f"| {' | '.join(f'`{key}`' for key in KEYS.values())} |", "|---" * len(KEYS) + "|"]
    return "\n".join(
        [*lines, *(f"| {' | '.join(words(row, dimension) for dimension in KEYS)} |" for row in COMBINATIONS)]
    )


def test_the_table_of_combinations_is_the_table_of_drafts():
    assert section("combinations") == combinations()


def drafters() -> str:
    """The table of families, as the README must have it: what each is, the dialects that are read, and those that
    `train` writes new ones in."""
    lines = ["| `drafter.kind` | what drafts | checkpoints | trainable |", "|---|---|---|---|"]
    for kind, family in DRAFTING_METHODS.items():
        dialects = list(dict.fromkeys(dialect.name for dialect in family.dialects if not dialect.refused))
        folder = "Hugging Face layout" if family.weights == OWN else ", ".join(dialects) or "-"
        lines.append(f"| `{kind}` | {family.summary} | {folder} | {trained(kind)} |")
    return "\n".join(lines)


def trained(kind: str) -> str:
    """What `speccompile train` leaves for a kind, in the README's words; of several models it trains one at a time."""
    training = DRAFTING_METHODS["model" if kind == "models" else kind].training
    if training is None:
        return "-"
    return ", ".join(training.dialects) if training.makes_new else "what there is, trained on"


def test_the_column_of_what_is_trained_names_what_train_takes():
    assert {kind for kind in DRAFTING_METHODS if trained(kind) != "-"} == set(trainable())


def test_the_table_of_drafters_is_the_registry():
    assert section("drafters") == drafters()


def test_the_table_of_quantized_checkpoints_is_what_is_read():
    rows = [f"| `{name}` | {method.taken} |" for name, method in METHODS.items()]
    assert section("quantized") == "\n".join(["| `quant_method` | what is read |", "|---|---|", *rows])


def test_the_multimodal_models_are_those_whose_decoder_is_compared_with_the_whole():
    assert section("multimodal") == ", ".join(f"`{model_type}`" for model_type in TYPES)
    assert {multimodal.model(name).config.model_type for name in multimodal.NAMES} == set(TYPES)


def test_every_command_is_shown():
    for command in COMMANDS:
        assert f"speccompile {command}" in README
