"""Arithmetic on positions, counts and masks in a few nodes."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass, TopologicalSortPass

from speccompile.compiler.lower.native import DOMAIN, INTEGERS
from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.chain_kernels import function_of, read_values

_INT64, _BOOL = ir.DataType.INT64, ir.DataType.BOOL
_COMPARISONS = {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Not"}
_PLAIN = {*_COMPARISONS, "Add", "Sub", "Mul", "Div", "Where", "Clip", "Identity", "Reshape", "Expand"}
_ON_AXIS = {"Concat", "GatherElements", "Gather"}
_MOST_CONSTANT = 1024
"""Maximum elements of a constant that a program holds as text."""


def integer_programs(model: ir.Model) -> int:
    """Before: positions = Clip(Add(Unsqueeze(length, [1]), Range(0, window, 1)), , limit), .. of int64 and bool

    After: positions, .. = speccompile.native::Integers<steps, results, inputs>(length, window, ..) in place of all of
    these nodes that need nothing which the graph computes from one of them by other nodes. A choice between two numbers
    is speccompile.native::Choose, which a chain can hold.
    """
    rewrite_nodes(model, "", "Unsqueeze", _mask_of_more_axes)
    rewrite_nodes(model, "", "Where", _choice)
    RemoveUnusedNodesPass()(model)
    _set_types(model.graph)
    groups = [group for group in _groups(model.graph) if _saves(group)]
    overloads: dict[str, str] = {}
    homes = {node: group for group in groups for node in group}
    for group in groups:
        _replace(model, group, homes, overloads)
    RemoveUnusedNodesPass()(model)
    TopologicalSortPass()(model)
    return len(groups)


def _mask_of_more_axes(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    """Give the condition of a choice between two numbers its new axes, in place of what is chosen."""
    chosen, axes = node.inputs
    where = None if chosen is None else chosen.producer()
    if where is None or where.op_type != "Where" or _numbers(where) is None or axes is None or len(chosen.uses()) > 1:
        return None
    condition, *numbers = where.inputs
    wider = nodes("Unsqueeze", condition, axes)
    wider.type = ir.TensorType(_BOOL)
    return nodes("Where", wider, *numbers)


def _choice(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    numbers = _numbers(node)
    if numbers is None:
        return None
    condition = nodes("Cast", node.inputs[0], to=int(_INT64))
    condition.type = ir.TensorType(_INT64)
    return nodes("Choose", condition, domain=DOMAIN, yes=numbers[0], no=numbers[1])


def _numbers(where: ir.Node) -> tuple[float, float] | None:
    """Return the two constant float32 numbers that a node chooses from; None if they are not such."""
    found = [_constant(value) for value in where.inputs[1:]]
    if any(each is None or each.size != 1 or each.ndim or each.dtype != np.float32 for each in found):
        return None
    yes, no = (float(each) for each in found if each is not None)
    return yes, no


def _constant(value: ir.Value | None) -> np.ndarray | None:
    tensor = None if value is None or value.is_graph_input() else ir.convenience.get_const_tensor(value)
    return None if tensor is None or tensor.size > _MOST_CONSTANT else tensor.numpy()


def _set_types(graph: ir.Graph) -> None:
    """Set the missing types of integers and booleans, which passes before have left open."""
    for node in graph:
        if node.domain == "" and node.outputs[0].dtype is None and (kind := _type_of(node)) is not None:
            node.outputs[0].type = ir.TensorType(kind)


def _type_of(node: ir.Node) -> ir.DataType | None:
    if node.op_type in _COMPARISONS:
        return _BOOL
    if node.op_type == "Shape":
        return _INT64
    if node.op_type == "Cast":
        return ir.DataType(node.attributes["to"].as_int())
    if node.op_type == "Constant":
        tensor = ir.convenience.get_const_tensor(node.outputs[0])
        return None if tensor is None else tensor.dtype
    given = node.inputs[1 if node.op_type == "Where" else 0] if node.inputs else None
    return given.dtype if given is not None and node.op_type in _STEPS else None


def _groups(graph: ir.Graph) -> Iterable[list[ir.Node]]:
    """Return the nodes of each program: none of a program depends on one of the same by way of other nodes."""
    depths: dict[ir.Value, tuple[int, bool]] = {}  # of a value, and whether a program gives it
    groups = defaultdict[int, list[ir.Node]](list)
    for node in graph:
        if node.op_type == "Constant":
            continue
        known = [depths.get(value, (0, False)) for value in read_values(node)]
        is_step = _is_step(node)
        depth = max((at if is_step else at + by_program for at, by_program in known), default=0)
        depths.update((value, (depth, is_step)) for value in node.outputs)
        if is_step:
            groups[depth].append(node)
    return groups.values()


def _saves(group: Sequence[ir.Node]) -> bool:
    """Return whether a program and what makes booleans of its results are fewer nodes by two."""
    inside = set(group)
    casts = sum(node.outputs[0].dtype == _BOOL and not inside.issuperset(node.outputs[0].consumers()) for node in group)
    return len(group) > casts + 2


def _is_step(node: ir.Node) -> bool:
    made = node.outputs[0]
    if node.domain or node.op_type not in _STEPS or made.dtype not in (_INT64, _BOOL):
        return False
    if made.dtype == _BOOL and made.is_graph_output():
        return False
    given = [value for value in node.inputs if value is not None]
    if node.op_type != "Shape" and any(value.dtype not in (_INT64, _BOOL) or _is_updated(value) for value in given):
        return False
    return _STEPS[node.op_type](node) is not None


def _is_updated(value: ir.Value) -> bool:
    """Return whether a node writes into the value in place: then it is read where the graph reads it, not later."""
    return any(user.op_type in ("TensorScatter", "ScatterElements", "ScatterND") and not place
               for user, place in value.uses())  # fmt: skip


Settings = tuple[int, list[int]] | None
"""Inputs that a step reads, from the first on, and its settings; None if no step does what the node does."""


def _plain(node: ir.Node) -> Settings:
    return len(node.inputs), []


def _on_axis(node: ir.Node) -> Settings:
    return len(node.inputs), [_integer(node, "axis", 0)]


def _cast(node: ir.Node) -> Settings:
    return 1, [int(node.outputs[0].dtype == _BOOL)]


def _shape(node: ir.Node) -> Settings:
    return 1, [_integer(node, "start", 0), _integer(node, "end", np.iinfo(np.int64).max)]


def _with_axes(node: ir.Node) -> Settings:
    axes = _constant(node.inputs[1]) if len(node.inputs) > 1 else np.array([], np.int64)
    return None if axes is None else (1, axes.reshape(-1).tolist())


def _reduce(node: ir.Node) -> Settings:
    axes = _with_axes(node)
    return None if axes is None or len(axes[1]) != 1 else (1, [_integer(node, "keepdims", 1), *axes[1]])


def _cumulative(node: ir.Node) -> Settings:
    is_usual = not _integer(node, "exclusive", 0) and not _integer(node, "reverse", 0)
    return _with_axes(node) if is_usual else None


def _modulo(node: ir.Node) -> Settings:
    return None if _integer(node, "fmod", 0) else (2, [])


def _pair(node: ir.Node) -> Settings:
    return (2, []) if len(node.inputs) == 2 else None


def _steps_of_one(place: int) -> Callable[[ir.Node], Settings]:
    """Take nodes whose step, input `place`, is missing or 1 everywhere."""

    def settings(node: ir.Node) -> Settings:
        step = _constant(node.inputs[place]) if len(node.inputs) > place else np.array([1])
        return None if step is None or (step != 1).any() else (len(node.inputs), [])

    return settings


_STEPS: dict[str, Callable[[ir.Node], Settings]] = {
    **dict.fromkeys(_PLAIN, _plain), **dict.fromkeys(_ON_AXIS, _on_axis), "Cast": _cast, "Shape": _shape,
    "Squeeze": _with_axes, "Unsqueeze": _with_axes, "ReduceSum": _reduce, "CumSum": _cumulative, "Mod": _modulo,
    "Min": _pair, "Max": _pair, "Range": _steps_of_one(2), "Slice": _steps_of_one(4),
}  # fmt: skip
"""Operator -> what its step reads."""


def _integer(node: ir.Node, name: str, otherwise: int) -> int:
    return node.attributes[name].as_int() if name in node.attributes else otherwise


def _replace(
    model: ir.Model, nodes: list[ir.Node], homes: Mapping[ir.Node, list[ir.Node]], overloads: dict[str, str]
) -> None:
    """Replace nodes by one, with a function for each program. homes: see `_cast_results`."""
    nodes = [*nodes, *_cast_results(model.graph, nodes, homes)]
    inside, made = set(nodes), [node.outputs[0] for node in nodes]
    read = dict.fromkeys(value for node in nodes for value in node.inputs if value is not None)
    constants = {value: found for value in read if (found := _constant(value)) is not None}
    given = [value for value in read if value not in constants and value.producer() not in inside]
    order = [*given, *constants, *made]
    numbers = {value: str(number) for number, value in enumerate(order)}
    results = [
        value for value in made if value.is_graph_output() or any(user not in inside for user in value.consumers())
    ]
    lines = [_line("Constant", [], [each.ndim, *each.shape, *each.reshape(-1).tolist()]) for each in constants.values()]
    for node in nodes:
        settings = _STEPS[node.op_type](node)
        assert settings is not None
        names = [numbers[value] if value is not None else "-" for value in node.inputs[: settings[0]]]
        lines.append(_line(node.op_type, names, settings[1]))
    texts = {"steps": "\n".join(lines), "results": " ".join(numbers[value] for value in results)}
    program = "\n".join(texts.values())
    if program not in overloads:
        overloads[program] = str(len(overloads))
        held = {value: ir.node("Constant", [], {"value": ir.tensor(each)}) for value, each in constants.items()}
        function = function_of(INTEGERS, overloads[program], nodes, given, results, held)
        model.functions[function.identifier()] = function
    attributes = [ir.AttrString(name, text) for name, text in texts.items()]
    node = ir.Node(
        DOMAIN, INTEGERS, given, [*attributes, ir.AttrInt64("inputs", len(given))], overload=overloads[program],
        num_outputs=len(results),
    )  # fmt: skip
    for new, old in zip(node.outputs, results, strict=True):
        new.shape, new.type, new.name = old.shape, old.type, old.name
    ir.convenience.replace_nodes_and_values(model.graph, nodes[-1], nodes, [node], results, node.outputs)


def _line(op: str, inputs: Iterable[str], settings: Sequence[int]) -> str:
    return " ".join([op, *inputs, *([";", *(str(int(each)) for each in settings)] if settings else [])])


def _cast_results(graph: ir.Graph, nodes: list[ir.Node], homes: Mapping[ir.Node, list[ir.Node]]) -> list[ir.Node]:
    """Insert casts of the booleans that others read, to int64 and back, and return the first ones: a program gives
    int64. The casts back are in the programs of those that read them, where there are such. homes: node -> the nodes of
    its program."""
    inside, casts = set(nodes), list[ir.Node]()
    for value in [node.outputs[0] for node in nodes if node.outputs[0].dtype == _BOOL]:
        readers = defaultdict[int, list[tuple[ir.Node, int]]](list)
        for user, place in value.uses():
            if user not in inside:
                readers[id(homes.get(user))].append((user, place))
        if not readers:
            continue
        to = _cast_node(value, _INT64, value)
        graph.insert_after(nodes[-1], to)
        for users in readers.values():
            back = _cast_node(to.outputs[0], _BOOL, value)
            graph.insert_after(to, back)
            for user, place in users:
                user.replace_input_with(place, back.outputs[0])
            if users[0][0] in homes:
                homes[users[0][0]].insert(0, back)
        casts.append(to)
    return casts


def _cast_node(value: ir.Value, kind: ir.DataType, like: ir.Value) -> ir.Node:
    node = ir.node("Cast", [value], {"to": int(kind)})
    node.outputs[0].type, node.outputs[0].shape = ir.TensorType(kind), like.shape
    return node
