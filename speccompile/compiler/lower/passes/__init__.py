"""Rewrites of an ONNX graph, one per file.

A pass is a function Model -> int: it changes the model in place and returns its number of rewrites. Its docstring shows
the graph before and after.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx_ir as ir

Rewrite = Callable[["Nodes", ir.Node], ir.Value | Sequence[ir.Value] | None]
Branch = Callable[["Nodes"], Sequence[ir.Value]]


class Nodes:
    """The nodes that will replace one node, in order."""

    def __init__(self) -> None:
        self.nodes: list[ir.Node] = []

    def __call__(
        self, op: str, *inputs: ir.Value, domain: str = "", **attributes: int | float | str | Sequence[int]
    ) -> ir.Value:
        """Append a node with one output."""
        return self.several(1, op, *inputs, domain=domain, **attributes)[0]

    def several(
        self, count: int, op: str, *inputs: ir.Value, domain: str = "", **attributes: int | float | str | Sequence[int]
    ) -> Sequence[ir.Value]:
        """Append a node with `count` outputs."""
        node = ir.node(op, list(inputs), attributes, domain=domain, num_outputs=count)
        self.nodes.append(node)
        return node.outputs

    def if_else(self, condition: ir.Value, then: Branch, otherwise: Branch) -> Sequence[ir.Value]:
        """Append an If over a boolean of one element: only one branch is computed, and both give the same types."""
        graphs = [_subgraph(branch) for branch in (then, otherwise)]
        count = len(graphs[0].outputs)
        node = ir.node("If", [condition], {"then_branch": graphs[0], "else_branch": graphs[1]}, num_outputs=count)
        self.nodes.append(node)
        return node.outputs

    def repeat(self, count: int, body: Callable[..., Sequence[ir.Value]], *start: ir.Value) -> Sequence[ir.Value]:
        """Append a Loop that replaces float32 values by the results of `body(nodes, *values)`, `count` times."""
        kinds = (ir.DataType.INT64, ir.DataType.BOOL, *[ir.DataType.FLOAT] * len(start))
        inputs = [ir.Value(name=f"given_{index}", type=ir.TensorType(kind)) for index, kind in enumerate(kinds)]
        for value, given in zip(inputs, ([], [], *(each.shape for each in start)), strict=True):
            value.shape = ir.Shape(given) if given is not None else None

        def step(inner: Nodes) -> Sequence[ir.Value]:
            goes_on = inner("Identity", inputs[1])
            goes_on.type = inputs[1].type
            return [goes_on, *body(inner, *inputs[2:])]

        trips = self("Constant", value_int=count)
        goes_on = self("Constant", value=ir.tensor(np.array(True)))
        node = ir.node("Loop", [trips, goes_on, *start], {"body": _subgraph(step, inputs)}, num_outputs=len(start))
        self.nodes.append(node)
        return node.outputs

    def reduce_any(self, rows: ir.Value) -> ir.Value:
        """Append whether any of the booleans is true: a condition for `if_else`."""
        largest = self("ReduceMax", self("Cast", rows, to=int(ir.DataType.INT32)), keepdims=0)
        return self("Cast", largest, to=int(ir.DataType.BOOL))

    def discard(self) -> None:
        """Detach the nodes from their inputs, so that they no longer count as readers."""
        for node in self.nodes:
            node.resize_inputs(0)

    def integers(self, *values: int) -> ir.Value:
        """Append an int64 vector. Equal ones are merged later."""
        return self("Constant", value=ir.tensor(np.array(values, np.int64)))

    def number(self, value: float, like: ir.DataType | None = None) -> ir.Value:
        """Append a scalar of the given type, float32 if none is known."""
        return self("Constant", value=ir.tensor(np.array(value, (like or ir.DataType.FLOAT).numpy())))


def _subgraph(branch: Branch, inputs: Sequence[ir.Value] = ()) -> ir.Graph:
    nodes = Nodes()
    outputs = branch(nodes)
    for value in outputs:
        value.type = value.type or ir.TensorType(ir.DataType.FLOAT)
    return ir.Graph(list(inputs), list(outputs), nodes=nodes.nodes, name="branch")


_BRANCHING = ("If", "Loop", "Scan")


def _every_node(graph: ir.Graph) -> Iterator[ir.Node]:
    """Yield the nodes of a graph and of its branches. onnx_ir's own iterator looks at all attributes of each node,
    which takes a third of a lowering's time."""
    for node in graph:
        yield node
        if node.op_type in _BRANCHING:
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.GRAPH:
                    yield from _every_node(attribute.as_graph())


def nodes_of(graph: ir.Graph, domain: str, op: str) -> list[ir.Node]:
    """Return the nodes `domain::op` of a graph, those of its branches left out."""
    return [node for node in graph if node.op_type == op and node.domain == domain]


def rewrite_nodes(model: ir.Model, domain: str, op: str, rewrite: Rewrite) -> int:
    """Replace every node `domain::op` by the nodes of `rewrite(nodes, node)`, which returns the new results.

    Return the number of replacements; a node stays if `rewrite` returns None.
    """
    fired = 0
    for node in [node for node in _every_node(model.graph) if node.op_type == op and node.domain == domain]:
        nodes = Nodes()
        made = rewrite(nodes, node)
        if made is None:
            nodes.discard()
            continue
        results = [made] if isinstance(made, ir.Value) else list(made)
        for result, old in zip(results, node.outputs, strict=True):
            result.shape, result.type, result.name = old.shape, old.type, old.name
        assert node.graph is not None
        ir.convenience.replace_nodes_and_values(node.graph, node, [node], nodes.nodes, node.outputs, results)
        fired += 1
    return fired


def replace_value(old: ir.Value, new: ir.Value) -> None:
    """Replace a value by another one everywhere, and keep its name and its type."""
    new.type, new.shape = old.type or new.type, old.shape or new.shape
    new.name, old.name = old.name, None
    ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)


SAME = 0
"""A Reshape's value for an unchanged size."""


def batch_or_same(value: ir.Value | None) -> int:
    """Return a Reshape's size for the first axis, which it keeps in place: the number, if the trace knows one."""
    assert value is not None
    assert value.shape is not None
    size = value.shape[0]
    return size if isinstance(size, int) else SAME


def static_size(value: ir.Value | None, axis: int) -> int:
    """Return the static size along an axis. Raise TypeError if the trace does not know it."""
    assert value is not None
    assert value.shape is not None
    size = value.shape[axis]
    if not isinstance(size, int):
        raise TypeError(f"{value.name}: axis {axis} of {value.shape} is not a fixed size")
    return size
