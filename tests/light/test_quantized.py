"""Quantized weights against what the formats' own libraries and transformers make of them."""

import re

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from click.testing import CliRunner
from transformers.integrations.finegrained_fp8 import Fp8Dequantize
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from speccompile.cli.plan import command
from speccompile.compiler.weights import graph
from speccompile.compiler.weights.source import Concatenated, LazyWeight
from speccompile.errors import CheckpointError, UnsupportedModelError
from speccompile.plan.plan import CheckpointFacts
from speccompile.recipe import load_recipe, make_plan
from speccompile.recipe.stored_precision import stored_precision
from tests.json_files import merge_json
from tests.light.quantized_checkpoints import CONFIGS, LAYER, LIBRARIES, SETTLED, gptq, graph_of, layer, write

PARTS = (slice(0, 32), slice(3, 21), slice(8, 9), slice(31, 32))


def weight_of(folder, tensors, quantization, name=f"{LAYER}.weight") -> LazyWeight:
    found = write(folder, tensors, quantization)
    assert (set(found.weights), found.others) == ({name}, {})
    return found.weights[name]


@pytest.mark.parametrize("name", CONFIGS)
def test_weights_are_what_the_formats_own_library_makes_of_them(tmp_path, name):
    weight, expected = weight_of(tmp_path, layer(name), CONFIGS[name]), LIBRARIES[f"{name}:unpacked"]
    for part in PARTS:
        # The library computes in the dtype of the scales: a product of theirs and a small integer, rounded once.
        assert torch.equal(torch.from_numpy(weight.rows(part)).to(expected.dtype), expected[part])
    assert np.array_equal(weight.transpose((1, 0)).columns(PARTS[1]), weight.rows(PARTS[1]).T)


@pytest.mark.parametrize("name", SETTLED)
def test_four_bits_are_given_as_they_are(tmp_path, name):
    weight = weight_of(tmp_path, layer(name), CONFIGS[name])
    for part in PARTS:
        found = weight.transpose((1, 0)).int4_columns(part)
        groups = np.arange(64) // found.group_size
        assert found.numbers.dtype == found.zero_points.dtype == np.uint8
        assert max(found.numbers.max(), found.zero_points.max()) <= 15
        numbers = found.numbers.astype(np.float32) - found.zero_points[groups]
        assert np.array_equal(numbers * found.scales[groups], weight.rows(part).T)
    joined = Concatenated([weight, weight.narrow(slice(4, 32))]).int4(slice(30, 36))
    assert np.array_equal(joined.numbers, weight.int4(slice(0, 32)).numbers[:, [30, 31, 4, 5, 6, 7]])


@pytest.mark.parametrize("name", sorted(set(CONFIGS) - set(SETTLED)))
def test_others_are_not_four_bits(tmp_path, name):
    assert weight_of(tmp_path, layer(name), CONFIGS[name]).int4(slice(0, 4)) is None


def test_groups_in_order_need_no_order(tmp_path):
    tensors = layer("gptq")
    del tensors[f"{LAYER}.g_idx"]
    weight, whole = weight_of(tmp_path, tensors, gptq()), LIBRARIES["gptq:unpacked"]
    assert torch.equal(torch.from_numpy(weight.read_all()).half(), whole)


def test_zero_points_of_the_first_gptq_format_are_one_more_across_a_word(tmp_path):
    """Undo the writer's subtraction of one, which from a zero point of 0 borrowed of the next."""
    stored = layer("gptq")[f"{LAYER}.qzeros"]
    zero_points = weight_of(tmp_path, layer("gptq"), gptq()).int4(slice(0, 32)).zero_points
    assert (zero_points == 0).any()
    assert np.array_equal(zero_points[:, 0], (stored.numpy()[:, 0] + 1) & 15)


