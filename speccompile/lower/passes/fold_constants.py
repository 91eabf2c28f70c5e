"""Arithmetic on constants, done once."""

import onnx_ir as ir
from onnx_ir.passes import common
from onnxscript.optimizer import fold_constants as fold


def fold_constants(model: ir.Model) -> int:
    """Before: Slice(x, Reshape(Cast(0), [-1]), ..). After: Slice(x, [0], ..). Returns how many nodes that saves.

    ONNX Runtime does it too, on every loading; here it lets the passes behind see numbers. Weights stay as they are.
    """
    before = len(model.graph)
    fold(model, should_fold=lambda node: None if not any(v and v.is_initializer() for v in node.inputs) else False)
    common.RemoveUnusedNodesPass()(model)
    return before - len(model.graph)
