"""Adapters in slots: what is read of PEFT's files, where it is written, and what is refused."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from speccompile.compiler.models.load import load_model
from speccompile.compiler.step.low_rank import AdapterSlots
from speccompile.contract import Graph, Tensor
from speccompile.errors import CheckpointError, RecipeError, SpeccompileError, UnsupportedModelError, UsageError
from speccompile.plan.adapters import AdaptersPlan
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime.adapters import Adapters, read_named
from speccompile.runtime.rounds.resume import resume_slot
from speccompile.runtime.rounds.slots import Slot, SlotContent
from tests.adapters import write

MODULES = ("q_proj", "down_proj")


class Buffers:
    """An engine that has buffers alone."""

    def __init__(self):
        self.arrays = {}

    def host_view(self, name, shape):
        return self.arrays.setdefault(name, np.zeros(shape, np.float32))


def slots_of(folder):
    """Return slots for the model in <folder>/base, and their buffers."""
    shapes = AdapterSlots(8, MODULES, 2).shapes(load_model(folder / "base", 64))
    tensors = tuple(Tensor(name, "float32", shape, name, "io") for name, shape in shapes.items())
    engine = Buffers()
    return Adapters(engine, [Graph("verify", tensors, ())]), engine.arrays


@pytest.mark.parametrize(
    ("base", "settings"),
    [
        ("llama", {}),
        ("llama", {"use_rslora": True, "rank_pattern": {"q_proj": 2}, "alpha_pattern": {"down_proj": 16}}),
        ("llama", {"layers_to_transform": [1]}),
    ],
)
def test_the_product_of_a_slot_is_what_peft_adds(tmp_path, base, settings):
    model = write(tmp_path, base, target_modules=list(MODULES), **settings)
    slots, arrays = slots_of(tmp_path)
    slots.load("one", tmp_path / "adapter")
    for name, module in model.base_model.model.named_modules():
        if not name.endswith(MODULES):
            continue
        a, b = (arrays[f"lora.{name}{part}"] for part in (".a", ".b"))
        theirs = module.get_delta_weight("default").detach().numpy() if hasattr(module, "lora_A") else 0.0
        np.testing.assert_allclose((a[1].T @ b[1]).T, theirs, rtol=1e-5, atol=1e-7)
        assert not a[[0, 2]].any()
        assert not b[[0, 2]].any()


def test_slots_are_taken_freed_and_taken_again(tmp_path):
    write(tmp_path, target_modules=["q_proj"])
    slots, arrays = slots_of(tmp_path)
    slots.load("one", tmp_path / "adapter")
    slots.load("two", tmp_path / "adapter")
    one = slots.find("one")
    assert (one.slot, slots.find("two").slot, slots.names) == (1, 2, ["one", "two"])
    assert one.key == slots.find("two").key, "equal numbers may share what was read"
    with pytest.raises(UsageError, match=r"all 2 slots are taken \(one, two\), expected a free one"):
        slots.load("three", tmp_path / "adapter")
    slots.unload("one")
    with pytest.raises(UsageError, match="'one': it was unloaded before this generation began"):
        slots.check(one)
    write(tmp_path, target_modules=["down_proj"])
    slots.load("three", tmp_path / "adapter")
    assert slots.find("three").slot == 1
    assert not arrays["lora.model.layers.0.self_attn.q_proj.a"][1].any(), "the numbers of the adapter before are gone"
    assert slots.find("three").key != one.key


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"use_dora": True}, "received DoRA for model.layers.0.self_attn.q_proj, expected LoRA of linear layers"),
        ({"lora_bias": True}, "received a bias for"),
        ({"modules_to_save": ["lm_head"]}, "received trained weights of lm_head.weight, expected low-rank changes"),
        ({"bias": "all"}, "received trained weights of .*bias"),
        ({"target_modules": ["q_proj", "embed_tokens"]}, "received an embedding for model.embed_tokens"),
        ({"target_modules": ["q_proj", "k_proj"]}, "a change of .*k_proj, expected changes of .*: q_proj, down_proj"),
        ({"target_modules": ["q_proj"], "trainable_token_indices": [1]}, "trained weights of model.embed_tokens"),
        ({"rank_pattern": {"q_proj": 9}}, "received rank 9 for .*q_proj, expected at most 8, as the bundle has"),
    ],
)
def test_what_cannot_be_chosen_at_run_time_is_refused_by_name(tmp_path, settings, message):
    write(tmp_path, **({"target_modules": ["q_proj"]} | settings))
    slots, arrays = slots_of(tmp_path)
    with pytest.raises(UnsupportedModelError, match=message) as caught:
        slots.load("one", tmp_path / "adapter")
    assert caught.value.hint
    assert slots.names == []
    assert not any(array.any() for array in arrays.values())


def _nan(tensors):
    list(tensors.values())[-1][0, 0] = float("nan")


def _overflow(tensors):
    for name, tensor in tensors.items():
        tensors[name] = tensor * 3e38 if "lora_B" in name else tensor


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (_nan, "infinite or no numbers, expected finite ones"),
        (_overflow, "infinite or no numbers"),
        (lambda tensors: tensors.update({key: torch.zeros(5, 4) for key in tensors if "lora_B" in key}),
         "from 32 to 5 numbers, expected 32 to 32, as this bundle's target has"),
        (lambda tensors: tensors.update(other=torch.zeros(2)), "tensor 'other'"),
    ],
)  # fmt: skip
def test_files_that_do_not_fit_change_nothing(tmp_path, act, message):
    write(tmp_path, target_modules=["q_proj"], lora_alpha=64)
    path = tmp_path / "adapter/adapter_model.safetensors"
    tensors = load_file(path)
    act(tensors)
    save_file(tensors, path)
    slots, arrays = slots_of(tmp_path)
    with pytest.raises(CheckpointError, match=message):
        slots.load("one", tmp_path / "adapter")
    assert not any(array.any() for array in arrays.values())


def test_names(tmp_path):
    write(tmp_path, target_modules=["q_proj"])
    slots, _ = slots_of(tmp_path)
    for name in ("", "a b", "../x", 3, "x" * 65, None):
        with pytest.raises(UsageError, match="adapter: received the name"):
            slots.load(name, tmp_path / "adapter")
    slots.load("one", tmp_path / "adapter")
    with pytest.raises(UsageError, match="adapter 'one': it is loaded already"):
        slots.load("one", tmp_path / "adapter")
    with pytest.raises(UsageError, match=r"received 'two', expected the name of a loaded adapter \('one'\)"):
        slots.find("two")
    with pytest.raises(UsageError, match="received None, expected the name of a loaded adapter"):
        slots.unload(None)
    with pytest.raises(UsageError, match="received 2 names for 3 prompts"):
        slots.per_prompt(["one", None], 3)
    assert [each and each.name for each in slots.per_prompt(["one", None], 2)] == ["one", None]
    without = Adapters(Buffers(), [])
    with pytest.raises(UsageError, match="received it for a bundle without slots for adapters"):
        without.load("one", tmp_path / "adapter")
    with pytest.raises(UsageError, match="none is loaded"):
        without.find("one")


@pytest.mark.parametrize(("given", "message"), [(["x"], "no NAME=FOLDER"), (["a=b", "a=c"], "the name twice")])
def test_options_that_are_no_adapters(given, message):
    assert read_named(["a=b=c"])["a"].as_posix() == "b=c"
    with pytest.raises(UsageError, match=message):
        read_named(given)


def test_a_text_is_not_shared_between_adapters():
    content = SlotContent([1, 2, 3], 0, 3, 0, adapter=SimpleNamespace(key="k"))
    row = SimpleNamespace(adapter=None, source_key="")
    assert resume_slot(Slot(0), row, content, None, (), speculative=False) == 0


RECIPE = """
name: slots
target: {model: base}
drafter: {kind: prompt_lookup}
adapters: {modules: [q_proj, down_proj]}
"""


def _plan(folder, text):
    (folder / "recipe.yaml").write_text(text)
    return make_plan(load_recipe(folder / "recipe.yaml"))


def test_the_plan_has_every_default(tmp_path):
    write(tmp_path, target_modules=["q_proj"])
    plan = _plan(tmp_path, RECIPE)
    assert plan.adapters == AdaptersPlan(16, MODULES, 4)
    assert plan.to_json()["adapters"] == {"rank": 16, "modules": list(MODULES), "slots": 4}
    without = _plan(tmp_path, RECIPE.replace("adapters: {modules: [q_proj, down_proj]}", ""))
    assert without.adapters is None
    assert "adapters" not in without.to_json()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("down_proj", "q_proj"), r"adapters\.modules: received 'q_proj' twice"),
        (("modules: [q_proj, down_proj]", "modules: []"), r"adapters\.modules"),
        (("modules: [q_proj, down_proj]", "rank: 8"), r"adapters\.modules"),
        (("down_proj]", "down_proj], rank: 0"), r"adapters\.rank"),
        (("down_proj]", "down_proj], slots: 1000"), r"adapters\.slots"),
        (("kind: prompt_lookup}", "kind: none}\nengines: [{backend: tensorrt}]"),
         "received slots for adapters and the engine .*tensorrt on cuda, expected engines of onnxruntime on cpu"),
    ],
)  # fmt: skip
def test_recipes_that_are_refused(tmp_path, change, message):
    write(tmp_path, target_modules=["q_proj"])
    with pytest.raises(RecipeError, match=message):
        _plan(tmp_path, RECIPE.replace(*change))


@pytest.mark.parametrize("suffix", ["lm_head", "proj", "embed_tokens"])
def test_modules_that_the_target_lacks(tmp_path, suffix):
    write(tmp_path, target_modules=["q_proj"])
    with pytest.raises(SpeccompileError, match=rf"adapters\.modules: received '{suffix}', expected ends of names"):
        AdapterSlots(4, (suffix,), 1).shapes(load_model(tmp_path / "base", 64))
