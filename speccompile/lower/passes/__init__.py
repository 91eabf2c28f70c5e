"""Rewrites of an ONNX graph, one a file.

A pass is a function Model -> int: it changes the model in place and returns how often it fired. Its docstring shows
the graph before and after.
"""

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

Rewrite = Callable[["Nodes", ir.Node], ir.Value | None]


class Nodes:
    """The nodes that will stand in for one, in order."""

    def __init__(self) -> None:
        self.nodes: list[ir.Node] = []

    def __call__(self, op: str, *inputs: ir.Value, **attributes: int | float | str | Sequence[int]) -> ir.Value:
        """Append a node with one output."""
        node = ir.node(op, list(inputs), attributes)
        self.nodes.append(node)
        return node.outputs[0]

    def discard(self) -> None:
        """Let go of what the nodes read, so that nothing counts as read by them."""
        for node in self.nodes:
            node.resize_inputs(0)

    def integers(self, *values: int) -> ir.Value:
        """An int64 vector. Equal ones are merged later."""
        return self("Constant", value=ir.tensor(np.array(values, np.int64)))

    def number(self, value: float, like: ir.DataType | None = None) -> ir.Value:
        """A scalar of the given type, float32 when none is known."""
        return self("Constant", value=ir.tensor(np.array(value, (like or ir.DataType.FLOAT).numpy())))


def replace_each(model: ir.Model, domain: str, op: str, rewrite: Rewrite) -> int:
    """Replace every node `domain::op` by what `rewrite(nodes, node)` builds, whose last node gives the new result.

    Returns how many were replaced; where `rewrite` returns None the node stays as it is.
    """
    fired = 0
    for node in [node for node in model.graph if node.domain == domain and node.op_type == op]:
        nodes = Nodes()
        result = rewrite(nodes, node)
        if result is None:
            nodes.discard()
        else:
            old = node.outputs[0]
            result.shape, result.type, result.name = old.shape, old.type, old.name
            ir.convenience.replace_nodes_and_values(model.graph, node, [node], nodes.nodes, [old], [result])
            fired += 1
    return fired


def static_size(value: ir.Value | None, axis: int) -> int:
    """The size along an axis that the trace knows to be a number. Raises TypeError when it does not."""
    assert value is not None
    assert value.shape is not None
    size = value.shape[axis]
    if not isinstance(size, int):
        raise TypeError(f"{value.name}: axis {axis} of {value.shape} is not a fixed size")
    return size
