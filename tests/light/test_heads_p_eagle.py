"""Folders of P-EAGLE heads, in every dialect -> one description; and what is refused, by file and name."""

import pytest
import torch
from transformers import LlamaConfig

from speccompile.drafters.find import find_kind
from speccompile.errors import CheckpointError, RecipeError
from tests.heads import WIDTH
from tests.heads.p_eagle import p_eagle
from tests.light.read_heads import change_config, change_tensors, read_as

TARGET = LlamaConfig(vocab_size=96, hidden_size=WIDTH, num_hidden_layers=2)
DIALECTS = {"speculators": "speculators", "vllm": "vLLM", "specforge": "SpecForge"}
TAPS = {
    "speculators": ("layers.1.input", "layers.1.output", "layers.1.output"),
    "vllm": ("layers.1.input", "layers.1.output", "layers.1.output"),
    "specforge": ("layers.0.output", "layers.1.output", "layers.1.output"),
}
"""The same places, as each dialect counts them."""


@pytest.fixture
def read():
    return lambda folder, **switches: read_as("p_eagle", folder, switches=switches, hidden_size=WIDTH, layers=2)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_is_the_same_head(read, tmp_path, dialect):
    folder = p_eagle(tmp_path / dialect, TARGET, dialect, layers=1, draft_size=48)
    head = read(folder)
    expected = read(p_eagle(tmp_path / "expected", TARGET, layers=1, draft_size=48))
    assert head.dialect == DIALECTS[dialect]
    assert head.taps == TAPS[dialect]
    assert (head.layers, head.switches, head.tensors.keys()) == (
        expected.layers,
        expected.switches,
        expected.tensors.keys(),
    )
    assert head.switches["mask_token"] == 7
    assert head.switches["norm_before_residual"] is False
    assert head.draft_vocabulary_size == 48
    assert head.default_tokens == (5 if dialect == "speculators" else None)
    assert find_kind(folder) == "p_eagle"


def test_an_architecture_of_its_own(read, tmp_path):
    folder = p_eagle(tmp_path / "head", TARGET, "vllm", architectures=["PEagleDraftModel"])
    assert read(folder).dialect == "PEagle"
    assert read(folder).layers.count == 2


def test_the_mask_token_is_looked_up_in_the_order_of_vllm(read, tmp_path):
    folder = p_eagle(tmp_path / "head", TARGET, "vllm")
    for token, said in enumerate(
        (
            {"ptd_token_id": 0},
            {"pard_token": 1},
            {"dspark_noise_token_id": 2},
            {"mask_token_id": 3},
            {"dflash_config": {"mask_token_id": 4}},
        )
    ):
        change_config(folder, **said)
        assert read(folder).switches["mask_token"] == token
    assert read(folder, mask_token=9).switches["mask_token"] == 9
    assert read(folder, norm_before_residual=True).switches["norm_before_residual"] is True
    change_config(folder, dflash_config={"mask_token_id": 4, "target_layer_ids": [1]})
    with pytest.raises(CheckpointError, match=r"received the unknown switch dflash_config"):
        read(folder)


def test_where_nothing_is_said_the_residual_is_not_normed(read, tmp_path):
    folder = p_eagle(tmp_path / "head", TARGET)
    change_config(folder, norm_before_residual=None)
    assert read(folder).switches["norm_before_residual"] is False


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (None, "config.json: mask_token_id: received nothing, expected a token from 0 to 95"),
        (96, "config.json: mask_token_id: received 96, expected a token from 0 to 95"),
        (-1, "config.json: mask_token_id: received -1, expected a token"),
        (True, "config.json: mask_token_id: received True, expected a token"),
    ],
)
def test_mask_tokens_that_are_none(read, tmp_path, token, message):
    folder = p_eagle(tmp_path / "head", TARGET)
    change_config(folder, mask_token_id=token)
    with pytest.raises(CheckpointError) as caught:
        read(folder)
    assert message in str(caught.value)
    assert "drafter.switches.mask_token" in caught.value.hint
    with pytest.raises(RecipeError, match=r"recipe.yaml: drafter.switches.mask_token: received 96, expected a token"):
        read(folder, mask_token=96)


def test_the_hidden_state_of_the_mask_is_checked(read, tmp_path):
    folder = p_eagle(tmp_path / "head", TARGET)
    change_tensors(folder, {"mask_hidden": torch.ones(1, 1, WIDTH)})
    with pytest.raises(
        CheckpointError, match=rf"received tensor 'mask_hidden' of shape \[1, 1, 32\], expected {3 * WIDTH}"
    ):
        read(folder)
    change_tensors(folder, {"mask_hidden": None})
    with pytest.raises(
        CheckpointError, match=rf"received no tensor 'mask_hidden', expected one of {3 * WIDTH} numbers"
    ):
        read(folder)


def test_a_head_that_drafts_token_by_token_is_another(read, tmp_path):
    folder = change_tensors(p_eagle(tmp_path / "head", TARGET), {"mask_hidden": None})
    change_config(folder, speculators_model_type="eagle3")
    with pytest.raises(CheckpointError, match=r"received a folder of drafter.kind eagle3 \(dialect speculators"):
        read(folder)
