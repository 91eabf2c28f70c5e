"""Arithmetic on constants, done once."""

import onnx_ir as ir
from onnx_ir.passes import common
from onnxscript import optimizer


def fold_constants(model: ir.Model) -> int:
    """Before: Slice(x, Reshape(Cast(0), [-1]), ..). After: Slice(x, [0], ..). Returns how many nodes that saves.

    ONNX Runtime does it too, on every loading; here it lets the passes behind see numbers. Weights stay as they are.
    """
    before, weights = len(model.graph), set(model.graph.initializers.values())

    def should_fold(node: ir.Node) -> bool | None:
        return False if weights.intersection(node.inputs) else None  # None: where the folder thinks it pays

    optimizer.fold_constants(model, should_fold=should_fold)
    common.RemoveUnusedNodesPass()(model)
    return before - len(model.graph)
