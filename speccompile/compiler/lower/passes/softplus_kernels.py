"""Softplus and the logarithm as kernels."""

import onnx_ir as ir

from speccompile.compiler.lower.native import DOMAIN
from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.matching import Op, made_by, match, number

_THRESHOLD = 20.0
_SCALED = Op("Mul", "x", 1.0)
_TORCH = Op("Where", Op("Greater", _SCALED, _THRESHOLD), "x", Op("Div", Op("Softplus", _SCALED), "one"))


def softplus_kernels(model: ir.Model) -> int:
    """Before: y = Where(x * 1 > 20, x, Softplus(x * 1) / 1), as in torch, or y = Softplus(x).

    After: y = speccompile.native::Softplus(x), which needs no threshold: above 20 it is x.
    """
    return rewrite_nodes(model, "", "Where", _softplus) + rewrite_nodes(model, "", "Softplus", _as_kernel)


def logarithm(model: ir.Model) -> int:
    """Before: y = Log(x). After: y = speccompile.native::Log(x).

    ONNX Runtime computes numbers that do not fill a vector in another way.
    """
    return rewrite_nodes(model, "", "Log", _as_kernel)


def _softplus(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    found = match(_TORCH, node.outputs[0])
    if found is None:
        return None
    cast = made_by(found["one"], "CastLike")
    return (
        nodes("Softplus", found["x"], domain=DOMAIN) if number(cast.inputs[0] if cast else found["one"]) == 1 else None
    )


def _as_kernel(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    x = node.inputs[0]
    assert x is not None
    return nodes(node.op_type, x, domain=DOMAIN) if x.dtype in (ir.DataType.FLOAT, None) else None
