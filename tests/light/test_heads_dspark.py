"""Folders of DSpark heads, in every dialect -> one description; and what is refused, by file and name."""

import json
from functools import partial

import pytest
from transformers import LlamaConfig

from speccompile.drafters.find import find_kind
from speccompile.errors import CheckpointError, RecipeError
from tests.heads import dflash as heads
from tests.light.read_heads import read_as

TARGET = LlamaConfig(vocab_size=96, hidden_size=64, num_hidden_layers=4)
SWITCHES = {
    "sample_from_anchor": True, "markov_rank": 8, "markov_head_type": "vanilla", "confidence_head": True,
    "confidence_head_with_markov": True,
}  # fmt: skip
WRITERS = {
    "DeepSpec": lambda folder, **more: heads.deepspec(folder, TARGET, markov=heads.MARKOV | more),
    "SpecForge": lambda folder, **more: heads.specforge(folder, TARGET, own=more),
    "SpecForge, its first": lambda folder, **more: heads.specforge(folder, TARGET, own=more, prefix="logit_head."),
    "speculators": lambda folder, **more: heads.speculators(folder, TARGET, "dspark", **more),
}


@pytest.fixture
def read():
    return partial(read_as, "dspark")


@pytest.mark.parametrize("dialect", WRITERS)
def test_every_dialect_is_the_same_head(read, tmp_path, dialect):
    folder = WRITERS[dialect](tmp_path / "head")
    head = read(folder, threshold=0.5)
    assert head.dialect == dialect.partition(",")[0]
    assert head.switches.items() >= SWITCHES.items()
    assert {"markov_head.markov_w1.weight", "confidence_head.proj.bias"} <= head.tensors.keys()
    assert (head.tokens, head.default_tokens) == (5, 4 if dialect == "speculators" else 5)
    assert find_kind(folder) == "dspark"
    assert any("sample_from_anchor" in note for note in head.notes) is (dialect != "DeepSpec")


@pytest.mark.parametrize("kind", ["gated", "rnn"])
def test_other_markov_heads(read, tmp_path, kind):
    head = read(WRITERS["SpecForge"](tmp_path / "head", markov_head_type=kind))
    name = {"gated": "gate", "rnn": "joint"}[kind]
    assert {f"markov_head.{name}_proj.weight", f"markov_head.{name}_proj.bias"} <= head.tensors.keys()


def test_a_recurrent_head_needs_the_anchor_s_slot(read, tmp_path):
    folder = WRITERS["speculators"](tmp_path / "head", markov_head_type="rnn", sample_from_anchor=False)
    with pytest.raises(CheckpointError, match=r"markov_head_type: received 'rnn', expected vanilla or gated where"):
        read(folder)


def test_the_slots_that_speak_may_be_said_otherwise(read, tmp_path):
    assert read(WRITERS["speculators"](tmp_path / "fill", sample_from_anchor=False)).tokens == 4
    assert read(WRITERS["SpecForge"](tmp_path / "head"), switches={"sample_from_anchor": False}).tokens == 4


def test_a_threshold_needs_a_confidence_head(read, tmp_path):
    folder = WRITERS["DeepSpec"](tmp_path / "head", enable_confidence_head=False)
    assert "confidence_head.proj.weight" not in read(folder).tensors
    with pytest.raises(RecipeError, match=r"drafter.threshold: received 0.5, expected none: the head in .* has no"):
        read(folder, threshold=0.5)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"markov_head_type": "tree"}, r"markov_head_type: received 'tree', expected one of vanilla, gated, rnn"),
        ({"confidence_head_with_markov": True, "markov_rank": 0}, r"confidence_head_with_markov: received True"),
        ({"markov_rank": 4}, r"tensor 'markov_head.markov_w1.weight' of shape \[96, 8\], expected \[96, 4\]"),
        ({"projector_type": "dflash"}, r"projector_type: received 'dflash', expected 'dspark': drafter.kind is dspark"),
    ],
)
def test_configs_are_refused_by_file_and_key(read, tmp_path, more, message):
    folder = WRITERS["SpecForge"](tmp_path / "head")
    config = json.loads((folder / "config.json").read_text())
    config["dflash_config"] |= more
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=message):
        read(folder)
