"""Adapters merged into weights, beside peft: forward passes of its unmerged models in float32."""

import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from speccompile.compiler.models.load import load_model
from speccompile.errors import CheckpointError, SpeccompileError, UnsupportedModelError
from speccompile.recipe.adapter import adapted_folder
from tests.adapters import write
from tests.json_files import merge_json

LINEAR = ["q_proj", "v_proj", "down_proj"]
CASES = {
    "lora": ("llama", {"target_modules": LINEAR}),
    "all linear layers": ("qwen3", {"target_modules": "all-linear"}),
    "rank-stabilized, with patterns": (
        "llama",
        {"target_modules": LINEAR, "use_rslora": True, "rank_pattern": {"q_proj": 2, r"layers\.1\.mlp\.down_proj": 6},
         "alpha_pattern": {"v_proj": 16}},
    ),
    "dora": ("qwen3", {"target_modules": LINEAR, "use_dora": True}),
    "some layers": ("llama", {"target_modules": ["q_proj"], "layers_to_transform": [1], "layers_pattern": "layers"}),
    "a pattern of modules": ("llama", {"target_modules": r".*\.1\..*(q|k)_proj"}),
    "all biases": ("llama", {"target_modules": ["q_proj"], "bias": "all"}),
    "biases of its layers": ("llama", {"target_modules": ["q_proj"], "bias": "lora_only"}),
    "a bias of its own": ("llama", {"target_modules": ["q_proj"], "lora_bias": True}),
    "whole modules": ("llama", {"target_modules": ["q_proj"], "modules_to_save": ["lm_head", "embed_tokens", "norm"]}),
    "an embedding": ("llama", {"target_modules": ["q_proj", "embed_tokens"]}),
    "an embedding that is also the head": ("tied", {"target_modules": ["q_proj", "embed_tokens"]}),
    "a head that is also the embedding": ("tied", {"target_modules": ["lm_head"]}),
    "some tokens": ("llama", {"target_modules": ["q_proj"], "trainable_token_indices": [1, 5]}),
    "some tokens of a tied embedding": ("tied", {"target_modules": ["q_proj"], "trainable_token_indices": [1, 5]}),
    "conv1d": ("gpt2", {"target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True}),
    "conv1d, dora": ("gpt2", {"target_modules": ["c_attn"], "fan_in_fan_out": True, "use_dora": True}),
    "beside experts": ("moe", {"target_modules": ["q_proj", "o_proj"]}),
}  # fmt: skip


def change(folder, **keys):
    merge_json(folder / "adapter/adapter_config.json", keys)


def change_tensors(folder, act):
    path = folder / "adapter/adapter_model.safetensors"
    tensors = load_file(path)
    act(tensors)
    save_file(tensors, path)


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCOMPILE_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_peft(tmp_path, case):
    base, settings = CASES[case]
    theirs = write(tmp_path, base, **settings)
    plain = load_model(tmp_path / "base", 64)
    ours = load_model(adapted_folder(tmp_path / "base", tmp_path / "adapter"), 64)
    ids = torch.randint(0, 64, (2, 9), generator=torch.Generator().manual_seed(3))
    ids[0, :4] = torch.tensor([1, 5, 1, 2])
    with torch.no_grad():
        expected, found, before = theirs(ids).logits, ours(ids).logits, plain(ids).logits
    assert (expected - before).abs().max() > 1e-3, "the adapter changes nothing"
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_rows_do_not_depend_on_how_many_are_read(tmp_path):
    write(tmp_path, target_modules=["q_proj"], use_dora=True)
    model = load_model(adapted_folder(tmp_path / "base", tmp_path / "adapter"), 64)
    source = model.model.layers[0].self_attn.q_proj.weight.source
    whole = source.read_all()
    one_by_one = np.concatenate([source.rows(slice(row, row + 1)) for row in range(32)])
    assert whole.tobytes() == one_by_one.tobytes()


def test_a_folder_is_made_once_and_anew_after_a_change(tmp_path):
    write(tmp_path, target_modules=["q_proj"])
    first = adapted_folder(tmp_path / "base", tmp_path / "adapter")
    assert adapted_folder(tmp_path / "base", tmp_path / "adapter") == first
    change_tensors(tmp_path, lambda tensors: [tensor.mul_(2) for tensor in tensors.values()])
    assert adapted_folder(tmp_path / "base", tmp_path / "adapter") != first


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"peft_type": "LOHA"}, "peft_type: 'LOHA', expected LORA"),
        ({"peft_type": None}, "peft_type: None"),
        ({"task_type": "SEQ_CLS"}, "task_type: 'SEQ_CLS', expected CAUSAL_LM"),
        ({"layer_replication": [[0, 2], [1, 2]]}, "layer_replication"),
        ({"use_bdlora": {"nblocks": 2}}, "use_bdlora"),
        ({"use_qalora": True}, "use_qalora"),
        ({"arrow_config": {"top_k": 3}}, "arrow_config"),
        ({"kasa_config": {"beta": 1}}, "kasa_config"),
        ({"monteclora_config": {"num_samples": 2}}, "monteclora_config"),
        ({"velora_config": {"num_groups": 2}}, "velora_config"),
        ({"alora_invocation_tokens": [3]}, "alora_invocation_tokens"),
        ({"megatron_config": {"x": 1}}, "megatron_config"),
        ({"ensure_weight_tying": True}, "ensure_weight_tying"),
        ({"use_newer_kind": 1}, "use_newer_kind: 1, expected a key of PEFT"),
        ({"target_parameters": ["mlp.experts.down_proj"]}, "target_parameters"),
        *(({"init_lora_weights": name}, "init_lora_weights") for name in
          ("pissa", "pissa_niter_4", "olora", "corda", "eva", "lora_ga", "loftq")),
    ],
)  # fmt: skip
def test_what_cannot_be_merged_is_refused_by_name(tmp_path, keys, message):
    write(tmp_path, target_modules=["q_proj"])
    change(tmp_path, **keys)
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        adapted_folder(tmp_path / "base", tmp_path / "adapter")
    assert "merge_and_unload" in caught.value.hint


