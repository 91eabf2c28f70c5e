"""Transpose linear layers' weights to the layout of MatMul."""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from speccompile.compiler.weights.graph import Weight


def transposed_weights(model: ir.Model, is_written: Callable[[ir.TensorProtocol], bool] = lambda _: True) -> int:
    """Before: MatMul(x, Transpose(weight)). After: MatMul(x, weight'), weight' transposed in the file.

    Otherwise every session transposes every weight on loading, and keeps both. A weight with another reader (an
    embedding tied to the head) stays unchanged: it is stored once. So does a weight for which `is_written` is false,
    because the graph reads it from its original file.
    """
    fired = 0
    for node in list(model.graph):
        weight = node.inputs[0] if node.op_type == "Transpose" else None
        if weight is None or not weight.is_initializer() or len(weight.uses()) > 1 or weight.const_value is None:
            continue
        if not is_written(weight.const_value):
            continue
        order = list(node.attributes["perm"].as_ints())
        weight.const_value = _transposed(weight.const_value, order)
        weight.shape = weight.const_value.shape
        ir.convenience.replace_all_uses_with(node.outputs[0], weight)
        model.graph.remove(node, safe=True)
        fired += 1
    return fired


def _transposed(tensor: ir.TensorProtocol, order: list[int]) -> ir.LazyTensor:
    """Transpose a weight while it is written, one at a time: the whole model is never held twice."""
    if isinstance(tensor, Weight):
        return Weight(tensor.source.transpose(order), tensor.name)
    shape = ir.Shape([tensor.shape[axis] for axis in order])
    return ir.LazyTensor(
        lambda: ir.Tensor(np.ascontiguousarray(tensor.numpy().transpose(order))),
        dtype=tensor.dtype, shape=shape, name=tensor.name,
    )  # fmt: skip
