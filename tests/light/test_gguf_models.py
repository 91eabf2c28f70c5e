"""Models in GGUF files: weights, config and logits against transformers on the same weights, and what is refused."""

import json

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from speccompile.compiler.checkpoints.facts import read_checkpoint
from speccompile.compiler.checkpoints.gguf.conversion import convert
from speccompile.compiler.models.load import load_model, read_model
from speccompile.compiler.weights.checkpoint import checkpoint_sources
from speccompile.drafters.find import find_carried
from speccompile.errors import CheckpointError, SpeccompileError, UnsupportedModelError
from speccompile.recipe.gguf import gguf_folder
from speccompile.recipe.model_recipe import make_model_recipe
from speccompile.recipe.model_request import ModelRequest
from tests.gguf_files import MODELS, describe, qwen_with_mtp, save, save_reference, write_gguf
from tests.gguf_writer import write_parts

QUANTIZED = ("Q8_0", "Q4_0", "Q5_1", "F16", "BF16", "Q4_1", "Q5_0")


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return save(tmp_path_factory.mktemp("llama") / "model", "llama")


def logits(folder):
    with torch.no_grad():
        return load_model(folder, 64)(torch.arange(3, 51)[None]).logits


@pytest.mark.parametrize("name", MODELS)
def test_weights_and_logits_are_those_of_transformers(name, tmp_path):
    folder = save(tmp_path / "model", name.split()[0], **MODELS[name])
    described, stored = describe(folder, tmp_path / "model.gguf", types=QUANTIZED)
    reference = save_reference(folder, stored, tmp_path / "reference")
    (_, own), (_, other) = read_model(described), read_model(reference)
    assert own.keys() == other.keys()
    for key in own:
        found, expected = own[key].source.read_all(), other[key].source.read_all()
        np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32), key)
    assert torch.equal(logits(described), logits(reference))
    _, facts = read_checkpoint(described)
    assert facts.quantization.startswith("gguf: ")
    assert facts.vocabulary_size == 96


def eager(folder, length):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        return model(torch.arange(3, 3 + length)[None]).logits


def test_longrope_is_that_of_transformers_on_both_sides_of_the_original_length(tmp_path):
    """Phi 3's long models: LongRopeModel of convert_hf_to_gguf.py writes two tensors, the factor, and no type."""
    lists = {name: [1 + scale * index for index in range(8)] for name, scale in (("short", 0.1), ("long", 1.5))}
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 32}
    rope |= {f"{name}_factor": factors for name, factors in lists.items()}
    folder = save(tmp_path / "model", "phi3", original_max_position_embeddings=32, rope_parameters=rope)
    tensors = {f"rope_factors_{name}.weight": np.array(each, np.float32) for name, each in lists.items()}
    factor = (1 + np.log(4) / np.log(32)) ** 0.5
    write_gguf(folder, tmp_path / "model.gguf", tensors=tensors, keys=[("add_rope_scaling_attn_factors", factor)])
    described = gguf_folder(tmp_path / "model.gguf")
    for max_length, length in ((32, 32), (64, 48)):
        with torch.no_grad():
            found = load_model(described, max_length)(torch.arange(3, 3 + length)[None]).logits
        torch.testing.assert_close(found, eager(folder, length), rtol=0, atol=2e-6)
    plan = make_model_recipe(ModelRequest(str(tmp_path / "model.gguf"), "none")).plan
    assert (plan.max_length, plan.notes) == (32, ())


def test_layers_are_recurrent_where_a_list_says_so(tmp_path):
    kinds = ["full_attention", "linear_attention", "linear_attention", "full_attention"]
    folder = save(tmp_path / "model", "qwen3_5_text", **MODELS["qwen3_5_text"], layer_types=kinds)

    def add_list(writer):
        writer.add_tokenizer_model("none")
        writer.add_array("qwen35.attention.recurrent_layers", [kind == "linear_attention" for kind in kinds])

    described, _ = describe(folder, tmp_path / "model.gguf", tokenizer=add_list)
    torch.testing.assert_close(logits(described), eager(folder, 48), rtol=0, atol=2e-5)


