"""Gated activations in one node."""

import onnx_ir as ir

from speccompile.compiler.lower.native import DOMAIN
from speccompile.compiler.lower.passes import Nodes, rewrite_nodes
from speccompile.compiler.lower.passes.matching import Op, match, match_slice

_SILU = Op("Mul", Op("Mul", "gate", Op("Sigmoid", "gate")), "up")
_GELU = Op("Mul", Op("Gelu", "gate"), "up")


def gate_kernels(model: ir.Model) -> int:
    """Before: y = Mul(Mul(gate, Sigmoid(gate)), up). After: y = speccompile.native::GatedSilu(gate, up).

    Before: y = Mul(Gelu<tanh>(gate), up). After: y = speccompile.native::GatedGelu(gate, up). If gate and up are slices
    of one projection, the kernel reads the projection.
    """
    return rewrite_nodes(model, "", "Mul", _gate)


def _gate(nodes: Nodes, node: ir.Node) -> ir.Value | None:
    operator, found = "GatedSilu", match(_SILU, node.outputs[0])
    if found is None:
        operator, found = "GatedGelu", match(_GELU, node.outputs[0])
        if found is None or not _is_tanh(node):
            return None
    gate, up = found["gate"], found["up"]
    shapes = gate.shape, up.shape
    if shapes[0] is None or shapes[1] is None or shapes[0] != shapes[1] or not isinstance(shapes[0][-1], int):
        return None
    (gate_source, gate_offset), (up_source, up_offset) = _place(gate), _place(up)
    offsets = {"gate_offset": gate_offset, "up_offset": up_offset}
    return nodes(operator, gate_source, up_source, domain=DOMAIN, width=shapes[0][-1], **offsets)


def _place(value: ir.Value) -> tuple[ir.Value, int]:
    part = match_slice(value)
    return (value, 0) if part is None or part.step != 1 else (part.source, part.start)


def _is_tanh(node: ir.Node) -> bool:
    gelus = [value.producer() for value in node.inputs if value is not None]
    made = next(each for each in gelus if each is not None and each.op_type == "Gelu")
    return "approximate" in made.attributes and made.attributes["approximate"].as_string() == "tanh"
