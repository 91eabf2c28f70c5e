"""Normalizations without a weight."""

import numpy as np
import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.matching import Op, match_any, numbers
from speccompile.compiler.lower.passes.rms_normalization import divided_by_root

_MEAN = Op("ReduceMean", Op("Pow", "x", 2.0), "axes")
_SUM = Op("ReduceSum", Op("Mul", "x", "x"), "axes")


def bare_normalization(model: ir.Model) -> int:
    """Before: y = x * Reciprocal(Sqrt(ReduceMean(x ^ 2) + epsilon)), as of the groups of a row, or with a
    power of -0.5. After: y = RMSNormalization(x, ones).

    Before: y = x * Reciprocal(Sqrt(ReduceSum(x * x) + epsilon)), x [.., K], as of the keys of a delta rule. After:
    y = RMSNormalization(x, 1 / sqrt(K)), the epsilon divided by K.
    """
    return rewrite_nodes(model, "", "Mul", _normalize)


def _normalize(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    if not node.outputs[0].uses():  # what a pass before has left behind
        return None
    for squares in (_MEAN, _SUM):
        found = match_any(divided_by_root(squares), node.outputs[0])
        if found is None:
            continue
        x, epsilon, axes = found["x"], numbers(found["epsilon"]), numbers(found["axes"])
        if x.shape is None or epsilon is None or len(epsilon) != 1 or axes not in ([-1], [len(x.shape) - 1]):
            return None
        width = x.shape[-1]
        if not isinstance(width, int):
            return None
        share = 1 if squares is _MEAN else width
        weight = nodes("Constant", value=ir.tensor(np.full(width, share**-0.5, np.float32)))
        weight.shape, weight.type = ir.Shape([width]), ir.TensorType(ir.DataType.FLOAT)
        return nodes("RMSNormalization", x, weight, axis=-1, epsilon=epsilon[0] / share)
    return None
