"""MTP layers as they learn on: what they say, what learns, and the copy of the target that they export."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from speccompile.compiler.build.inputs import open_round
from speccompile.compiler.build.modules import drafter_context
from speccompile.drafters.mtp.patch_checkpoint import OTHERS, OWN, copy_with_replaced
from speccompile.drafters.mtp.training import student
from speccompile.errors import UnsupportedModelError
from speccompile.recipe import load_recipe, make_plan
from tests import multimodal, quantized_models, zoo
from tests.compile.eager_rounds import check_generation
from tests.compile.tiny_bundles import save
from tests.heads.mtp import mtp_head, mtp_target
from tests.json_files import edit_config
from tests.train.students import ANCHORS, BUILT, check_computed_again, check_learns, check_said, seen_by, student_of

CACHE = "cache: {max_length: 96, prefill_chunk: 16, batch_size: 2}"


def plan_of(folder, drafter="tokens: 2", target="target"):
    text = f"name: tiny\ntarget: {{model: {target}}}\ndrafter: {{kind: mtp, {drafter}}}\n{CACHE}\n"
    (folder / "recipe.yaml").write_text(text)
    return make_plan(load_recipe(folder))


CASES = [("mimo", 1, 4), ("mimo", 2, 5), ("qwen3_5", 1, 3), ("qwen3_5", 3, 4), ("mellum", 1, 3), ("ernie", 2, 2),
         ("glm4_moe", 1, 2), ("deepseek_v3", 1, 3)]  # fmt: skip


@pytest.mark.parametrize(("name", "n_mtp", "depth"), CASES)
def test_rows_of_a_text_say_what_the_reference_says_of_each(tmp_path, name, n_mtp, depth):
    mtp_target(tmp_path / "target", name, n_mtp)
    check_said(plan_of(tmp_path), depth)


@pytest.mark.parametrize(("name", "n_mtp", "depth"), CASES)
def test_the_copy_of_the_target_says_what_was_trained(tmp_path, name, n_mtp, depth):
    mtp_target(tmp_path / "target", name, n_mtp)
    plan = plan_of(tmp_path)
    check_computed_again(plan, depth)
    trained = check_learns(plan, depth)
    trained.save(tmp_path / "exported", torch.float32)
    exported = plan_of(tmp_path, target="exported")
    seen = seen_by(plan, trained)
    with torch.no_grad():
        pairs = zip(trained(seen, ANCHORS, depth), student_of(exported, depth)(seen, ANCHORS, depth), strict=True)
        assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
    before, own = load_file(tmp_path / "target" / "model.safetensors"), load_file(tmp_path / "exported" / OWN)
    kept = load_file(tmp_path / "exported" / OTHERS)
    assert kept.keys() | own.keys() == before.keys()
    assert not kept.keys() & own.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in kept.items())
    same = {name for name, tensor in own.items() if torch.equal(tensor, before[name])}
    assert all(".experts." in name for name in same)  # one that no token of two short texts goes to
    assert len(same) < len(own) / 2


@pytest.mark.sweep(BUILT)
def test_the_copy_is_built(tmp_path):
    mtp_target(tmp_path / "target", "mimo")
    trained = check_learns(plan_of(tmp_path), 3)
    trained.save(tmp_path / "exported", torch.bfloat16)
    check_generation(plan_of(tmp_path, target="exported"), tmp_path)


def test_layers_in_a_folder_of_their_own_stay_there(tmp_path):
    model = zoo.model("llama")
    save(model, tmp_path / "target", tokenizer=False)
    mtp_head(tmp_path / "head", model.config, 2)
    plan = plan_of(tmp_path, "model: head")
    check_said(plan, 3)
    check_learns(plan, 3).save(tmp_path / "exported", torch.float32)
    assert not list((tmp_path / "exported").glob("*.index.json"))
    assert plan_of(tmp_path, "model: exported").drafter.head.tensors.keys() == plan.drafter.head.tensors.keys()


def test_shards_without_trained_tensors_are_linked(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    shards = {"a.safetensors": {"x": torch.ones(3)}, "b.safetensors": {"y": torch.ones(2), "z": torch.zeros(5).bool()}}
    for file, tensors in shards.items():
        save_file(tensors, source / file)
    index = {name: file for file, tensors in shards.items() for name in tensors}
    (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    (source / "config.json").write_text("{}")
    copy_with_replaced(source, tmp_path / "exported", {"y": torch.full((2,), 3.0)})
    assert (tmp_path / "exported" / "a.safetensors").samefile(source / "a.safetensors")
    assert load_file(tmp_path / "exported" / "b.safetensors").keys() == {"z"}
    written = json.loads((tmp_path / "exported" / "model.safetensors.index.json").read_text())["weight_map"]
    assert written == {"x": "a.safetensors", "y": OWN, "z": "b.safetensors"}
    copy_with_replaced(tmp_path / "exported", tmp_path / "again", {"y": torch.full((2,), 4.0)})
    assert load_file(tmp_path / "again" / OWN)["y"].tolist() == [4, 4]
    assert load_file(tmp_path / "exported" / OWN)["y"].tolist() == [3, 3]


def test_beside_the_text_decoder_of_a_multimodal_checkpoint(tmp_path):
    multimodal.save(multimodal.model("qwen3_5"), tmp_path / "target", "inner")
    mtp_target(tmp_path / "text", "qwen3_5")
    path = tmp_path / "target" / "model.safetensors"
    own = {name: each for name, each in load_file(tmp_path / "text" / path.name).items() if name.startswith("mtp.")}
    before = load_file(path) | own
    save_file(before, path, {"format": "pt"})
    edit_config(tmp_path / "target", lambda config: config["text_config"].update(mtp_num_hidden_layers=1))
    trained = student(drafter_context(open_round(plan_of(tmp_path)).draft), 2)
    trained.save(tmp_path / "exported", torch.float32)
    after = load_file(tmp_path / "exported" / OWN)
    assert after.keys() == own.keys()
    after |= load_file(tmp_path / "exported" / OTHERS)
    assert after.keys() == before.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in after.items())


def test_quantized_layers_are_refused(tmp_path):
    mtp_target(tmp_path / "target", "mimo")
    quantized_models.quantize(tmp_path / "target", "gptq")
    with pytest.raises(UnsupportedModelError, match=r"expected a tensor of shape .*, in whose place the trained one"):
        student(drafter_context(open_round(plan_of(tmp_path)).draft), 2)
