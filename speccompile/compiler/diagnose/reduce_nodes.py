"""The last part of a reduction: drop nodes, and turn the values that other nodes read from them into inputs.

`debug reduce` turns such values into constants instead, which it computes by running the whole graph in ONNX Runtime:
from that side it cannot reduce a graph that reads an optional input, or that needs more than 2 GB of weights.
"""

from collections.abc import Callable, Sequence

import onnx
from onnx import helper

from speccompile.compiler.diagnose.failure import TYPES, dtype_of


def cut(model: onnx.ModelProto, still_fails: Callable[[onnx.ModelProto], bool]) -> onnx.ModelProto:
    """Drop runs of nodes, long ones first, as long as the rest `still_fails`. Return the remaining graph.

    From the end on: after an unknown operator, values have no type and cannot become inputs.
    """
    smallest, kept = model, list(range(len(model.graph.node)))
    size = len(kept)
    while size := size // 2:
        end = len(kept)
        while end > 0:
            start = max(0, end - size)
            rest = kept[:start] + kept[end:]
            smaller = part(model, rest) if rest else None
            if smaller is not None and still_fails(smaller):
                smallest, kept = smaller, rest
            end = start
    return smallest


def part(model: onnx.ModelProto, kept: Sequence[int]) -> onnx.ModelProto | None:
    """Return the graph of these nodes alone; None if an input of theirs has no type or shape.

    Outputs are the values that none of them reads, and those that were outputs before.
    """
    graph = model.graph
    nodes = [graph.node[index] for index in kept]
    infos = {info.name: info for info in (*graph.value_info, *graph.output, *graph.input)}
    weights = {weight.name: weight for weight in graph.initializer}
    read = dict.fromkeys(name for node in nodes for name in _read(node))
    made = dict.fromkeys(name for node in nodes for name in node.output if name)
    known = {info.name for info in graph.input}
    inputs = [name for name in read if name not in made and name not in weights]
    if not all(name in known or _can_be_input(infos.get(name)) for name in inputs):
        return None
    before = {info.name for info in graph.output}
    outputs = [name for name in made if name not in read or name in before]
    body = helper.make_graph(
        nodes,
        graph.name,
        [infos[name] for name in inputs],
        [infos.get(name, helper.make_empty_tensor_value_info(name)) for name in outputs],
        [weights[name] for name in read if name in weights],
        value_info=[infos[name] for name in made if name in infos and name not in outputs],
    )
    smaller = onnx.ModelProto()
    smaller.CopyFrom(model)
    smaller.graph.CopyFrom(body)
    return smaller


def _read(node: onnx.NodeProto) -> list[str]:
    """Return the names that a node reads, including those that the bodies of its branches and loops read from
    outside."""
    names = [name for name in node.input if name]
    for body in (attribute.g for attribute in node.attribute if attribute.HasField("g")):
        inside = {name for each in body.node for name in each.output} | {info.name for info in body.input}
        inside |= {weight.name for weight in body.initializer}
        around = [name for each in body.node for name in _read(each)] + [info.name for info in body.output]
        names += [name for name in around if name not in inside]
    return names


def _can_be_input(info: onnx.ValueInfoProto | None) -> bool:
    if info is None or not info.type.tensor_type.HasField("shape"):
        return False
    is_fixed = all(size.HasField("dim_value") for size in info.type.tensor_type.shape.dim)
    return is_fixed and dtype_of(info) in TYPES
