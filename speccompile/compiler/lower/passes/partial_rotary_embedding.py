"""Rotary position embedding of a row's first columns."""

import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.matching import made_by, match_slice


def partial_rotary_embedding(model: ir.Model) -> int:
    """Before: y = Concat(RotaryEmbedding(Slice(x, 0, r), cos, sin), Slice(x, r, D)).

    After: y = RotaryEmbedding<rotary_embedding_dim = r>(x, cos, sin).
    """
    return rewrite_nodes(model, "", "Concat", _widen)


def _widen(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    rotary = made_by(node.inputs[0], "RotaryEmbedding")
    if rotary is None or len(node.inputs) != 2:
        return None
    turned, rest = match_slice(rotary.inputs[0]), match_slice(node.inputs[1])
    if turned is None or rest is None or (rest.source, rest.start) != (turned.source, turned.stop):
        return None
    if turned.start != 0 or rest.stop != rest.width or (turned.step, rest.step) != (1, 1):
        return None
    _, cos, sin = rotary.inputs
    assert cos is not None
    assert sin is not None
    attributes = {"interleaved": rotary.attributes["interleaved"].as_int(), "rotary_embedding_dim": turned.stop}
    return nodes("RotaryEmbedding", turned.source, cos, sin, **attributes)
