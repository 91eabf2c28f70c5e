"""Checkpoints as they come: dtypes, shards, and heads that are tied or not; against transformers' own loading."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from speccompile.compiler.models.load import load_model
from speccompile.compiler.models.tokenizer import write_tokenizer
from speccompile.errors import CheckpointError
from speccompile.runtime.text.chat import read_chat
from tests import zoo
from tests.json_files import merge_json

TEXT = torch.arange(9, 9 + 40 * 6, 6)[None]
HEAD, TABLE = "lm_head.weight", "model.embed_tokens.weight"


@torch.no_grad()
def assert_as_transformers(folder):
    """Compare the logits with transformers' own loading into float32, and return the loaded model."""
    loaded = load_model(folder, 128)
    expected = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    torch.testing.assert_close(loaded(input_ids=TEXT).logits, expected(input_ids=TEXT).logits, rtol=0, atol=1e-6)
    return loaded, expected


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
@pytest.mark.parametrize("shard", ["100KB", "1GB"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_every_dtype_in_one_file_or_several(tmp_path, dtype, shard, key):
    zoo.model("llama").to(dtype).save_pretrained(tmp_path, max_shard_size=shard)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {key: config.pop("dtype")}))
    assert (len(list(tmp_path.glob("*.safetensors"))) == 1) == (shard == "1GB")
    assert_as_transformers(tmp_path)


@pytest.mark.parametrize(
    ("content", "is_tied"),
    [("no head", True), ("no table", True), ("equal", True), ("other", True), ("equal", False), ("other", False)],
)
def test_a_head_is_tied_where_transformers_ties_it(tmp_path, content, is_tied):
    """Keep both weights of a file where they differ, whatever the config says of ties."""
    zoo.model("llama_tied").save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert HEAD not in tensors
    if content in ("equal", "no table"):
        tensors[HEAD] = tensors[TABLE].clone()
    if content == "other":
        tensors[HEAD] = tensors[TABLE].flip(0).clone()
    if content == "no table":
        del tensors[TABLE]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    merge_json(tmp_path / "config.json", {"tie_word_embeddings": is_tied})
    ties = [each.lm_head.weight is each.model.embed_tokens.weight for each in assert_as_transformers(tmp_path)]
    assert ties[0] == ties[1] == (is_tied and content != "other")


def test_a_chat_template_in_a_file_of_its_own_is_taken_over(tmp_path):
    tokenizer = zoo.byte_tokenizer()
    tokenizer.chat_template = "{{ bos_token }}{% for message in messages %}{{ message.content }}{% endfor %}"
    tokenizer.save_pretrained(tmp_path)
    assert (tmp_path / "chat_template.jinja").read_text() == tokenizer.chat_template
    assert "chat_template" not in json.loads((tmp_path / "tokenizer_config.json").read_text())
    write_tokenizer(tmp_path, tmp_path / "bundle")
    template, special = read_chat(tmp_path / "bundle" / "tokenizer" / "chat.json")
    assert (template, special["bos_token"]) == (tokenizer.chat_template, "<s>")


@pytest.mark.parametrize("as_files", [True, False])
def test_named_chat_templates_are_taken_over_from_both_places(tmp_path, caplog, as_files):
    """Read templates as transformers saves them: a folder of files, or a list in tokenizer_config.json."""
    tokenizer = zoo.byte_tokenizer()
    tokenizer.chat_template = {"default": "a", "tool_use": "{{ tools }}", "rag": "c"}
    tokenizer.save_pretrained(tmp_path, save_jinja_files=as_files)
    assert (tmp_path / "additional_chat_templates" / "rag.jinja").exists() == as_files
    with caplog.at_level("INFO"):
        write_tokenizer(tmp_path, tmp_path / "bundle")
    assert read_chat(tmp_path / "bundle" / "tokenizer" / "chat.json")[0] == tokenizer.chat_template
    said = "took its chat templates default (conversations), rag (by its name), tool_use (conversations with tools)"
    assert said in caplog.text


def test_a_build_says_that_no_template_is_the_default(tmp_path, caplog):
    tokenizer = zoo.byte_tokenizer()
    tokenizer.chat_template = {"tool_use": "{{ tools }}"}
    tokenizer.save_pretrained(tmp_path)
    write_tokenizer(tmp_path, tmp_path / "bundle")
    assert "none of its chat templates is named default" in caplog.text


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"dtype": "float9"}, r"config\.json: transformers refuses it: module 'torch' has no attribute 'float9'"),
        (
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}},
            r"config\.json: transformers refuses it: .*factor",
        ),
        ({"head_dim": 0}, "the weights cannot be loaded: 0.0 cannot be raised"),
        ({"hidden_act": "nope"}, "the weights cannot be loaded: 'nope'"),
    ],
)
def test_a_config_over_which_transformers_stumbles_is_refused(tmp_path, config, said):
    zoo.model("llama").save_pretrained(tmp_path)
    merge_json(tmp_path / "config.json", config)
    with pytest.raises(CheckpointError, match=said):
        load_model(tmp_path, 128)


def test_a_head_that_is_not_there_is_told_how_to_tie(tmp_path):
    zoo.model("llama").save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors[HEAD]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        CheckpointError, match=r"the checkpoint lacks 1 tensors of LlamaForCausalLM, first lm_head"
    ) as error:
        load_model(tmp_path, 128)
    assert "set tie_word_embeddings: true in config.json" in error.value.hint
