"""Complex numbers in a trace, as rotary embeddings of DeepSeek-V2 and Llama 4 write them."""

import torch
from torch._guards import detect_fake_mode
from torch.fx import Node

_AXIS_MOVES = {torch.ops.aten.unsqueeze.default, torch.ops.aten.slice.Tensor}
"""Take a tensor and an axis, counted from the front or from the back."""


def real_axis_moves(program: torch.export.ExportedProgram) -> int:
    """Before: y = unsqueeze(x, axis), x complex. After: y = view_as_complex(unsqueeze(view_as_real(x), axis)).

    torch's exporter represents complex numbers as pairs on an additional last axis. It can multiply them, but not move
    their axes. Return the number of rewrites.
    """
    moves = [node for node in program.graph.nodes if node.target in _AXIS_MOVES and _is_complex(node)]
    fake = detect_fake_mode([node.meta["val"] for node in moves])
    for node in moves:
        source, axis = node.args[0], node.args[1] if len(node.args) > 1 else 0
        assert isinstance(source, Node)
        assert isinstance(axis, int)
        assert fake is not None
        axis %= node.meta["val"].dim()
        with program.graph.inserting_before(node), fake:
            value = source
            for target, rest in (
                (torch.ops.aten.view_as_real.default, ()),
                (node.target, (axis, *node.args[2:])),
                (torch.ops.aten.view_as_complex.default, ()),
            ):
                made = program.graph.call_function(target, (value, *rest))
                numbers = [each.meta["val"] if isinstance(each, Node) else each for each in made.args]
                made.meta["val"] = target(*numbers)
                value = made
        node.replace_all_uses_with(value)
        program.graph.erase_node(node)
    return len(moves)


def _is_complex(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_complex()
