"""Checkpoints of one layer, packed by the formats' own libraries (`quantized/make.py`) or by the published layout."""

import json
from pathlib import Path

import onnx_ir as ir
from safetensors.torch import load_file, save_file

from speccompile.compiler.weights.checkpoint import Checkpoint, checkpoint_sources
from speccompile.compiler.weights.graph import Weight
from speccompile.compiler.weights.source import LazyWeight

LAYER = "model.layers.0.mlp.up_proj"
LIBRARIES = load_file(Path(__file__).with_name("quantized") / "libraries.safetensors")


def gptq(bits=4, group_size=32, **more):
    return {"quant_method": "gptq", "bits": bits, "group_size": group_size, "checkpoint_format": "gptq", **more}


def compressed(layout, **weights):
    group = {"targets": ["Linear"], "weights": {"type": "int", "num_bits": 4, "symmetric": True, **weights}}
    return {"quant_method": "compressed-tensors", "format": layout, "config_groups": {"group_0": group}}


INT4 = {"strategy": "group", "group_size": 32}
FP8 = {"type": "float", "num_bits": 8}
CONFIGS = {
    "gptq-symmetric": gptq(sym=True),
    "gptq": gptq(sym=False),
    "gptq-v2": gptq(sym=False, checkpoint_format="gptq_v2"),
    "gptq-channel": gptq(group_size=-1),
    "gptq-order": gptq(desc_act=True),
    "gptq-8": gptq(bits=8),
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True},
    "ct-symmetric": compressed("pack-quantized", **INT4),
    "ct": compressed("pack-quantized", **INT4 | {"symmetric": False}),
    "ct-channel": compressed("pack-quantized", strategy="channel"),
    "ct-packed-8": compressed("pack-quantized", **INT4 | {"num_bits": 8}),
    "ct-int8": compressed("int-quantized", num_bits=8, strategy="channel"),
    "ct-int8-zeros": compressed("int-quantized", num_bits=8, strategy="channel", symmetric=False),
    "ct-fp8": compressed("float-quantized", **FP8, strategy="channel"),
    "ct-fp8-tensor": compressed("float-quantized", **FP8, strategy="tensor"),
    "ct-fp8-block": compressed("float-quantized", **FP8, strategy="block", block_structure=[16, 32]),
}
"""What config.json says of each of the libraries' layers."""

SETTLED = ("gptq-symmetric", "gptq", "gptq-v2", "gptq-channel", "awq", "ct-symmetric", "ct", "ct-channel")
"""Those in 4 bits whose groups lie side by side."""


def layer(name: str) -> dict:
    """Return the tensors of a library's layer, by their names in a checkpoint."""
    mark = f"{name}:layer."
    return {f"{LAYER}.{key.removeprefix(mark)}": value for key, value in LIBRARIES.items() if key.startswith(mark)}


def write(folder: Path, tensors: dict, quantization: dict | None) -> Checkpoint:
    folder.mkdir(exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    config = {} if quantization is None else {"quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(config))
    return checkpoint_sources(folder)


def graph_of(weight: LazyWeight) -> ir.Model:
    """Return y = MatMul(x, Transpose(weight))."""
    value = ir.Value(name="weight", shape=ir.Shape(weight.shape), type=ir.TensorType(ir.DataType.FLOAT))
    value.const_value = Weight(weight, "weight")
    x = ir.Value(name="x", shape=ir.Shape([1, weight.shape[1]]), type=ir.TensorType(ir.DataType.FLOAT))
    turned = ir.node("Transpose", [value], {"perm": [1, 0]})
    product = ir.node("MatMul", [x, turned.outputs[0]])
    product.outputs[0].name, product.outputs[0].type = "y", ir.TensorType(ir.DataType.FLOAT)
    made = ir.Graph([x], product.outputs, nodes=[turned, product], initializers=[value], opset_imports={"": 24})
    return ir.Model(made, ir_version=11)
