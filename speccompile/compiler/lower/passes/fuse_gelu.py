"""Fuse the tanh approximation of GELU (Hendrycks and Gimpel 2016, section 2), which older models write out."""

from math import isclose, pi, sqrt

import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.matching import Op, match, number

_INNER = Op("Add", "x", Op("Mul", Op("Pow", "x", 3.0), "cubic"))
_GELU = Op("Mul", Op("Mul", "x", 0.5), Op("Add", Op("Tanh", Op("Mul", _INNER, "slope")), 1.0))
_NUMBERS = {"cubic": 0.044715, "slope": sqrt(2 / pi)}


def fuse_gelu(model: ir.Model) -> int:
    """Before: x / 2 * (1 + Tanh(sqrt(2 / pi) * (x + 0.044715 x^3))). After: Gelu(x), approximate = "tanh"."""
    return rewrite_nodes(model, "", "Mul", _as_one)


def _as_one(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    found = match(_GELU, node.outputs[0])
    if found is None:
        return None
    if not all(isclose(number(found[name]) or 0.0, wanted, abs_tol=1e-6) for name, wanted in _NUMBERS.items()):
        return None
    return nodes("Gelu", found["x"], approximate="tanh")
