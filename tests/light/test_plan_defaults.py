"""Defaults of a recipe that says nothing: a drafter without training, the stored precision, a decoding."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from speccompile.errors import RecipeError
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.decide import sampling_cost
from tests.heads.mtp import mtp_target
from tests.json_files import merge_json

RTX = {"backend": "tensorrt_rtx", "compute_capability": "8.9"}


@pytest.fixture
def plan(make_recipe):
    def plan(**keys):
        return make_plan(load_recipe(make_recipe(**keys)))

    return plan


def stored_in(folder, dtype):
    """Store the weights of a checkpoint in another dtype."""
    save_file({"embed.weight": torch.zeros(8, 4, dtype=dtype)}, folder / "model.safetensors")


def test_layers_that_the_checkpoint_carries_draft(tmp_path):
    mtp_target(tmp_path / "target", "qwen3")
    (tmp_path / "recipe.yaml").write_text(json.dumps({"name": "t", "target": {"model": "target"}}))
    found = make_plan(load_recipe(tmp_path))
    assert (found.drafter.kind, found.graphs) == ("mtp", "fused")
    assert found.notes[0].startswith(
        "drafter.kind is mtp, which the checkpoint carries (Qwen 3.5: tensor mtp.fc.weight)"
    )
    lookup = make_plan(load_recipe(tmp_path, ["drafter.kind=suffix"]))
    assert (lookup.drafter.kind, lookup.notes) == ("suffix", ())


def test_layers_that_are_not_compiled_are_named(tmp_path):
    mtp_target(tmp_path / "target", "qwen3")
    path, weights = tmp_path / "target/config.json", tmp_path / "target/model.safetensors"
    tensors = {name: tensor for name, tensor in load_file(weights).items() if "mtp" not in name}
    save_file(tensors | {"model.mtp.layers.0.eh_proj.weight": torch.zeros(4, 8)}, weights)
    merge_json(path, {"mtp_config": {}})
    (tmp_path / "recipe.yaml").write_text(json.dumps({"name": "t", "target": {"model": "target"}}))
    found = make_plan(load_recipe(tmp_path))
    assert found.drafter.kind == "prompt_lookup"
    assert "Inkling's draft layers are not compiled (its MTP layers keep states of convolutions" in found.notes[0]


@pytest.mark.parametrize(
    ("dtype", "engine", "word"),
    [
        (torch.float32, {}, "float32"),
        (torch.bfloat16, {}, "bfloat16"),
        (torch.bfloat16, RTX, "bfloat16"),
        (torch.float16, RTX, "float16"),
        (torch.bfloat16, RTX | {"compute_capability": "7.5"}, "float16"),
        (torch.bfloat16, RTX | {"compute_capability": ["7.5", "8.9"]}, "float16"),
        (torch.bfloat16, {"provider": "cuda"}, "float32"),
        (torch.int8, {}, "float32"),
    ],
)
def test_weights_keep_their_stored_precision_where_the_engine_runs_it(plan, tmp_path, dtype, engine, word):
    stored_in(tmp_path / "target", dtype)
    found = plan(engines=[engine], drafter={"kind": "none"})
    assert {each.precision.target for each in found.engines} == {word}
    assert found.target.precision == word
    is_changed = dtype is torch.bfloat16 and word != "bfloat16"
    assert bool(found.notes) == is_changed


def test_a_precision_that_the_engine_lacks_is_told(plan, tmp_path):
    stored_in(tmp_path / "target", torch.float16)
    found = plan(drafter={"kind": "none"})
    assert found.target.precision == "float32"
    assert found.notes == (
        "onnxruntime-cpu: weights stored in float16 become float32: onnxruntime on cpu does not run float16",
    )
    assert plan(drafter={"kind": "none"}, precision={"target": "float32"}).notes == ()


def test_draft_models_keep_theirs_where_all_are_stored_alike(plan, tmp_path):
    stored_in(tmp_path / "drafter", torch.bfloat16)
    found = plan(drafter={"kind": "model", "model": "drafter"})
    assert (found.target.precision, found.drafter.models[0].precision) == ("float32", "bfloat16")
    both = plan(drafter={"kind": "models", "models": ["drafter", "target"], "tree": [1]})
    assert [each.precision for each in both.drafter.models] == ["float32", "float32"]


def test_a_precision_that_no_engine_of_the_gpu_has_is_refused_as_before(plan):
    with pytest.raises(RecipeError, match=r"compute_capability: received '1\.0', which is unknown"):
        plan(engines=[RTX | {"compute_capability": "1.0"}])


def test_large_targets_sample_as_well(plan, tmp_path, monkeypatch):
    small = plan(drafter={"kind": "none"})
    assert small.decoding == "greedy"
    assert sampling_cost(small.target, small.engines[0]) > 0.9
    large = replace(small.target, facts=replace(small.target.facts, weight_bytes=2 * 10**9))
    assert sampling_cost(large, small.engines[0]) == pytest.approx(0.0099, abs=1e-4)  # 1 of 101 ms
    monkeypatch.setattr("speccompile.recipe.decide.model_in", lambda *_: large)
    model = {"kind": "model", "model": "drafter"}
    assert (plan(drafter=model).decoding, plan(drafter=model).drafter.sample) == ("sampling", True)
    assert plan(drafter=model, decoding="greedy").decoding == "greedy"
    assert plan(drafter=model, precision={"target": "int4"}).decoding == "greedy"  # 0.3 GB: 6 %
    assert plan(drafter=model, engines=[{}, RTX]).decoding == "greedy"


def test_float_dtypes_are_counted_by_bytes(plan, tmp_path):
    weights = {"embed.weight": torch.zeros(8, 4, dtype=torch.bfloat16), "norm.weight": torch.ones(4)}
    save_file(weights, tmp_path / "target/model.safetensors")
    facts = plan(drafter={"kind": "none"}).target.facts
    assert (facts.dtype, facts.weight_bytes) == ("bfloat16", 8 * 4 * 2 + 4 * np.dtype(np.float32).itemsize)
