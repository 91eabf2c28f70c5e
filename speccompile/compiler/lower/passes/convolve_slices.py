"""A convolution over few tokens in plain nodes, for engines that support no Scan with computed slices."""

import onnx_ir as ir

from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.passes import Nodes, rewrite_nodes, static_size

_END = 2**63 - 1


def convolve_slices(model: ir.Model) -> int:
    """Before: result = speccompile::Convolve(rows, state, weight), rows [B, 1, T, C], weight [C, K].

    After, with a product for every tap, added up in the same order, the oldest first:

        behind = Concat<axis = 2>(state, rows)
        tap    = Gather(Transpose(weight), k)
        result = Slice(behind, 0, 1 - K) * tap_0 + Slice(behind, 1, 2 - K) * tap_1 + .. + Slice(behind, K - 1) * tap_K-1

    Every slice's bounds are numbers, counted from the end.
    """

    def slices(nodes: Nodes, node: ir.Node) -> ir.Value:
        rows, state, weight = (value for value in node.inputs if value is not None)
        behind, taps = nodes("Concat", state, rows, axis=2), nodes("Transpose", weight, perm=[1, 0])
        count, axis, result = static_size(weight, 1), nodes.integers(2), None
        for place in range(count):
            end = place + 1 - count or _END
            part = nodes("Slice", behind, nodes.integers(place), nodes.integers(end), axis)
            product = nodes("Mul", part, nodes("Gather", taps, nodes("Constant", value_int=place), axis=0))
            result = product if result is None else nodes("Add", result, product)
        assert result is not None
        return result

    return rewrite_nodes(model, neutral.DOMAIN, "Convolve", slices)
