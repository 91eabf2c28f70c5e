"""Unique names of values in the branches of an If and the body of a Loop."""

from collections.abc import Iterable

import onnx_ir as ir


def name_branches(model: ir.Model) -> int:
    """Before: an If whose branches name their values as the outer graph does, which ONNX forbids.

    After: the If makes y, its branches make y/then_branch/0, y/then_branch/1, .. Return the number of branches.
    """
    return _name(model.graph)


def _name(nodes: Iterable[ir.Node]) -> int:
    count = 0
    for node in nodes:
        for branch, attribute in node.attributes.items():
            if attribute.type != ir.AttributeType.GRAPH:
                continue
            graph = attribute.as_graph()
            inner = list(graph)
            for index, value in enumerate([*graph.inputs, *(value for each in inner for value in each.outputs)]):
                value.name = f"{node.outputs[0].name}/{branch}/{index}"
            count += 1 + _name(inner)
    return count
