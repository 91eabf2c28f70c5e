"""Fold constant offsets of weights."""

import numpy as np
import onnx_ir as ir

from speccompile.compiler.lower.passes.matching import number


def fold_offsets(model: ir.Model) -> int:
    """Before: Add(weight, number), the weight a vector. After: their sum, a weight.

    Gemma's norms scale by 1 + weight.
    """
    fired = 0
    for node in [node for node in model.graph if node.op_type == "Add" and node.domain == ""]:
        weight = next((value for value in node.inputs if value is not None and _is_vector(value)), None)
        offset = next((found for value in node.inputs if (found := _offset(value)) is not None), None)
        if weight is None or weight.const_value is None or offset is None:
            continue
        array = weight.const_value.numpy()
        total = ir.tensor(array + np.array(offset, array.dtype), name=f"{weight.name}.{node.outputs[0].name}")
        folded = ir.Value(name=total.name, shape=total.shape, type=ir.TensorType(total.dtype), const_value=total)
        model.graph.register_initializer(folded)
        ir.convenience.replace_all_uses_with(node.outputs[0], folded)
        model.graph.remove(node, safe=True)
        fired += 1
    return fired


def _is_vector(value: ir.Value) -> bool:
    """Return whether this is a weight with one axis of several numbers."""
    tensor = value.const_value if value.is_initializer() else None
    return tensor is not None and len(tensor.shape) == 1 and tensor.size > 1


def _offset(value: ir.Value | None) -> float | None:
    """Return a number, if adding it does not change a vector's shape."""
    tensor = ir.convenience.get_const_tensor(value) if value is not None else None
    return number(value) if tensor is not None and len(tensor.shape) < 2 else None
