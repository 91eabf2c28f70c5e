"""Kernels one behind the other in one node."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir
from onnx_ir.passes.common import TopologicalSortPass

from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.native import CHAIN, DOMAIN, VERSION
from speccompile.compiler.lower.passes import Nodes, rewrite_nodes

_LINKS = ("Linear", "Attend", "Gated", "Recur")
_LINKED = {"SplitHeads", "RotaryHeads", "NormRotaryHeads", "RmsNorm", "SkipRmsNorm", "LayerNorm", "LowRank", "Softplus",
           "Convolve", "JoinRows", "RotaryTables", "Choose"}  # fmt: skip
"""Kernels whose results are floats, and which change nothing in place. Lookups of tokens stay nodes of their own, by
which `bench` counts bytes."""


def chain_kernels(model: ir.Model) -> int:
    """Before: a = speccompile.native::RmsNorm(x, weight), y = speccompile.native::LinearInt4(a, ..), ..

    After: y, .. = speccompile.native::Chain<steps, results, inputs, ..>(x, weight, ..) in place of all kernels from one
    attention up to the next, as far as nothing else stands between them. ONNX Runtime takes as long for a node as a
    small kernel does.
    """
    rewrite_nodes(model, "", "Concat", _joined)
    TopologicalSortPass()(model)
    programs: dict[tuple[object, ...], str] = {}
    chains = [chain for chain in _chains(model.graph) if len(chain.nodes) > 1]
    for chain in chains:
        _replace(model, chain, programs)
    return len(chains)


def _joined(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    """Join two blocks of rows that an attention reads by a kernel, which a chain can hold."""
    is_read = any(
        neutral.is_attend(reader.op_type) and reader.domain == DOMAIN for reader in node.outputs[0].consumers()
    )
    if len(node.inputs) != 2 or node.attributes["axis"].as_int() != 2 or not is_read:
        return None
    if node.outputs[0].dtype != ir.DataType.FLOAT:
        return None
    return nodes("JoinRows", *_inputs(node), domain=DOMAIN)


def unchain_kernels(model: ir.Model) -> None:
    """Put the kernels of all chains back in their place, for passes that look for one of them."""
    for node in [node for node in model.graph if (node.domain, node.op_type) == (DOMAIN, CHAIN)]:
        function = model.functions[node.op_identifier()]
        values = dict(zip(function.inputs, node.inputs, strict=True))
        nodes = [_copy(each, values) for each in function]
        for number, value in enumerate(made for each in nodes for made in each.outputs):
            value.name = f"{node.name}_{number}"
        results = [values[value] for value in function.outputs]
        for new, old in zip(results, node.outputs, strict=True):
            assert new is not None
            new.shape, new.type, new.name = old.shape, old.type, old.name
        ir.convenience.replace_nodes_and_values(model.graph, node, [node], nodes, node.outputs, results)
    for name in [name for name in model.functions if name[:2] == (DOMAIN, CHAIN)]:
        del model.functions[name]


@dataclass
class _Chain:
    """nodes: in the order of the graph; made: their results; beyond: values that depend on them by way of nodes that
    are not among them."""

    nodes: list[ir.Node] = field(default_factory=list)
    made: set[ir.Value] = field(default_factory=set)
    beyond: set[ir.Value] = field(default_factory=set)

    def takes(self, node: ir.Node) -> bool:
        if neutral.is_attend(node.op_type) and any(neutral.is_attend(each.op_type) for each in self.nodes):
            return False  # a graph is stopped between two nodes
        return not any(value in self.beyond for value in node.inputs)

    def add(self, node: ir.Node) -> None:
        self.nodes.append(node)
        self.made.update(node.outputs)

    def pass_by(self, node: ir.Node) -> None:
        if any(value in self.made or value in self.beyond for value in read_values(node)):
            self.beyond.update(node.outputs)


def _chains(graph: ir.Graph) -> Iterator[_Chain]:
    current = _Chain()
    for node in graph:
        if not _is_link(node):
            current.pass_by(node)
            continue
        if not current.takes(node):
            yield current
            current = _Chain()
        current.add(node)
    yield current


def _is_link(node: ir.Node) -> bool:
    return node.domain == DOMAIN and (node.op_type.startswith(_LINKS) or node.op_type in _LINKED)


def read_values(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the values that a node reads, in its branches as well."""
    yield from filter(None, node.inputs)
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            for inner in attribute.as_graph():
                yield from read_values(inner)