def test_heads_that_do_not_divide_the_width_are_a_mistral_s(tmp_path):
    shape = {"num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 16, "sliding_window": None}
    folder = save(tmp_path / "model", "mistral", **shape)
    described, _ = describe(folder, tmp_path / "model.gguf")
    torch.testing.assert_close(logits(described), eager(folder, 48), rtol=0, atol=2e-6)


def test_rows_are_read_alone(llama, tmp_path):
    described, _ = describe(llama, tmp_path / "model.gguf", types=("Q4_0",))
    for tensor in read_model(described)[1].values():
        source = tensor.source
        whole = source.read_all()
        for part in (slice(0, 1), slice(1, len(whole)), slice(len(whole) // 3, len(whole) // 2)):
            np.testing.assert_array_equal(source.rows(part), whole[part])
            np.testing.assert_array_equal(source.narrow(part).read_all(), whole[part])


def llama_3_factors(size, theta, factor=8.0, low=1.0, high=4.0, original=32):
    """Return factors of frequencies as LlamaModel.generate_extra_tensors of convert_hf_to_gguf.py makes them."""
    factors = []
    for frequency in 1.0 / theta ** (torch.arange(0, size, 2).float() / size):
        length = 2 * np.pi / frequency
        smooth = (original / length - low) / (high - low)
        short, long = length < original / high, length > original / low
        factors.append(1.0 if short else factor if long else 1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def test_factors_of_frequencies_are_those_of_llama_3(tmp_path):
    rope = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32}  # fmt: skip
    folder = save(tmp_path / "model", "llama", rope_parameters=rope)
    described, _ = describe(folder, tmp_path / "model.gguf", rope_freqs=llama_3_factors(16, 1e4))
    torch.testing.assert_close(logits(described), logits(folder), rtol=0, atol=2e-5)
    plain, _ = describe(folder, tmp_path / "plain.gguf")
    assert (logits(plain) - logits(folder)).abs().max() > 1e-2


@pytest.mark.parametrize("split", [4, 7])
def test_a_split_model_is_the_whole_one(llama, tmp_path, split):
    whole, _ = describe(llama, tmp_path / "whole.gguf")
    (tmp_path / "parts").mkdir()
    write_gguf(llama, tmp_path / "parts" / "model.gguf", split=split)
    described = gguf_folder(tmp_path / "parts")
    files, _ = read_checkpoint(described)
    assert sum(file.suffix == ".gguf" for file in files) > 1
    assert torch.equal(logits(described), logits(whole))


REFUSED = [
    ({"keys": [("add_expert_count", 8)]}, "llama.expert_count: received 8, expected 0"),
    ({"keys": [("add_logit_scale", 2.0)]}, "the key 'llama.logit_scale' (2.0)"),
    ({"keys": [("add_nextn_predict_layers", 1)]}, "the key 'llama.nextn_predict_layers' (1)"),
    ({"keys": [("add_rope_scaling_type", gguf.RopeScalingType.LONGROPE)]}, "received 'longrope'"),
    ({"keys": [("add_causal_attention", False)]}, "llama.attention.causal: received False"),
    ({"keys": [("add_type", "adapter")]}, "general.type 'adapter'"),
    ({"tensors": {"blk.0.nextn.eh_proj.weight": np.zeros((4, 4), np.float32)}}, "tensor 'blk.0.nextn.eh_proj.weight'"),
    ({"tensors": {"blk.2.attn_q.weight": np.zeros((4, 4), np.float32)}}, "'blk.2.attn_q.weight', expected those of"),
    ({"tensors": {"rope_factors_long.weight": np.ones(8, np.float32)}}, "no tensor 'rope_factors_short.weight'"),
    ({"rope_freqs": [1.0, 2.0]}, "tensor 'rope_freqs.weight' of shape [2]"),
    ({"rope_freqs": [0.0] * 8}, "factors such as 0.0"),
    ({"tokenizer": lambda writer: writer.add_tokenizer_model("t5")}, "tokenizer.ggml.model: received 't5'"),
    ({"tokenizer": lambda writer: writer.add_string("tokenizer.ggml.odd", "x")}, "'tokenizer.ggml.odd'"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_would_change_the_model_is_refused_by_name(llama, tmp_path, changes, message):
    write_gguf(llama, tmp_path / "model.gguf", **changes)
    with pytest.raises(SpeccompileError) as refused:
        gguf_folder(tmp_path / "model.gguf")
    assert message in str(refused.value)


def test_experts_of_other_shapes_are_refused(tmp_path):
    folder = save(tmp_path / "model", "gpt_oss", **MODELS["gpt_oss"])
    write_gguf(folder, tmp_path / "model.gguf", keys=[("add_expert_count", 5)])
    with pytest.raises(CheckpointError, match=r"ffn_\w+_exps.\w+' of shape \[4, .*expected \[5, "):
        gguf_folder(tmp_path / "model.gguf")


def write_only(file, architecture, *keys):
    writer = gguf.GGUFWriter(file, architecture)
    for method, value in keys:
        getattr(writer, method)(value)
    writer.add_tensor("token_embd.weight", np.zeros((8, 32), np.float32))
    write_parts(writer)


def test_other_architectures_are_refused_by_name(tmp_path):
    write_only(tmp_path / "model.gguf", "rwkv7")
    with pytest.raises(UnsupportedModelError, match=r"general.architecture 'rwkv7', expected .*llama, qwen2"):
        convert((tmp_path / "model.gguf",))


def test_an_assistant_is_refused_by_name(tmp_path):
    write_only(tmp_path / "model.gguf", "gemma4-assistant")
    with pytest.raises(UnsupportedModelError, match=r"general.architecture 'gemma4-assistant'") as refused:
        convert((tmp_path / "model.gguf",))
    assert refused.value.hint.startswith("use the head's safetensors")


@pytest.mark.parametrize(("keys", "message"), [
    ([("add_head_count", 0)], "llama.attention.head_count: received 0, expected a whole number above 0"),
    ([("add_head_count", [4, 8])], r"llama.attention.head_count: received \[4, 8\], expected one number for all"),
    ([("add_vocab_size", 9)], "llama.vocab_size: received 9, expected 8"),
    ([("add_embedding_length", 64)], "llama.embedding_length: received 64, expected 32"),
    ([("add_head_count", 4)], "llama.block_count: received nothing"),
    ([("add_head_count", 4), ("add_block_count", 2**31), ("add_layer_norm_rms_eps", 1e-5), ("add_context_length", 64),
      ("add_feed_forward_length", 64)], "no tensor 'blk.0.attn_k.weight'"),
    ([("add_head_count", 4), ("add_block_count", 1), ("add_layer_norm_rms_eps", float("nan"))], "a finite number"),
])  # fmt: skip
def test_sizes_that_cannot_be_are_refused(tmp_path, keys, message):
    write_only(tmp_path / "model.gguf", "llama", *keys)
    with pytest.raises(SpeccompileError, match=message):
        convert((tmp_path / "model.gguf",))


def test_another_file_has_another_folder(llama, tmp_path):
    first, _ = describe(llama, tmp_path / "model.gguf")
    assert gguf_folder(tmp_path / "model.gguf") == first
    (tmp_path / "model.gguf").unlink()
    second, _ = describe(llama, tmp_path / "model.gguf", types=("Q8_0",))
    assert second != first
    assert json.loads((second / "config.json").read_text())["model_type"] == "llama"


def test_a_link_to_a_file_of_another_name_is_read(llama, tmp_path):
    """Read through a link, as the Hub's cache has them."""
    write_gguf(llama, tmp_path / "blob")
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "model.gguf").symlink_to(tmp_path / "blob")
    for path in (tmp_path / "snapshot", tmp_path / "snapshot" / "model.gguf"):
        assert torch.equal(logits(gguf_folder(path)), logits(llama))


def test_folders_without_gguf_are_left_alone(llama, tmp_path):
    assert gguf_folder(llama) is None
    assert gguf_folder(tmp_path) is None
    assert gguf_folder(tmp_path / "nothing.gguf") is None


def test_a_cache_that_cannot_be_written_is_named(llama, tmp_path, monkeypatch):
    write_gguf(llama, tmp_path / "model.gguf")
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "model.gguf"))
    with pytest.raises(CheckpointError, match="cannot be written"):
        gguf_folder(tmp_path / "model.gguf")


def test_layers_of_multi_token_prediction_are_read_as_the_target_s(tmp_path):
    file, stored = qwen_with_mtp(tmp_path)
    described = gguf_folder(file)
    kind, layout, _ = find_carried(described)
    assert (kind, layout.name) == ("mtp", "Qwen 3.5")
    own = checkpoint_sources(described).weights
    assert own.keys() == stored.keys()
    for name, expected in stored.items():
        np.testing.assert_array_equal(own[name].read_all(), expected, name)
    config = json.loads((described / "config.json").read_text())
    assert (config["num_hidden_layers"], config["mtp_num_hidden_layers"]) == (2, 1)


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("qwen3_5_text", [("add_nextn_predict_layers", 4)], "qwen35.nextn_predict_layers: received 4, expected fewer"),
        ("qwen3_5_text", [("add_ssm_group_count", 4)], "qwen35.ssm.inner_size: received 192, expected a multiple of 6"),
        ("qwen3_5_text", [("add_rope_dimension_sections", [1, 1])], "qwen35.rope.dimension_sections: received"),
        ("lfm2", [("add_head_count_kv", [0, 2, 4])], "lfm2.attention.head_count_kv: received [0, 2, 4], expected one"),
        (
            "lfm2",
            [("add_head_count_kv", [0, 2])],
            "lfm2.attention.head_count_kv: received '2 values', expected 3, one for",
        ),
        ("lfm2", [("add_head_count_kv", [2, 2, 0])], "tensor 'blk.0.shortconv.conv.weight', expected those of"),
    ],
)
def test_layers_of_several_kinds_that_cannot_be_are_refused(tmp_path, name, keys, message):
    folder = save(tmp_path / "model", name, **MODELS[name])
    write_gguf(folder, tmp_path / "model.gguf", keys=keys)
    with pytest.raises(SpeccompileError) as refused:
        gguf_folder(tmp_path / "model.gguf")
    assert message in str(refused.value)
