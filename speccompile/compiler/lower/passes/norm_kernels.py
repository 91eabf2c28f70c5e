"""Normalizations as kernels, with the residual sum before them."""

import numpy as np
import onnx_ir as ir

from speccompile.compiler.lower.native import DOMAIN
from speccompile.compiler.lower.passes import Nodes, rewrite_nodes, static_size
from speccompile.compiler.lower.passes.matching import made_by


def norm_kernels(model: ir.Model) -> int:
    """Before: s = Add(x, residual), y = RMSNormalization(s, weight). After: y, s = speccompile.native::SkipRmsNorm(x,
    residual, weight). The sum is read once less, and written while it is in the cache.

    Before: y = RMSNormalization(x, weight). After: y = speccompile.native::RmsNorm(x, weight).
    Before: y = LayerNormalization(x, weight, bias). After: y = speccompile.native::LayerNorm(x, weight, bias).
    """
    sums: dict[ir.Node, ir.Value] = {}

    def normalize(nodes: Nodes, node: ir.Node) -> ir.Value | None:
        x, weight = node.inputs
        if not _is_over_rows(node):
            return None
        epsilon = node.attributes["epsilon"].as_float()
        added = made_by(x, "Add")
        if added is None or added in sums or not _same_rows(*added.inputs):
            return nodes("RmsNorm", x, weight, domain=DOMAIN, epsilon=epsilon)
        y, total = nodes.several(2, "SkipRmsNorm", *added.inputs, weight, domain=DOMAIN, epsilon=epsilon)
        sums[added] = total
        return y

    fired = rewrite_nodes(model, "", "RMSNormalization", normalize)
    for added, total in sums.items():
        old = added.outputs[0]
        total.shape, total.type, total.name = old.shape, old.type, old.name
        assert added.graph is not None
        ir.convenience.replace_nodes_and_values(added.graph, added, [added], [], [old], [total])
    return fired + rewrite_nodes(model, "", "LayerNormalization", _layer)


def _layer(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    x, weight, *rest = node.inputs
    if len(node.outputs) != 1 or not _is_over_rows(node):
        return None
    bias = rest[0] if rest and rest[0] is not None else None
    if bias is None:
        bias = nodes("Constant", value=ir.tensor(np.zeros(static_size(x, -1), np.float32)))
    return nodes("LayerNorm", x, weight, bias, domain=DOMAIN, epsilon=node.attributes["epsilon"].as_float())


def _is_over_rows(node: ir.Node) -> bool:
    """Return whether rows of a known width, in the last axis alone, are multiplied by a weight of that width."""
    x, weight = node.inputs[:2]
    shapes = [None if value is None else value.shape for value in (x, weight)]
    if shapes[0] is None or shapes[1] is None or node.attributes["axis"].as_int() not in (-1, len(shapes[0]) - 1):
        return False
    return len(shapes[1]) == 1 and isinstance(shapes[0][-1], int) and shapes[0][-1] == shapes[1][0]


def _same_rows(x: ir.Value | None, residual: ir.Value | None) -> bool:
    """Return whether both are activations [B, T, H] of the same shape: the kernel does not broadcast."""
    shapes = [value.shape for value in (x, residual) if value is not None]
    if len(shapes) != 2 or shapes[0] is None or shapes[1] is None:
        return False
    return len(shapes[0]) == 3 and shapes[0] == shapes[1]
