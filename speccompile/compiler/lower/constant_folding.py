"""Fold operators over constants that ONNX lacks."""

from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.fx.node import map_arg

_WITHOUT_OPERATOR = (torch.ops.aten.erfinv.default,)
"""Gemma 3n: the cutoff of a normal distribution at the config's sparsity."""


def fold_unsupported(program: torch.export.ExportedProgram) -> None:
    """Before: erfinv(2 * constant - 1). After: its value. The exporter reports operators that cannot be folded."""
    constants = program.graph_signature.inputs_to_lifted_tensor_constants
    known = {name: program.constants[key] for name, key in constants.items()}
    graph = program.graph
    for node in [node for node in graph.nodes if node.target in _WITHOUT_OPERATOR]:
        try:
            value = _value(node, known)
        except KeyError:
            continue
        if value.numel() > 1:
            continue
        with graph.inserting_before(node):
            number = graph.call_function(
                torch.ops.aten.full.default, (list(value.shape), value.item()), {"dtype": value.dtype}
            )
        number.meta = dict(node.meta)
        node.replace_all_uses_with(number)
        graph.erase_node(node)


def _value(node: Node, known: dict[str, Tensor]) -> Any:
    """Return the value of a node. Raise KeyError if it depends on an input."""
    if node.op == "placeholder":
        return known[node.name].clone()  # in-place operators may follow
    if node.op != "call_function" or not callable(node.target):
        raise KeyError(node.name)
    args = map_arg(node.args, lambda each: _value(each, known))
    return node.target(*args, **map_arg(node.kwargs, lambda each: _value(each, known)))
