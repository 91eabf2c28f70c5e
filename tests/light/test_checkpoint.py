"""Checkpoint folders: facts, and files that are missing, truncated or corrupt."""

import json
import struct

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from speccompile.compiler.checkpoints.facts import read_checkpoint
from speccompile.compiler.checkpoints.weights import read_tensors, stored_tensors
from speccompile.errors import CheckpointError, UnsupportedModelError


@pytest.fixture
def folder(tmp_path, make_checkpoint):
    return make_checkpoint(tmp_path / "model")


def shard(folder):
    """Turn the weights of a checkpoint into two shards and an index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    weight_map = {name: f"model-0000{number}-of-00002.safetensors" for number, name in enumerate(sorted(tensors), 1)}
    for name, file in weight_map.items():
        save_file({name: tensors[name]}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return weight_map


def write_safetensors(path, header, data_bytes):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(data_bytes))


def test_facts_of_a_whole_checkpoint(folder):
    files, facts = read_checkpoint(folder)
    assert [str(file) for file in files] == ["config.json", "model.safetensors", "tokenizer.json"]
    assert (facts.architecture, facts.model_type) == ("LlamaForCausalLM", "llama")
    assert (facts.vocabulary_size, facts.positions, facts.eos_token_ids) == (8, 64, (1,))
    assert facts.weight_bytes == 8 * 4 * 4 + 4 * 2
    assert facts.tokenizer


def test_the_generation_config_says_what_ends_a_text(folder):
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 5]}')
    assert read_checkpoint(folder)[1].eos_token_ids == (1, 5)
    (folder / "generation_config.json").write_text('{"eos_token_id": [-1, 5]}')  # -1 is no token
    assert read_checkpoint(folder)[1].eos_token_ids == (5,)
    (folder / "generation_config.json").write_text('{"eos_token_id": null}')
    assert read_checkpoint(folder)[1].eos_token_ids == (1,)


@pytest.mark.parametrize(
    ("config", "positions"),
    [
        ({"max_position_embeddings": None, "n_positions": 32, "n_ctx": 16}, 32),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}}, 256),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.5}}, 160),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 16}}, 64),
        ({"rope_parameters": {"rope_type": "yarn", "factor": float("inf")}}, 64),
        ({"rope_parameters": {"rope_type": "yarn", "original_max_position_embeddings": 16}}, 64),
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64}}, 512),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 256),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, 64),
        ({"max_position_embeddings": None, "n_ctx": 16}, 16),
        ({"max_position_embeddings": None}, None),
    ],
)
def test_positions_go_by_many_names(tmp_path, make_checkpoint, config, positions):
    assert read_checkpoint(make_checkpoint(tmp_path / "model", **config))[1].positions == positions


@pytest.mark.parametrize(
    ("config", "layers"),
    [({"num_hidden_layers": 4}, 4), ({"n_layer": 3}, 3), ({"n_layers": 2}, 2), ({"num_layers": 0}, None), ({}, None)],
)
def test_layers_go_by_many_names(tmp_path, make_checkpoint, config, layers):
    assert read_checkpoint(make_checkpoint(tmp_path / "model", **config))[1].layers == layers


def test_sharded_weights_are_all_read(folder):
    weight_map = shard(folder)
    files, facts = read_checkpoint(folder)
    assert [str(file) for file in files[1:-1]] == ["model.safetensors.index.json", *weight_map.values()]
    assert facts.weight_bytes == 8 * 4 * 4 + 4 * 2


def test_a_folder_without_config_is_refused(folder):
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"model: received a folder without config\.json, expected a model"):
        read_checkpoint(folder)


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe{}", b""])
def test_a_config_that_is_not_json_is_refused(folder, content):
    (folder / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"config\.json: received text that is not JSON, expected a JSON object"):
        read_checkpoint(folder)


def test_a_config_of_another_type_is_refused(folder):
    (folder / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"config\.json: received JSON of type list, expected a JSON object"):
        read_checkpoint(folder)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"architectures": None}, "received architectures: None, expected a list"),
        ({"architectures": []}, r"received architectures: \[\], expected a list"),
        ({"model_type": None}, "received model_type: None, expected text"),
        ({"vocab_size": None}, "received vocab_size: None, expected a whole number above zero"),
        ({"vocab_size": 0}, "received vocab_size: 0, expected a whole number above zero"),
        ({"eos_token_id": -5}, "received eos_token_id: -5, expected a token id, a list of token ids or null"),
        ({"eos_token_id": [99999999999]}, r"received eos_token_id: \[99999999999\], expected a token id, a list of"),
        ({"eos_token_id": "</s>"}, "received eos_token_id: '</s>', expected a token id, a list of token ids or null"),
    ],
)
def test_a_config_with_a_wrong_value_is_refused(tmp_path, make_checkpoint, config, message):
    with pytest.raises(CheckpointError, match=rf"config\.json: {message}") as caught:
        read_checkpoint(make_checkpoint(tmp_path / "model", **config))
    assert caught.value.hint


def test_a_multimodal_checkpoint_is_refused(tmp_path, make_checkpoint):
    folder = make_checkpoint(tmp_path / "model", vocab_size=None, text_config={"vocab_size": 8})
    with pytest.raises(UnsupportedModelError, match=r"received a multimodal checkpoint .* expected a language model"):
        read_checkpoint(folder)


def test_weights_that_are_missing_or_pickled_are_refused(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"received a folder without weights, expected model\.safe"):
        read_checkpoint(folder)
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    with pytest.raises(CheckpointError, match=r"received only pytorch_model\.bin \(pickle files can run") as caught:
        read_checkpoint(folder)
    assert "convert" in caught.value.hint


@pytest.mark.parametrize("kept", [0, 5, 60, -1])
def test_truncated_weights_are_refused(folder, kept):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(CheckpointError, match=r"model\.safetensors: truncated or corrupt: received"):
        read_checkpoint(folder)


def entry(dtype="F32", shape=(2,), data_offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(data_offsets)}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"{nonsense", "received a header that is not JSON, expected a JSON object"),
        (b"[1, 2]", "received a header that is not JSON, expected a JSON object"),
        ({"a": entry(dtype="F33")}, "received tensor 'a' as .*F33.* expected a known dtype, a shape and two offsets"),
        ({"a": entry(shape=(-2,))}, "received tensor 'a' as .* expected a known dtype"),
        ({"a": entry(shape=("x",))}, "received tensor 'a' as .* expected a known dtype"),
        ({"a": 3}, "received tensor 'a' as 3, expected a known dtype"),
        ({"a": entry(shape=(3,))}, r"received tensor 'a' in 8 bytes, expected 12 for F32 \[3\]"),
        ({"a": entry(data_offsets=(8, 0))}, "received tensor 'a' in -8 bytes, expected 8"),
        ({"a": entry(data_offsets=(4, 12))}, "received tensor 'a' at offset 4, expected offset 0, where"),
        ({"a": entry(), "b": entry(data_offsets=(4, 12))}, "received tensor 'b' at offset 4, expected offset 8"),
        ({"a": entry(), "b": entry(data_offsets=(8, 16))}, "received 12 bytes of tensor data, expected 16 bytes"),
        ({"a": entry()}, "received 12 bytes of tensor data, expected 8 bytes, as its header says"),
    ],
)
def test_corrupt_headers_are_refused(tmp_path, header, message):
    path = tmp_path / "model.safetensors"
    write_safetensors(path, header, 12)
    with pytest.raises(CheckpointError, match=message) as caught:
        read_tensors(path)
    assert caught.value.hint == "copy or download the file again"


def test_a_header_longer_than_its_file_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 2**60) + b"{}")
    with pytest.raises(CheckpointError, match="a file of 10 bytes with a header of 1152921504606846976, expected the"):
        read_tensors(path)


def test_headers_agree_with_what_safetensors_writes(tmp_path):
    tensors = {"b": np.zeros((3, 5), np.int8), "a": np.zeros((), np.float64), "empty": np.zeros((0, 4), np.float32)}
    save_file(tensors, tmp_path / "x.safetensors", metadata={"format": "np"})
    found = {name: (each.size, each.shape) for name, each in read_tensors(tmp_path / "x.safetensors").items()}
    assert found == {name: (tensor.nbytes, tensor.shape) for name, tensor in tensors.items()}


def test_a_missing_shard_is_refused(folder):
    weight_map = shard(folder)
    (folder / weight_map["norm.weight"]).unlink()
    with pytest.raises(CheckpointError, match=r"received 1 of 2 shards, expected all .*: model-00002-of.* is missing"):
        read_checkpoint(folder)


def test_a_shard_without_its_tensor_is_refused(folder):
    weight_map = shard(folder)
    save_file({"other": np.zeros(2, np.float32)}, folder / weight_map["norm.weight"])
    with pytest.raises(CheckpointError, match=r"received no tensor 'norm\.weight', expected it there, as model\.safe"):
        read_checkpoint(folder)


@pytest.mark.parametrize("index", ["{", "{}", "[]", '{"weight_map": 3}', '{"weight_map": {"a": []}}'])
def test_an_index_that_is_none_is_refused(folder, index):
    shard(folder)
    (folder / "model.safetensors.index.json").write_text(index)
    with pytest.raises(CheckpointError, match="received no map of tensors to files, expected"):
        read_checkpoint(folder)


@pytest.mark.parametrize("name", ["../model.safetensors", "sub/model.safetensors", 3])
def test_an_index_that_leaves_its_folder_is_refused(folder, name):
    shard(folder)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(CheckpointError, match=r"received the shard .*, expected a file name without folders"):
        read_checkpoint(folder)


def test_a_tensor_in_two_shards_is_refused(folder):
    weight_map = shard(folder)
    both = {"norm.weight": np.zeros(4, np.float16), "embed.weight": np.zeros((8, 4), np.float32)}
    save_file(both, folder / weight_map["embed.weight"])
    with pytest.raises(CheckpointError, match=r"received tensor 'norm\.weight' in model-00001.* and in model-00002"):
        read_checkpoint(folder)


def test_an_index_with_the_shards_exchanged_is_refused(folder):
    weight_map = shard(folder)
    exchanged = dict(zip(weight_map, reversed(weight_map.values()), strict=True))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": exchanged}))
    with pytest.raises(
        CheckpointError, match=r"00002.*received no tensor 'embed\.weight', expected it there, as model"
    ):
        read_checkpoint(folder)


def test_what_transformers_tolerates_in_an_index_is_tolerated(folder):
    """Accept a wrong total_size, which many published ones have, and tensors of shards that the index does not name."""
    weight_map = shard(folder)
    save_file(
        {"embed.weight": np.zeros((8, 4), np.float32), "more": np.zeros(2, np.float32)},
        folder / weight_map["embed.weight"],
    )
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert read_checkpoint(folder)[1].weight_bytes == 8 * 4 * 4 + 4 * 2 + 2 * 4
    assert stored_tensors(folder)["more"].file == weight_map["embed.weight"]


def test_a_shard_without_a_byte_is_refused(folder):
    (folder / shard(folder)["norm.weight"]).write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"00002-of-.*received a file of 0 bytes with a header of 0, expected"):
        read_checkpoint(folder)


def test_names_that_stand_twice_are_refused(folder):
    header = (
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}'
    )
    write_safetensors(folder / "model.safetensors", header, 8)
    with pytest.raises(
        CheckpointError, match=r"model\.safetensors: .* received 'a' twice in its header, expected each"
    ):
        read_checkpoint(folder)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "x.safetensors", "a": "y.safetensors"}}')
    with pytest.raises(CheckpointError, match=r"index\.json: .* received 'a' twice, expected each name once"):
        read_checkpoint(folder)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 4976698672\n"


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model-00002-of-00002.safetensors"])
def test_a_file_that_git_lfs_did_not_fetch_is_refused(folder, file):
    shard(folder)
    (folder / file).write_bytes(POINTER)
    with pytest.raises(CheckpointError, match=rf"{file}: received a pointer of Git LFS \(135 bytes\), exp") as caught:
        read_checkpoint(folder)
    assert caught.value.hint == f"run `git lfs pull` in {folder}"


@pytest.mark.parametrize(
    "file",
    ["config.json", "generation_config.json", "tokenizer.json", "model.safetensors", "model.safetensors.index.json"],
)
def test_a_link_that_leads_nowhere_is_refused(folder, file):
    """Refuse a link into a copy of the Hub's cache without its blobs."""
    if file.endswith("index.json"):
        shard(folder)
    (folder / file).unlink(missing_ok=True)
    (folder / file).symlink_to("../../blobs/0123")
    with pytest.raises(CheckpointError, match=rf"{file}: received a link to \.\./\.\./blobs/0123, where nothing is"):
        read_checkpoint(folder)


