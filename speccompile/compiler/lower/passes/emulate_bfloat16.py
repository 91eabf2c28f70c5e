"""A bfloat16 graph for engines that have no bfloat16: for the proof alone."""

import numpy as np
import onnx_ir as ir

from speccompile.compiler.lower.passes import Nodes

_LOW, _FLOAT32 = ir.DataType.BFLOAT16, ir.DataType.FLOAT
# Ops that only move values, which were rounded before.
_MOVES = {
    "Commit", "Concat", "Expand", "Gather", "GatherElements", "GatherND", "Identity", "Neg", "Reshape", "Slice",
    "Split", "Squeeze", "TensorScatter", "Transpose", "Unsqueeze", "Where",
}  # fmt: skip


def emulate_bfloat16(model: ir.Model) -> int:
    """Before: y = MatMul(x, weight), all bfloat16. After: y = Cast<float>(Cast<bfloat16>(MatMul(x, weight))), where x,
    weight and y are float32 and hold bfloat16 values alone. Return the number of rounded results.

    Products are summed in float32 and rounded once, as in tensor cores. Inputs and outputs of the graph become float32.
    """
    for weight in model.graph.initializers.values():
        if weight.dtype == _LOW and weight.const_value is not None:
            weight.type, weight.const_value = ir.TensorType(_FLOAT32), _widened(weight.const_value)
    for value in model.graph.inputs:
        if value.dtype == _LOW:
            value.type = ir.TensorType(_FLOAT32)
    return sum(_emulate(model.graph, node) for node in list(model.graph))


def _emulate(graph: ir.Graph, node: ir.Node) -> int:
    """Let a node compute in float32; return the number of its results that are then rounded."""
    low = [value for value in node.outputs if value.dtype == _LOW]
    for value in low:
        value.type = ir.TensorType(_FLOAT32)
    if node.op_type == "Cast" and low:
        node.attributes["to"] = ir.AttrInt64("to", int(_FLOAT32))
    if node.op_type == "Constant" and low:
        node.attributes["value"] = ir.AttrTensor("value", _widen(node.attributes["value"].as_tensor()))
    elif node.op_type not in _MOVES:
        for value in low:
            _round(graph, node, value)
        return len(low)
    return 0


def _round(graph: ir.Graph, node: ir.Node, value: ir.Value) -> None:
    nodes = Nodes()
    rounded = nodes("Cast", nodes("Cast", value, to=int(_LOW)), to=int(_FLOAT32))
    rounded.type, rounded.shape = ir.TensorType(_FLOAT32), value.shape
    ir.convenience.replace_all_uses_with(value, rounded)
    nodes.nodes[0].replace_input_with(0, value)
    graph.insert_after(node, nodes.nodes)


def _widened(tensor: ir.TensorProtocol) -> ir.LazyTensor:
    """Yield a weight widened while it is written, one at a time."""
    return ir.LazyTensor(lambda: _widen(tensor), dtype=_FLOAT32, shape=tensor.shape, name=tensor.name)


def _widen(tensor: ir.TensorProtocol) -> ir.Tensor:
    return ir.Tensor(tensor.numpy().astype(np.float32))
