"""Folders of ReDrafter heads -> one description; and what is refused, by file and name."""

import pytest
from transformers import LlamaConfig

from speccompile.drafters.find import find_kind
from speccompile.errors import CheckpointError, RecipeError
from tests.heads.redrafter import redrafter
from tests.light.read_heads import read_as

TARGET = LlamaConfig(vocab_size=96, hidden_size=64, num_hidden_layers=4)


@pytest.fixture
def read(tmp_path):
    def read(hidden_size=64, **form):
        return read_as("redrafter", redrafter(tmp_path / "head", TARGET, **form), hidden_size=hidden_size)

    return read


@pytest.mark.parametrize("prefix", ["", "drafter."])
def test_apple_s_head(read, tmp_path, prefix):
    head = read(prefix=prefix)
    assert (head.dialect, head.taps, head.tokens) == ("Apple", ("norm.output",), None)
    assert head.switches == {"cell": "rnn", "exit_dim": 128}
    assert head.tensors["output.weight"].name == f"{prefix}lm_head.2.weight"
    assert find_kind(tmp_path / "head") == "redrafter"


def test_a_sum_of_embeddings_has_no_cell(read):
    head = read(rnn=False, exit_dim=32)
    assert head.switches["cell"] == "sum"
    assert {"input_proj.weight", "input_proj.bias"} < head.tensors.keys()
    assert not any(name.startswith("rnn_") for name in head.tensors)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"num_draft_layers": 1}, "received no tensor 'output.weight' in model.safetensors"),
        ({"num_draft_layers": 3}, "received no tensor 'output.weight' in model.safetensors"),
        ({"exit_dim": 32, "rnn": False, "num_draft_layers": "2"}, "num_draft_layers: received '2', expected a whole"),
        ({"dropout": 0.5}, "received the unknown switch dropout: 0.5"),
        ({"rnn": 1}, "rnn: received 1, expected true or false"),
    ],
)
def test_what_does_not_fit_together_is_refused(read, form, message):
    with pytest.raises(CheckpointError, match=message):
        read(**form)


def test_a_head_of_another_target_is_refused(read):
    with pytest.raises((CheckpointError, RecipeError), match="64"):
        read(hidden_size=32)
