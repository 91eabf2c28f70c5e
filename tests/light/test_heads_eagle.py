"""Folders of EAGLE heads, in every dialect -> one description; and what is refused, by file and name."""

from functools import partial

import pytest
from safetensors.torch import load_file
from transformers import LlamaConfig

from speccompile.drafters.find import find_head, find_kind
from speccompile.drafters.folder import read_folder
from speccompile.errors import CheckpointError, RecipeError
from tests.heads.eagle import eagle, enorm
from tests.light.read_heads import change_config, change_tensors, read_as

TARGET = LlamaConfig(vocab_size=96, hidden_size=64, num_hidden_layers=4)
DIALECTS = {"safeailab": "SafeAILab", "vllm": "vLLM", "nested": "vLLM, converted", "speculators": "speculators"}


@pytest.fixture
def read():
    return partial(read_as, "eagle")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_is_the_same_head(read, tmp_path, dialect):
    folder = eagle(tmp_path / dialect, TARGET, dialect, qkv_bias=True)
    head = read(folder)
    expected = read(eagle(tmp_path / "expected", TARGET, qkv_bias=True))
    assert head.dialect == DIALECTS[dialect]
    assert head.evidence
    assert head.taps == ("norm.output",)
    assert (head.layers, head.switches, head.tensors.keys()) == (expected.layers, {}, expected.tensors.keys())
    assert {"fc.bias", "layers.0.self_attn.q_proj.bias"} <= head.tensors.keys()
    assert not {"embed_tokens.weight", "layers.0.input_layernorm.weight"} & head.tensors.keys()
    assert (head.tokens, head.default_tokens) == (None, 5 if dialect == "speculators" else None)
    assert find_kind(folder) == "eagle"


def test_a_bias_is_there_where_the_file_has_one(read, tmp_path):
    assert "fc.bias" not in read(eagle(tmp_path / "none", TARGET, bias=False)).tensors
    silent = eagle(tmp_path / "silent", TARGET, "vllm")
    assert "fc.bias" in read(silent).tensors
    change_config(silent, bias=False)
    with pytest.raises(CheckpointError, match=r"model.safetensors: received the tensor 'fc.bias', which nothing"):
        read(silent)
    lacking = eagle(tmp_path / "lacking", TARGET, "vllm", bias=False)
    change_config(lacking, bias=True)
    with pytest.raises(CheckpointError, match=r"received no tensor 'fc.bias' in model.safetensors, expected one of"):
        read(lacking)


def test_more_layers_than_one_have_both_norms(read, tmp_path):
    head = read(eagle(tmp_path / "head", TARGET, layers=2))
    assert head.layers.count == 2
    assert "layers.1.input_layernorm.weight" in head.tensors


def test_the_recipe_may_tap_elsewhere(read, tmp_path):
    folder = eagle(tmp_path / "head", TARGET)
    assert read(folder, ("layers.3.output",)).taps == ("layers.3.output",)
    with pytest.raises(RecipeError, match=r"drafter.taps: received 2 taps"):
        read(folder, ("layers.2.output", "layers.3.output"))


def test_other_targets_are_refused(read, tmp_path):
    folder = eagle(tmp_path / "head", TARGET)
    with pytest.raises(RecipeError, match=r"drafter.model: received a head for a target with a hidden size of 64"):
        read(folder, hidden_size=128)
    with pytest.raises(RecipeError, match=r"received a head for a target with a vocabulary of 96"):
        read(folder, vocabulary_size=100)


@pytest.mark.parametrize(
    ("dialect", "more", "message"),
    [
        ("vllm", {"add_para_norm": True}, "config.json: add_para_norm: received True, expected False: EAGLE's formula"),
        ("speculators", {"layernorms": True}, "config.json: layernorms: received True, expected False"),
        ("nested", {"truncated_vocab_size": 32}, "config.json: truncated_vocab_size: received 32, expected 96"),
        ("safeailab", {"logit_trick": 2}, "config.json: received the unknown switch logit_trick: 2, expected none"),
        ("vllm", {"num_local_experts": 8}, "config.json: num_local_experts: received 8, expected nothing"),
        ("safeailab", {"intermediate_size": 40}, "received tensor 'layers.0.mlp.gate_proj.weight' of shape"),
        ("speculators", {"transformer_layer_architecture": "MixtralDecoderLayer"}, "received 'MixtralDecoderLayer'"),
    ],
)
def test_what_the_config_says_and_is_not_compiled(read, tmp_path, dialect, more, message):
    folder = eagle(tmp_path / "head", TARGET, dialect)
    change_config(folder, **more)
    with pytest.raises(CheckpointError) as caught:
        read(folder)
    assert message in str(caught.value)
    assert str(folder) in str(caught.value)
    assert caught.value.hint


def test_heads_with_norms_of_their_own_are_refused_by_name(read, tmp_path):
    folder = eagle(tmp_path / "head", TARGET, "vllm")
    tensors = load_file(folder / "model.safetensors")
    change_tensors(folder, enorm(64))
    message = (
        r"received EAGLE with norms of its own \(tensor fc.weight, tensor enorm.weight\), which this version does not"
    )
    with pytest.raises(CheckpointError, match=message):
        read(folder)
    with pytest.raises(CheckpointError, match=message):
        find_head(read_folder(folder))
    own, norm = dict.fromkeys(enorm(64)), tensors["layers.0.post_attention_layernorm.weight"]
    change_tensors(folder, own | tensors | {"layers.0.input_layernorm.weight": 1 + norm})
    with pytest.raises(CheckpointError, match=r"received the tensor 'layers.0.input_layernorm.weight', which nothing"):
        read(folder)
    change_tensors(folder, {"layers.0.input_layernorm.weight": None, "token_map": 1 + norm})
    with pytest.raises(CheckpointError, match=r"received the tensor 'token_map', which the dialect vLLM does not have"):
        read(folder)
