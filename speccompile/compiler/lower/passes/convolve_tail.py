"""Fuse convolutions with the bias and activation after them."""

import onnx_ir as ir

from speccompile.compiler.lower.native import DOMAIN
from speccompile.compiler.lower.passes import Nodes, nodes_of, replace_value
from speccompile.compiler.lower.passes.matching import made_by, number


def convolve_tail(model: ir.Model) -> int:
    """Before: x = Gather<axis = 1>(speccompile.native::Convolve(.., zeros), 0), or that + bias, and y = x * Sigmoid(x).

    After: y = Squeeze(speccompile.native::Convolve<silu = 1>(.., bias)), or x so without an activation.
    """
    kernels = nodes_of(model.graph, DOMAIN, "Convolve")
    return sum(_join(model.graph, node) for node in kernels)


def _join(graph: ir.Graph, node: ir.Node) -> bool:
    rows = _only_reader(node.outputs[0], "Gather")
    if rows is None or rows.attributes["axis"].as_int() != 1 or number(rows.inputs[1]) != 0:
        return False
    *inputs, bias = node.inputs
    last = rows.outputs[0]
    added = _only_reader(last, "Add")
    if added is not None:
        found = next((value for value in added.inputs if value is not last), None)
        if found is not None and found.shape is not None and last.shape is not None and found.shape == last.shape[-1:]:
            bias, last = found, added.outputs[0]
    swish = _swish(last)
    last = swish or last
    nodes = Nodes()
    given = [value for value in (*inputs, bias) if value is not None]
    joined = nodes("Convolve", *given, domain=DOMAIN, silu=int(swish is not None))
    result = nodes("Squeeze", joined, nodes.integers(1))
    made = last.producer()
    assert made is not None
    graph.insert_before(made, nodes.nodes)
    replace_value(last, result)
    return True


def _only_reader(value: ir.Value, op: str) -> ir.Node | None:
    readers = list(value.consumers())
    return (
        readers[0] if len(readers) == 1 and made_by(readers[0].outputs[0], op) and not value.is_graph_output() else None
    )


def _swish(x: ir.Value) -> ir.Value | None:
    """Return x * Sigmoid(x), if nothing else reads x."""
    readers = list(dict.fromkeys(x.consumers()))
    opened = [node for node in readers if made_by(node.outputs[0], "Sigmoid")]
    products = [node for node in readers if made_by(node.outputs[0], "Mul")]
    if len(readers) != 2 or len(opened) != 1 or len(products) != 1:
        return None
    (product,) = products
    return product.outputs[0] if set(product.inputs) == {x, opened[0].outputs[0]} else None
