"""Root-mean-square normalization in one node."""

import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.matching import Op, match_any, numbers

_MEAN = Op("ReduceMean", Op("Pow", "x", 2.0), "axes")


def divided_by_root(squares: Op) -> tuple[Op, Op]:
    """Return the forms of x / Sqrt(squares + epsilon)."""
    added = Op("Add", squares, "epsilon")
    return Op("Mul", "x", Op("Reciprocal", Op("Sqrt", added))), Op("Mul", "x", Op("Pow", added, -0.5))


_NORMALIZED = [Op("Mul", "weight", form) for form in divided_by_root(_MEAN)]


def rms_normalization(model: ir.Model) -> int:
    """Before: y = weight * (x * Reciprocal(Sqrt(ReduceMean(x ^ 2) + epsilon))), or y = weight * (x * (ReduceMean(x ^ 2)
    + epsilon) ^ -0.5), as in Gemma 3n. After: y = RMSNormalization(x, weight).

    The weight may itself be computed, as Gemma's 1 + weight is.
    """

    def normalize(nodes: Nodes, node: ir.Node) -> ir.Value | None:
        found = match_any(_NORMALIZED, node.outputs[0])
        if found is None or numbers(found["axes"]) != [-1]:
            return None
        epsilon, weight = numbers(found["epsilon"]), found["weight"]
        if epsilon is None or weight.shape is None or len(weight.shape) != 1:
            return None
        return nodes("RMSNormalization", found["x"], weight, axis=-1, epsilon=epsilon[0])

    return rewrite_nodes(model, "", "Mul", normalize)
