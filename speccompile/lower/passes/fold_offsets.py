"""Weights that models store less one."""

import numpy as np
import onnx_ir as ir

from speccompile.lower.passes.matching import numbers


def fold_offsets(model: ir.Model) -> int:
    """Before: Add(weight, number), the weight a vector. After: their sum, a weight.

    Gemma's norms scale by 1 + weight.
    """
    fired = 0
    for node in [node for node in model.graph if node.op_type == "Add" and node.domain == ""]:
        weight, offset = sorted(node.inputs, key=lambda value: 0 if value is None else -_size(value))
        if weight is None or offset is None or _size(weight) < 2 or _size(offset) != 1:
            continue
        tensor, (number,) = weight.const_value, numbers(offset) or [0.0]
        assert tensor is not None
        array = tensor.numpy()
        total = ir.tensor(array + np.array(number, array.dtype), name=f"{weight.name}.{node.outputs[0].name}")
        folded = ir.Value(name=total.name, shape=total.shape, type=ir.TensorType(total.dtype), const_value=total)
        model.graph.register_initializer(folded)
        ir.convenience.replace_all_uses_with(node.outputs[0], folded)
        model.graph.remove(node, safe=True)
        fired += 1
    return fired


def _size(value: ir.Value) -> int:
    """Elements of a constant that is a vector or a number, 0 for any other value."""
    tensor = ir.convenience.get_const_tensor(value)
    is_weight = value.is_initializer() or (tensor is not None and tensor.size == 1)
    return tensor.size if tensor is not None and is_weight and len(tensor.shape) < 2 else 0