@pytest.mark.parametrize(("rows", "columns", "block"), [(256, 384, [128, 128]), (64, 96, [32, 32]), (48, 64, None)])
@pytest.mark.parametrize("scales", [torch.float32, torch.bfloat16, torch.float8_e8m0fnu])
def test_fp8_is_what_transformers_makes_of_it(tmp_path, rows, columns, block, scales):
    numbers = torch.randn(rows, columns).to(torch.float8_e4m3fn)
    grid = (rows // block[0], columns // block[1]) if block else ()
    scale = torch.rand(grid).to(scales)
    tensors = {"a.weight": numbers, "a.weight_scale_inv": scale, "a.activation_scale": torch.ones(())}
    weight = weight_of(tmp_path, tensors, {"quant_method": "fp8", "weight_block_size": block}, "a.weight")
    expected = Fp8Dequantize(None)._dequantize_one(numbers, scale, torch.float32)
    assert torch.equal(torch.from_numpy(weight.read_all()), expected)
    assert torch.equal(torch.from_numpy(weight.rows(slice(20, 41))), expected[20:41])


def test_fp8_blocks_need_not_divide_a_weight(tmp_path):
    numbers, scale = torch.randn(144, 200).to(torch.float8_e4m3fn), torch.rand(2, 2)
    said = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    weight = weight_of(tmp_path, {"a.weight": numbers, "a.weight_scale_inv": scale}, said, "a.weight")
    spread = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[:144, :200]
    assert torch.equal(torch.from_numpy(weight.rows(slice(120, 144))), (numbers.float() * spread)[120:])


def test_fp8_experts_are_a_stack(tmp_path):
    numbers, scale = torch.randn(3, 64, 32).to(torch.float8_e4m3fn), torch.rand(3, 2, 1)
    name, said = "experts.gate_up_proj", {"quant_method": "fp8", "weight_block_size": [32, 32]}
    weight = weight_of(tmp_path, {name: numbers, f"{name}_scale_inv": scale}, said, name)
    expected = Fp8Dequantize(None)._dequantize_one(numbers, scale, torch.float32)
    assert torch.equal(torch.from_numpy(weight.read_all()), expected)


def test_mxfp4_is_what_transformers_makes_of_it(tmp_path):
    blocks = torch.randint(0, 256, (2, 24, 3, 16), dtype=torch.uint8)
    scales = torch.randint(0, 250, (2, 24, 3), dtype=torch.uint8)
    name = "model.layers.0.mlp.experts.gate_up_proj"
    tensors = {f"{name}_blocks": blocks, f"{name}_scales": scales}
    weight = weight_of(tmp_path, tensors, {"quant_method": "mxfp4"}, name)
    expected = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
    assert weight.dtype == "bfloat16"
    assert torch.equal(expected, expected.bfloat16().float())
    assert torch.equal(torch.from_numpy(weight.read_all()), expected)
    assert torch.equal(torch.from_numpy(weight.select(1).columns(slice(5, 9)).copy()), expected[1][:, 5:9])


def test_equal_weights_are_equal_by_what_they_are_made_of(tmp_path):
    one = weight_of(tmp_path / "one", layer("gptq"), CONFIGS["gptq"])
    same = weight_of(tmp_path / "same", layer("gptq"), CONFIGS["gptq"])
    other = weight_of(tmp_path / "other", layer("gptq"), CONFIGS["gptq-v2"])
    assert one.identity() == same.identity() != other.identity()


def test_plain_tensors_stay(tmp_path):
    tensors = layer("awq") | {"lm_head.weight": torch.ones(4, 8, dtype=torch.bfloat16), "ids": torch.arange(3)}
    found = write(tmp_path, tensors, CONFIGS["awq"])
    assert (set(found.weights), set(found.others)) == ({f"{LAYER}.weight", "lm_head.weight"}, {"ids"})


REFUSED = {
    "bitsandbytes": ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "'bitsandbytes', expected one of gptq"),
    "unnamed": ({"bits": 4}, "by no named method"),
    "three bits": (gptq(bits=3), "'gptq' in 3 bits, expected 4 or 8 bits"),
    "marlin": (gptq(checkpoint_format="marlin"), "'gptq' in the format 'marlin'"),
    "gemv": (CONFIGS["awq"] | {"version": "gemv"}, "'awq' in the version 'gemv'"),
    "nvfp4": (CONFIGS["ct"] | {"format": "nvfp4-pack-quantized"}, "in the format 'nvfp4-pack-quantized'"),
    "sparse": (CONFIGS["ct"] | {"sparsity_config": {"format": "sparse-24-bitmask"}}, "sparsity_config"),
    "rotated": (CONFIGS["ct"] | {"transform_config": {"config_groups": {"u": {}}}}, "transform_config"),
    "activations": (CONFIGS["ct"] | {"config_groups": {"g": {"weights": None}}}, "of activations alone"),
    "fp4 experts": ({"quant_method": "fp8", "expert_dtype": "fp4"}, "experts in fp4"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_is_refused_by_name(tmp_path, name):
    quantization, message = REFUSED[name]
    with pytest.raises(UnsupportedModelError, match="its weights are quantized by") as caught:
        write(tmp_path, layer("ct"), quantization)
    assert message in str(caught.value)
    assert "quantized from" in caught.value.hint


def changed(name, **others):
    tensors = layer(name)
    for key, value in others.items():
        tensors.pop(f"{LAYER}.{key}")
        if value is not None:
            tensors[f"{LAYER}.{key}"] = value
    return tensors


WRONG = {
    "no scales": ("gptq", {"scales": None}, "received nothing as 'model.layers.0.mlp.up_proj.scales'"),
    "fewer zero points": ("gptq", {"qzeros": torch.zeros(2, 3, dtype=torch.int32)}, "received I32 [2, 3] as"),
    "fewer groups": ("awq", {"scales": torch.zeros(1, 32)}, "expected shape [1, 4]"),
    "a short order": ("gptq", {"g_idx": torch.zeros(9, dtype=torch.int32)}, "the group of each of 64 inputs"),
    "another shape": ("ct", {"weight_shape": torch.tensor([9, 9])}, "4 or 8 bits for each of 9 x 9 numbers"),
    "another grid": ("ct-fp8", {"weight_scale": torch.zeros(5, 1)}, "scales for 32 outputs"),
    "another method": ("awq", {"qweight": None}, "received no tensor of that kind"),
}


@pytest.mark.parametrize("name", WRONG)
def test_tensors_that_are_not_what_the_config_says_are_refused(tmp_path, name):
    variant, others, message = WRONG[name]
    with pytest.raises(CheckpointError) as caught:
        write(tmp_path, changed(variant, **others), CONFIGS[variant])
    assert message in str(caught.value)


def test_a_group_that_there_is_not_is_refused(tmp_path):
    order = torch.full((64,), 7, dtype=torch.int32)
    weight = weight_of(tmp_path, changed("gptq", g_idx=order), CONFIGS["gptq"])
    with pytest.raises(CheckpointError, match="groups from 0 to 1"):
        weight.read_all()


@pytest.mark.parametrize("bits", ["4", None, 0, True])
def test_a_config_that_no_library_writes_is_refused(tmp_path, bits):
    with pytest.raises(CheckpointError, match="quantization_config"):
        write(tmp_path, layer("gptq"), gptq(bits=bits))


@pytest.mark.parametrize("name", CONFIGS)
def test_a_graph_on_disk_holds_the_numbers(tmp_path, name):
    weight, path = weight_of(tmp_path / "checkpoint", layer(name), CONFIGS[name]), tmp_path / "graph.onnx"
    model = graph_of(weight)
    graph.store(model, tmp_path)
    ir.save(model, path, external_data="graph.data", size_threshold_bytes=1 << 10)  # some in the graph, some beside it
    x = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
    (result,) = ort.InferenceSession(path).run(None, {"x": x})
    assert np.allclose(result, x @ weight.read_all().T, rtol=1e-5, atol=1e-6)
    read = graph.load(path)
    assert set(read.graph.initializers) == {"weight"}
    found = graph.source_of(read.graph.initializers["weight"].const_value)
    for part in PARTS:
        assert np.array_equal(found.read_all()[part], weight.rows(part))
        assert np.array_equal(found.rows(part), weight.rows(part)) or name == "gptq-order"
    if name in SETTLED:
        for one, other in zip(found.int4(PARTS[1]), weight.int4(PARTS[1]), strict=True):
            assert np.array_equal(one, other)


def planned(folder, quantization, *settings):
    """Return the plan for a checkpoint whose config says so, as `make_checkpoint` writes its tensors."""
    (folder / "recipe.yaml").write_text("name: quantized\ntarget: {model: target}\n")
    merge_json(folder / "target" / "config.json", {"quantization_config": quantization})
    return make_plan(load_recipe(folder / "recipe.yaml", settings))


CUDA = "engines=[{backend: onnxruntime, provider: cuda}]"


@pytest.mark.parametrize(
    ("quantization", "settings", "expected"),
    [
        (gptq(group_size=128), (), ("int4", 128)),
        (gptq(group_size=32), (), ("int4", 32)),
        (gptq(group_size=-1), (), ("int4", 128)),
        (gptq(group_size=16), (), ("float32", None)),
        (gptq(group_size=128), ("precision.target=int8",), ("int8", None)),
        (gptq(group_size=128), ("precision={target: int4, block_size: 64}",), ("int4", 64)),
        (gptq(group_size=128), (CUDA,), ("float32", None)),
        (gptq(desc_act=True), (), ("float32", None)),
        (gptq(bits=8), (), ("float32", None)),
        (CONFIGS["awq"], (), ("int4", 32)),
        (CONFIGS["ct"], (), ("int4", 32)),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, (), ("float32", None)),
    ],
)
def test_the_default_holds_the_numbers(tmp_path, make_checkpoint, quantization, settings, expected):
    make_checkpoint(tmp_path / "target")
    (engine,) = planned(tmp_path, quantization, *settings).engines
    assert (engine.precision.target, engine.precision.block_size) == expected


def test_the_plan_says_how_weights_are_quantized_and_who_decided(tmp_path, make_checkpoint):
    make_checkpoint(tmp_path / "target")
    planned(tmp_path, gptq(group_size=128))
    output = CliRunner().invoke(command, [str(tmp_path)]).output
    assert re.search(r"quantized +gptq, 4 bits, groups of 128 +checkpoint\n", output)
    assert re.search(r"engines.0.precision.target +int4, 128 weights a scale +checkpoint\n", output)
    assert re.search(r"\nprecision.target +int4 +checkpoint\n", output)
    written = CliRunner().invoke(command, [str(tmp_path), "--set", "precision.target=int4"]).output
    assert re.search(r"engines.0.precision.target +int4, 128 weights a scale +--set\n", written)


def test_a_plan_refuses_what_is_not_read(tmp_path, make_checkpoint):
    make_checkpoint(tmp_path / "target")
    with pytest.raises(UnsupportedModelError, match="'bitsandbytes'"):
        planned(tmp_path, {"quant_method": "bitsandbytes"})


@pytest.mark.parametrize(
    ("target", "drafters", "expected"),
    [
        (128, [64], ("int4", "int4", 64)),
        (128, [None], ("int4", None, 128)),
        (None, [32], (None, "int4", 32)),
        (64, [64, 128], ("int4", "int4", 64)),
        (64, [64, None], ("int4", None, 64)),
        (-1, [], ("int4", None, 128)),
        (16, [], (None, None, None)),
    ],
)
def test_blocks_divide_the_groups_of_all_models_that_are_held(target, drafters, expected):
    def facts(groups):
        return CheckpointFacts("", "", 8, None, None, (), 0, False, groups_of_4_bits=groups)

    assert stored_precision(facts(target), list(map(facts, drafters)))[:3] == expected
