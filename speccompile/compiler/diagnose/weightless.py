"""Lowered graphs without their weights: placeholders have the same types and shapes, and meaningless values."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx_ir as ir
from onnx_ir.passes import common

from speccompile.compiler.lower.passes.fold_constants import fold_constants

WEIGHTS = "placeholders.weights"

_BYTE = b"\x3c"
"""In every type a number near 1 that is neither zero nor infinite, so that a scale may be made of it."""

_STEP = 256
"""Offset in bytes between placeholders, which overlap in the file. TensorRT distinguishes weights by their first
byte."""

_SMALLEST = 1024  # bytes: shorter tables stay as they are
_INDEX = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL)


def write_weightless(model: ir.Model, folder: Path, name: str) -> Path:
    """Write `model` into `folder`, its large weights as placeholders in the file WEIGHTS. Returns the graph's path.

    The file is as large as the largest weight. Tables of integers keep their values, and lie in the graph.
    """
    size = 0
    for index, value in enumerate(model.graph.initializers.values()):
        weight = value.const_value
        assert weight is not None
        if weight.dtype in _INDEX or weight.nbytes < _SMALLEST:
            value.const_value = ir.Tensor(weight.numpy(), name=weight.name)
            continue
        value.const_value = ir.ExternalTensor(
            WEIGHTS, index * _STEP, weight.nbytes, weight.dtype, shape=weight.shape, name=value.name, base_dir=folder
        )
        size = max(size, index * _STEP + weight.nbytes)
    if size:
        (folder / WEIGHTS).write_bytes(_BYTE * size)
    path = folder / name
    ir.save(model, path)
    return path


def fix_sizes(model: ir.Model, shapes: Mapping[str, Sequence[int]]) -> None:
    """Set the shapes of inputs, and the resulting shape of every later value; nodes that compute shapes are folded."""
    for value in model.graph.inputs:
        if value.name in shapes:
            value.shape = ir.Shape(shapes[value.name])
    for node in model.graph:
        for value in node.outputs:
            value.shape = None
    fold_constants(model)
    common.ShapeInferencePass(data_prop=True)(model)
