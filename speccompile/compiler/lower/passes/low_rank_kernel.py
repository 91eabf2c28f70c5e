"""Lower LoRA adapters to the operator of the kernels."""

import onnx_ir as ir

from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.native import DOMAIN
from speccompile.compiler.lower.passes import Nodes, rewrite_nodes


def low_rank_kernel(model: ir.Model) -> int:
    """Before: speccompile::LowRank(y, x, a, b, adapter). After: speccompile.native::LowRank with the same inputs."""
    return rewrite_nodes(model, neutral.DOMAIN, "LowRank", _kernel)


def _kernel(nodes: Nodes, node: ir.Node) -> ir.Value:
    return nodes("LowRank", *(value for value in node.inputs if value is not None), domain=DOMAIN)
