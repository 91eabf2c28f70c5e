"""What docs/explanation/survey.md says of the survey's methods can be planned as it stands there."""

import re
from functools import partial
from pathlib import Path

import pytest
import yaml
from transformers import LlamaConfig

from scripts.pages.marks import section
from speccompile.recipe import load_recipe, make_plan
from tests.heads.every import HEADS
from tests.heads.medusa import faster_decoding

PAGE = Path(__file__).resolve().parents[2] / "docs/explanation/survey.md"
TABLE_3 = (
    "SpecDec", "SpS", "SpecInfer", "DistillSpec", "Online Speculative Decoding", "CS Drafting", "REST",
    "Blockwise Decoding", "Medusa", "PPD", "Self-Speculative", "Parallel Decoding", "Lookahead", "EAGLE",
)  # fmt: skip
"""The methods of the survey's Table 3 (Xia et al. 2024), as it names them."""
NOWHERE = "no place"


def rows() -> list[list[str]]:
    """Return the method, recipe, what differs."""
    lines = section(PAGE.read_text(encoding="utf-8"), "survey").splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def recipe_of(cell: str) -> dict[str, dict]:
    """Return the sections that a cell writes: `drafter` first, then any with their name."""
    found = re.findall(r"`(?:(\w+): )?(\{.*?\})`", cell)
    assert found, cell
    return {name or "drafter": yaml.safe_load(text) for name, text in found}


WITH_PLACE = [row for row in rows() if row[1] != NOWHERE]


def test_every_method_of_the_surveys_table_is_there():
    named = " ".join(row[0] for row in rows())
    assert [name for name in TABLE_3 if name not in named] == []


def test_what_has_no_place_says_why_and_what_is_nearest():
    others = [row for row in rows() if row[1] == NOWHERE]
    assert {row[0].split()[0] for row in others} == {"PPD", "SPEED"}
    for _, _, why in others:
        assert "compute units" in why
        assert recipe_of(why)["drafter"]["kind"] == "layer_skip"


@pytest.fixture
def plan(make_recipe, make_checkpoint, tmp_path):
    """Return a plan of the sections of a row, over a folder for each name in capitals."""
    target = LlamaConfig(vocab_size=100, hidden_size=16, intermediate_size=16, num_hidden_layers=4,
                         num_attention_heads=4, num_key_value_heads=2, head_dim=4, eos_token_id=1)  # fmt: skip
    sizes = {name: getattr(target, name) for name in ("vocab_size", "hidden_size", "intermediate_size")}
    for name in ("deep", "M", "N"):
        make_checkpoint(tmp_path / name, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, **sizes)

    def plan(sections):
        kind = sections["drafter"]["kind"]
        if kind in HEADS:
            write = partial(faster_decoding, heads=4) if kind == "medusa" else HEADS[kind]  # as deep as its tree
            write(tmp_path / kind, target)
            sections["drafter"]["model"] = kind
        sections["drafter"].pop("index", None)  # an index of its own tokenizer: `test_index_build` and others make some
        decoding = "sampling" if sections["drafter"].get("sample") else "greedy"
        return make_plan(load_recipe(make_recipe(target={"model": "deep"}, decoding=decoding, **sections)))

    return plan


@pytest.mark.parametrize("row", WITH_PLACE, ids=[row[0] for row in WITH_PLACE])
def test_every_recipe_of_the_table_can_be_planned(row, plan):
    sections = recipe_of(row[1])
    planned = plan(sections)
    assert planned.drafter.kind == sections["drafter"]["kind"]
    assert planned.verify.method == sections.get("verify", {}).get("method", "exact")
