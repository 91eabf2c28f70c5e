"""Transposes that undo each other."""

import onnx_ir as ir

from speccompile.compiler.lower.passes.matching import made_by


def cancel_transposes(model: ir.Model) -> int:
    """Before: y = Transpose(Transpose(x)), the second puts the axes back. After: x. Returns how many there were."""
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
