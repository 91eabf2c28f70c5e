"""Cancel pairs of transposes."""

import onnx_ir as ir

from speccompile.compiler.lower.passes.matching import made_by


def cancel_transposes(model: ir.Model) -> int:
    """Before: y = Transpose(Transpose(x)), the second inverting the first. After: x. Return the number of pairs."""
    fired = 0
    for node in [node for node in model.graph if made_by(node.outputs[0], "Transpose")]:
        first = made_by(node.inputs[0], "Transpose")
        if first is None or node.outputs[0].is_graph_output() or first.inputs[0] is None:
            continue
        order, back = (list(each.attributes["perm"].as_ints()) for each in (first, node))
        if [order[axis] for axis in back] == list(range(len(order))):
            ir.convenience.replace_all_uses_with(node.outputs[0], first.inputs[0])
            fired += 1
    return fired