def _nan(tensors):
    next(iter(tensors.values()))[0, 0] = float("nan")


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (_nan, "no numbers"),
        (lambda tensors: tensors.update(other=torch.zeros(2)), "tensor 'other', expected names that begin with"),
        (lambda tensors: tensors.update({"base_model.model.x.lora_C.weight": torch.zeros(2)}), r"x\.lora_C\.weight"),
        (lambda tensors: tensors.pop(next(iter(tensors))), "expected lora_A.weight and lora_B.weight"),
        (lambda tensors: tensors.update({key: each[:2].clone() for key, each in tensors.items() if "lora_A" in key}),
         "the rank 4"),
        (lambda tensors: tensors.update({key: torch.zeros(5, 4) for key in tensors if "lora_B" in key}),
         r"q_proj for \[5, 32\], expected \[32, 32\]"),
    ],
)  # fmt: skip
def test_files_that_do_not_fit_are_refused(tmp_path, act, message):
    write(tmp_path, target_modules=["q_proj"])
    change_tensors(tmp_path, act)
    with pytest.raises(SpeccompileError, match=message) as caught:
        adapted_folder(tmp_path / "base", tmp_path / "adapter")
    assert caught.value.hint
    assert not list((tmp_path / "cache").rglob("merged_adapter.json"))


def test_folders_that_are_no_adapters(tmp_path):
    write(tmp_path, target_modules=["q_proj"])
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    for folder, found in ((base, "a folder without adapter_config.json"), (tmp_path / "none", "nothing")):
        with pytest.raises(CheckpointError, match=f"received {found}, expected an adapter of PEFT"):
            adapted_folder(base, folder)
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    with pytest.raises(CheckpointError, match=r"adapter_model\.bin \(pickle files can run code"):
        adapted_folder(base, adapter)


def test_an_adapter_of_another_model_is_refused_when_it_is_loaded(tmp_path):
    write(tmp_path, target_modules=["q_proj"])

    def rename(tensors):
        for key in list(tensors):
            tensors[key.replace("layers.1", "layers.7")] = tensors.pop(key)

    change_tensors(tmp_path, rename)
    with pytest.raises(CheckpointError, match=r"the module model\.layers\.7\.self_attn\.q_proj"):
        load_model(adapted_folder(tmp_path / "base", tmp_path / "adapter"), 64)


def test_the_base_may_lie_beside_an_adapter(tmp_path):
    write(tmp_path, target_modules=["q_proj"])
    for file in (tmp_path / "adapter").iterdir():
        shutil.copy(file, tmp_path / "base")
    assert (adapted_folder(tmp_path / "base", tmp_path / "base") / "config.json").is_file()
