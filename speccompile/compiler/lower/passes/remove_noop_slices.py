"""Remove slices that select everything."""

import onnx_ir as ir


def remove_noop_slices(model: ir.Model) -> int:
    """Before: part = Slice(x, -tokens, end, axis), where the trace knows that x has `tokens` of them. After: x. Return
    their number.

    TensorRT does not know it, and would treat the size, and all sizes derived from it, as unknown.
    """
    whole = [node for node in model.graph if node.op_type == "Slice" and node.domain == "" and _is_whole(node)]
    for node in whole:
        value, part = node.inputs[0], node.outputs[0]
        assert value is not None
        ir.convenience.replace_all_uses_with(part, value)
        model.graph.remove(node, safe=True)  # later passes count readers of a value
    return len(whole)


def _is_whole(node: ir.Node) -> bool:
    value, part = node.inputs[0], node.outputs[0]
    if value is None or value.shape is None or part.shape is None or part.is_graph_output():
        return False
    if any(isinstance(size, ir.SymbolicDim) and size.value is None for size in value.shape):  # unknown size
        return False
    steps = ir.convenience.get_const_tensor(node.inputs[4]) if len(node.inputs) > 4 else None
    return steps is not None and bool((steps.numpy() == 1).all()) and tuple(value.shape) == tuple(part.shape)
