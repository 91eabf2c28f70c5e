"""Arithmetic on constants, done once."""

import onnx_ir as ir
from onnx_ir.passes import common
from onnxscript import optimizer

_NO_WEIGHTS = (ir.DataType.INT64, ir.DataType.BOOL)


def fold_constants(model: ir.Model) -> int:
    """Before: Slice(x, Reshape(Cast(0), [-1]), ..). After: Slice(x, [0], ..). Return the number of removed nodes.

    ONNX Runtime does it too, on every load; here it lets later passes see numbers. Weights stay unchanged. Constants of
    a module's tree do not: TensorRT-RTX fails on a Clip of int64 constants.
    """
    before = len(model.graph)
    weights = {value for value in model.graph.initializers.values() if value.dtype not in _NO_WEIGHTS}

    def should_fold(node: ir.Node) -> bool | None:
        return False if weights.intersection(node.inputs) else None  # None: the folder decides

    optimizer.fold_constants(model, should_fold=should_fold)
    common.RemoveUnusedNodesPass()(model)
    return before - len(model.graph)
