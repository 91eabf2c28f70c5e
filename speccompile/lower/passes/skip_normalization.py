"""A residual sum and the normalization of it in one node."""

import onnx_ir as ir

from speccompile.lower.passes import ONNXRUNTIME, Nodes, replace_each
from speccompile.lower.passes.matching import made_by


def skip_normalization(model: ir.Model) -> int:
    """Before: s = Add(x, residual), y = RMSNormalization(s, weight).

    After: y, _, _, s = com.microsoft::SkipSimplifiedLayerNormalization(x, residual, weight). The sum is read once less,
    and written while it is in the cache.
    """
    sums: dict[ir.Node, ir.Value] = {}

    def normalize(nodes: Nodes, node: ir.Node) -> ir.Value | None:
        added = made_by(node.inputs[0], "Add")
        weight = node.inputs[1]
        if added is None or weight is None or added in sums:
            return None
        x, residual = added.inputs
        if not _same_rows(x, residual):
            return None
        made = nodes.several(
            4, "SkipSimplifiedLayerNormalization", x, residual, weight, domain=ONNXRUNTIME,
            epsilon=node.attributes["epsilon"].as_float(),
        )  # fmt: skip
        sums[added] = made[3]
        return made[0]

    fired = replace_each(model, "", "RMSNormalization", normalize)
    for added, total in sums.items():
        old = added.outputs[0]
        total.shape, total.type, total.name = old.shape, old.type, old.name
        assert added.graph is not None
        ir.convenience.replace_nodes_and_values(added.graph, added, [added], [], [old], [total])
    if fired:
        model.opset_imports[ONNXRUNTIME] = 1
    return fired


def _same_rows(x: ir.Value | None, residual: ir.Value | None) -> bool:
    """Whether both are activations [B, T, H] of the same shape: the operator does not broadcast."""
    shapes = [value.shape for value in (x, residual) if value is not None]
    if len(shapes) != 2 or shapes[0] is None or shapes[1] is None:
        return False
    return len(shapes[0]) == 3 and shapes[0] == shapes[1]