def _inputs(node: ir.Node) -> list[ir.Value]:
    return [value for value in node.inputs if value is not None]


def _replace(model: ir.Model, chain: _Chain, programs: dict[tuple[object, ...], str]) -> None:
    """Replace nodes by one, with a function for each sequence of kernels and attributes."""
    inside = set(chain.nodes)
    made = [value for node in chain.nodes for value in node.outputs]
    given = [
        value
        for value in dict.fromkeys(value for node in chain.nodes for value in _inputs(node))
        if value not in chain.made
    ]
    numbers = {value: number for number, value in enumerate([*given, *made])}
    results = [
        value for value in made if value.is_graph_output() or any(reader not in inside for reader in value.consumers())
    ]
    steps = "\n".join(
        " ".join([node.op_type, *(str(numbers[value]) for value in _inputs(node))]) for node in chain.nodes
    )
    attributes: dict[str, ir.Attr] = {
        f"{name}_{step}": ir.Attr(f"{name}_{step}", each.type, each.value)
        for step, node in enumerate(chain.nodes)
        for name, each in node.attributes.items()
    }
    texts = {"steps": steps, "results": " ".join(str(numbers[value]) for value in results)}
    program = (*texts.values(), *((name, each.value) for name, each in attributes.items()))
    if program not in programs:
        programs[program] = f"{len(programs)}"
        function = function_of(CHAIN, programs[program], chain.nodes, given, results)
        model.functions[function.identifier()] = function
    own = [ir.AttrString(name, text) for name, text in texts.items()]
    node = ir.Node(
        DOMAIN, CHAIN, given, [*own, ir.AttrInt64("inputs", len(given)), *attributes.values()],
        overload=programs[program], num_outputs=len(results),
    )  # fmt: skip
    for new, old in zip(node.outputs, results, strict=True):
        new.shape, new.type, new.name = old.shape, old.type, old.name
    last = chain.nodes[-1]
    ir.convenience.replace_nodes_and_values(model.graph, last, chain.nodes, [node], results, node.outputs)


def function_of(
    op: str, overload: str, nodes: Sequence[ir.Node], given: Sequence[ir.Value], results: Sequence[ir.Value],
    constants: Mapping[ir.Value, ir.Node] | None = None,
) -> ir.Function:  # fmt: skip
    """Return nodes as a function: what an operator of several steps computes without the library. given: what the
    nodes read; results: the values that the function returns; constants: values that it holds, with nodes for them."""
    inner: dict[ir.Value, ir.Value | None] = {value: ir.Value(name=f"x{number}") for number, value in enumerate(given)}
    held = constants or {}
    inner.update((value, node.outputs[0]) for value, node in held.items())
    copies = [*held.values(), *(_copy(node, inner) for node in nodes)]
    for number, value in enumerate(made for node in copies for made in node.outputs):
        value.name = f"y{number}"
    graph = ir.Graph(
        [inner[value] for value in given], [inner[value] for value in results], nodes=copies, name=op,
        opset_imports={"": neutral.OPSET, DOMAIN: VERSION},
    )  # fmt: skip
    return ir.Function(DOMAIN, op, overload, graph=graph, attributes=[])


def _copy(node: ir.Node, values: dict[ir.Value, ir.Value | None]) -> ir.Node:
    """Return a node like another with the values that stand for its inputs, and note what its outputs stand for."""
    given = [None if value is None else values[value] for value in node.inputs]
    attributes = list(node.attributes.values())
    copy = ir.Node(node.domain, node.op_type, given, attributes, num_outputs=len(node.outputs))
    values.update(zip(node.outputs, copy.outputs, strict=True))
    return copy
