"""Folders of Domino heads, in every dialect -> one description; and what is refused, by file and name."""

import pytest
from transformers import LlamaConfig

from speccompile.drafters.find import find_kind
from speccompile.errors import CheckpointError
from tests.heads import dflash as heads
from tests.light.read_heads import read_as

TARGET = LlamaConfig(vocab_size=96, hidden_size=64, num_hidden_layers=4)
WRITERS = {
    "SpecForge": heads.domino,
    "SpecForge, its first": lambda folder, target, own=None: heads.domino(
        folder, target, own=own, prefix="logit_head."
    ),
    "speculators": lambda folder, target, own=None: heads.speculators(folder, target, "domino", **(own or {})),
}


@pytest.fixture
def read(tmp_path):
    return lambda writer, kind="domino", **own: read_as(kind, WRITERS[writer](tmp_path / "head", TARGET, own=own))


@pytest.mark.parametrize("writer", WRITERS)
def test_every_dialect_is_the_same_head(read, tmp_path, writer):
    head = read(writer)
    assert head.dialect == writer.partition(",")[0]
    assert find_kind(tmp_path / "head") == "domino"
    own = {"gru_hidden_dim": 12, "emb_dim": 8, "pure_draft_prefix_len": 1}
    anchored = writer == "speculators"
    assert head.switches.items() >= (own | {"sample_from_anchor": anchored}).items()
    assert {"prefix_gru.weight_hh_l0", "up_proj.weight", "out_proj.weight"} < head.tensors.keys()
    assert head.tokens == heads.BLOCK - (not anchored)


def test_shifted_labels_draft_from_the_anchor(read):
    assert read("SpecForge", shift_label=True).tokens == heads.BLOCK


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (
            {"pure_draft_prefix_len": 4},
            "pure_draft_prefix_len: received 4, expected less than 4, the drafts of a block",
        ),
        ({"emb_dim": 16}, r"received tensor 'embed_proj.0.weight' of shape \[8, 76\], expected \[16, 76\]"),
        ({"gru_hidden_dim": None}, "gru_hidden_dim: received nothing, expected a whole number from 1"),
        ({"gru_layers": 2}, "received the unknown switch dflash_config.gru_layers: 2"),
    ],
)
def test_what_does_not_fit_together_is_refused(read, own, message):
    with pytest.raises(CheckpointError, match=message):
        read("SpecForge", **own)


@pytest.mark.parametrize("kind", ["dflash", "dspark"])
def test_other_block_drafters_name_the_kind(read, kind):
    with pytest.raises(CheckpointError, match=r"received a folder of drafter\.kind domino"):
        read("SpecForge", kind)