def test_a_shard_whose_link_leads_nowhere_is_refused(folder):
    name = shard(folder)["norm.weight"]
    (folder / name).unlink()
    (folder / name).symlink_to("blob")
    with pytest.raises(CheckpointError, match=r"00002-of-00002\.safetensors: received a link to blob") as caught:
        read_checkpoint(folder)
    assert "cp -L" in caught.value.hint


def test_places_agree_with_what_safetensors_reads(folder):
    shard(folder)
    for name, tensor in stored_tensors(folder).items():
        expected = load_file(folder / tensor.file)[name]
        data = (folder / tensor.file).read_bytes()[tensor.offset : tensor.offset + tensor.size]
        assert np.array_equal(np.frombuffer(data, expected.dtype).reshape(tensor.shape), expected)


def llama(folder, vocabulary=8, layers=2):
    """Return the tensors of a model whose names say what they are."""
    tensors = {f"model.layers.{layer}.mlp.up_proj.weight": np.zeros((4, 4), np.float32) for layer in range(layers)}
    save_file(
        tensors | {"model.embed_tokens.weight": np.zeros((vocabulary, 4), np.float32)}, folder / "model.safetensors"
    )
    return folder


def test_a_table_that_is_not_the_config_s_is_refused(tmp_path, make_checkpoint):
    folder = llama(make_checkpoint(tmp_path / "model"), vocabulary=9)
    with pytest.raises(
        CheckpointError,
        match=r"'model\.embed_tokens\.weight' of shape \[9, 4\], expected \[8, 4\], a row for each token",
    ):
        read_checkpoint(folder)


@pytest.mark.parametrize(("layers", "config"), [(2, 2), (2, None)])
def test_layers_that_the_config_says_are_taken(tmp_path, make_checkpoint, layers, config):
    folder = llama(make_checkpoint(tmp_path / "model", num_hidden_layers=config), layers=layers)
    assert read_checkpoint(folder)[1].layers == config


def test_fewer_layers_than_the_config_says_are_refused(tmp_path, make_checkpoint):
    folder = llama(make_checkpoint(tmp_path / "model", num_hidden_layers=3))
    with pytest.raises(
        CheckpointError, match=r"received no tensor of layer 2, expected layers 0 to 2, as num_hidden_layers: 3"
    ):
        read_checkpoint(folder)
