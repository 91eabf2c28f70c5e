"""Quantized checkpoints against transformers' model over the same weights in floats; and what a build makes of them."""

import json
import logging

import numpy as np
import onnx_ir as ir
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    FineGrainedFP8Config,
    GptOssConfig,
    GptOssForCausalLM,
    Mxfp4Config,
)
from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer
from transformers.quantizers.quantizer_mxfp4 import Mxfp4HfQuantizer

from speccompile.compiler.build import build
from speccompile.compiler.lower.files import read_neutral
from speccompile.compiler.lower.quantize import quantize
from speccompile.compiler.models.load import load_model
from speccompile.compiler.prove.weights import check_weights
from speccompile.compiler.weights import graph
from speccompile.recipe import load_recipe, make_plan
from speccompile.runtime import Bundle
from tests import quantized_models, zoo
from tests.light.quantized_checkpoints import CONFIGS, SETTLED, graph_of, layer, write

pytestmark = pytest.mark.builds(3)

TOKENS = torch.tensor([[5, 9, 200, 31, 7, 77, 130]])


@pytest.mark.parametrize("method", quantized_models.CONFIGS)
def test_a_quantized_model_is_the_model_of_its_weights(tmp_path, method):
    floats = quantized_models.save("llama", tmp_path, method)
    expected = zoo.model("llama")
    expected.load_state_dict(floats, strict=False)
    with torch.no_grad():
        assert torch.allclose(load_model(tmp_path, 64)(TOKENS).logits, expected(TOKENS).logits, atol=1e-4)


def test_fp8_is_transformers_own_dequantized_model(tmp_path, monkeypatch):
    # It asks for a library that it needs on accelerators.
    monkeypatch.setattr(FineGrainedFP8HfQuantizer, "validate_environment", lambda *_, **__: None)
    quantized_models.save("llama", tmp_path, "fp8")
    config = FineGrainedFP8Config(weight_block_size=[32, 32], dequantize=True)
    expected = AutoModelForCausalLM.from_pretrained(
        tmp_path, quantization_config=config, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.no_grad():
        assert torch.allclose(load_model(tmp_path, 64)(TOKENS).logits, expected(TOKENS).logits, atol=1e-4)


def test_mxfp4_is_transformers_own_dequantized_model(tmp_path, monkeypatch):
    monkeypatch.setattr(Mxfp4HfQuantizer, "validate_environment", lambda *_, **__: None)
    model = GptOssForCausalLM(GptOssConfig(
        vocab_size=256, hidden_size=64, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, head_dim=16,
        num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=256,
    ))  # fmt: skip
    model.save_pretrained(tmp_path)
    quantized_models.pack_experts(tmp_path)
    expected = AutoModelForCausalLM.from_pretrained(
        tmp_path, quantization_config=Mxfp4Config(dequantize=True), dtype=torch.float32, attn_implementation="eager"
    )
    with torch.no_grad():
        assert torch.allclose(load_model(tmp_path, 64)(TOKENS).logits, expected(TOKENS).logits, atol=1e-4)


def built(folder, method, caplog, *settings, model="llama"):
    quantized_models.save(model, folder / "target", method)
    recipe = folder / "recipe.yaml"
    recipe.write_text(
        "name: quantized\ntarget: {model: target}\ndrafter: {kind: prompt_lookup, tokens: 2}\n"
        "cache: {max_length: 64, prefill_chunk: 16}\nprove: {max_new_tokens: 8}\n"
    )
    plan = make_plan(load_recipe(recipe, settings))
    with caplog.at_level(logging.INFO, "speccompile"):
        build(plan, folder / "bundle")
    return plan, folder / "bundle"


def weights_row(bundle):
    rows = json.loads((bundle / "proof.json").read_bytes())["graphs"]
    return next(row for row in rows if row["graph"] == "verify" and "kept" in row)


@pytest.mark.sweep("a bundle each, with its proof", but=["gptq"])
@pytest.mark.parametrize("method", ["gptq", "awq", "compressed-tensors"])
def test_four_bits_are_taken_over(tmp_path, method, caplog):
    plan, bundle = built(tmp_path, method, caplog)
    (engine,) = plan.engines
    assert (engine.precision.target, engine.precision.block_size) == ("int4", quantized_models.GROUP)
    row = weights_row(bundle)
    # All but the head, which has eight bits, and the table in which tokens are looked up.
    assert row["kept"] == 14
    assert f"target: {plan.target.facts.quantization}: 14 of {row['weights']} weights are taken over" in caplog.text
    assert Bundle.open(bundle).generate(TOKENS[0].tolist(), max_new_tokens=4).token_ids


@pytest.mark.sweep("a bundle with its proof")
def test_experts_in_four_bits_are_taken_over(tmp_path, caplog):
    """8 layers of attention, 2 routers, which stay floats, and 4 experts in 2 layers, each joined and down."""
    _, bundle = built(tmp_path, "gptq", caplog, model="qwen3_moe")
    assert weights_row(bundle)["kept"] == 8 + 2 + 2 * 4 * 2


@pytest.mark.sweep("a bundle with its proof")
def test_projections_of_convolutions_in_four_bits_are_taken_over(tmp_path, caplog):
    """2 of the first layer's convolution, whose taps stay floats, and 4 of the second one's attention."""
    _, bundle = built(tmp_path, "gptq", caplog, model="lfm2")
    assert weights_row(bundle)["kept"] == 2 + 4


def test_others_are_converted_and_the_loss_is_said(tmp_path, caplog):
    _, bundle = built(tmp_path, "fp8", caplog, "precision.target=int8")
    row = weights_row(bundle)
    assert row["kept"] == 0
    assert 0 < row["largest_error"] <= 1 / 220 * 1.001
    assert f"target: fp8, blocks of 32 x 32: 0 of {row['weights']} weights are taken over in int8" in caplog.text


def two_layers(weight):
    """Return logits = MatMul(MatMul(x, Transpose(weight)), head)."""
    model = graph_of(weight)
    head = ir.Value(name="head", shape=ir.Shape([32, 8]), type=ir.TensorType(ir.DataType.FLOAT))
    head.const_value = ir.Tensor(np.random.default_rng(1).standard_normal((32, 8)).astype(np.float32), name="head")
    model.graph.register_initializer(head)
    logits = ir.node("MatMul", [model.graph.outputs[0], head])
    logits.outputs[0].name, logits.outputs[0].type = "logits", ir.TensorType(ir.DataType.FLOAT)
    model.graph.append(logits)
    model.graph.outputs[0] = logits.outputs[0]
    return model


SYMMETRIC = ("gptq-symmetric", "gptq-channel", "ct-symmetric", "ct-channel")


@pytest.mark.parametrize("form", ["native", "matmul_nbits", "qdq"])
@pytest.mark.parametrize(("name", "block_size"), [*((name, 32) for name in CONFIGS), ("gptq-channel", 64), ("ct", 64)])
def test_every_form_holds_what_it_can(tmp_path, name, block_size, form):
    traced, converted = tmp_path / "traced.onnx", tmp_path / "converted.onnx"
    (weight,) = write(tmp_path / "checkpoint", layer(name), CONFIGS[name]).weights.values()
    model = two_layers(weight)
    graph.store(model, tmp_path)
    ir.save(model, traced)
    model = read_neutral(traced)
    quantize(model, "int4", block_size, form)
    ir.save(model, converted)
    row = check_weights(traced, converted, "verify", "int4")
    fits = block_size == 32 or name == "gptq-channel"
    held = fits and (name in SYMMETRIC if form == "qdq" else name in SETTLED)
    assert (row["weights"], row["kept"]) == (2, int(held))
