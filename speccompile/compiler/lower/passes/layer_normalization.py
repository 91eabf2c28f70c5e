"""Layer normalization without a bias in one node."""

import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.matching import Op, match, numbers

_CENTRED = Op("RMSNormalization", Op("Sub", "x", Op("ReduceMean", "x", "axes")), "weight")


def layer_normalization(model: ir.Model) -> int:
    """Before: y = RMSNormalization(x - ReduceMean(x), weight). After: y = LayerNormalization(x, weight)."""

    def normalize(nodes: Nodes, node: ir.Node) -> ir.Value | None:
        found = match(_CENTRED, node.outputs[0])
        if found is None or numbers(found["axes"]) != [-1]:
            return None
        epsilon = node.attributes["epsilon"].as_float()
        return nodes("LayerNormalization", found["x"], found["weight"], axis=-1, epsilon=epsilon)

    return rewrite_nodes(model, "", "RMSNormalization", normalize)
