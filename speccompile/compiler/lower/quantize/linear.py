"""The linear layers of a graph: matrix products with a constant weight."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from speccompile.compiler.lower.passes.matching import number
from speccompile.compiler.weights.graph import source_of
from speccompile.compiler.weights.source import LazyWeight

LAYER, HEAD, ROUTER = "layer", "head", "router"
"""Role of a linear layer: an ordinary layer, the logits of tokens, or the router of experts."""

TRANSPOSED = ((1, 0),)
"""The view ops of an embedding that is read as a head."""

FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


@dataclass(frozen=True)
class Weight:
    """A constant matrix [K, N]. view_ops: axes that transpose an initializer, an index of its first axis, or a slice.

    Equal names mean equal matrices. tensor: the initializer's, which passes remove from it while they serialize.
    """

    source: ir.Value
    tensor: ir.TensorProtocol
    shape: tuple[int, ...]
    view_ops: tuple[tuple[int, ...] | int | slice, ...] = ()

    @property
    def name(self) -> str:
        """Return the initializer's name with suffixes of the view ops: an expert's weight is "experts.3"."""
        return ".".join([str(self.source.name), *(_suffix(step) for step in self.view_ops)])

    @property
    def source_weight(self) -> LazyWeight:
        """Return the weight as a lazy weight [K, N]."""
        found = source_of(self.tensor)
        for step in self.view_ops:
            match step:
                case int():
                    found = found.select(step)
                case slice():
                    found = found.narrow(step)
                case _:
                    found = found.transpose(step)
        return found

    @property
    def rows(self) -> LazyWeight:
        """Return the weight in torch's layout, [N, K]."""
        return self.source_weight.transpose((1, 0))

    def numpy(self) -> NDArray[np.float32]:
        """Return float32 [K, N]."""
        return self.columns(slice(0, self.shape[1]))

    def columns(self, part: slice) -> NDArray[np.float32]:
        """Return float32 [K, columns of the part]. For a weight in torch's layout, [N, K], no other columns are
        read."""
        return self.source_weight.columns(part)


def _suffix(step: tuple[int, ...] | int | slice) -> str:
    match step:
        case int():
            return str(step)
        case slice():
            return f"{step.start}-{step.stop}"
        case _:
            return "T"


@dataclass(frozen=True)
class Linear:
    """A MatMul of an activation [.., K] with a constant weight."""

    node: ir.Node
    weight: Weight
    role: str


def find_linears(graph: ir.Graph) -> list[Linear]:
    """Return every linear layer, in the order of the graph. The passes of an unrolled drafter share weights."""
    weights = {node: weight for node in graph if (weight := _weight(node)) is not None}
    routers = {
        node for top in graph if top.op_type == "TopK" for node in _reached([top.inputs[0]], weights, forward=False)
    }

    def role(node: ir.Node) -> str:
        if not any(_reached(node.outputs, weights, forward=True)):
            return HEAD
        return ROUTER if node in routers else LAYER

    return [Linear(node, weight, role(node)) for node, weight in weights.items()]


def _weight(node: ir.Node) -> Weight | None:
    if node.op_type != "MatMul" or node.domain != "":
        return None
    weight = _constant(node.inputs[1])
    return weight if weight is not None and len(weight.shape) == 2 else None


def _constant(value: ir.Value | None) -> Weight | None:
    """Return the weight of a float initializer, transposed or sliced by nodes without other inputs; None for anything
    else."""
    if value is None:
        return None
    if value.is_initializer():
        tensor = value.const_value
        is_float = tensor is not None and tensor.dtype in FLOATS
        return Weight(value, tensor, tuple(tensor.shape.numpy())) if tensor is not None and is_float else None
    node = value.producer()
    inner = None if node is None or node.domain != "" or not node.inputs else _constant(node.inputs[0])
    if node is None or inner is None:
        return None
    if node.op_type == "Transpose":
        axes = tuple(node.attributes["perm"].as_ints())
        return replace(inner, shape=tuple(inner.shape[axis] for axis in axes), view_ops=(*inner.view_ops, axes))
    if node.op_type == "Gather" and node.attributes.get_int("axis", 0) == 0:
        index = ir.convenience.get_const_tensor(node.inputs[1])
        if index is not None and index.shape.rank() == 0:
            return replace(inner, shape=inner.shape[1:], view_ops=(*inner.view_ops, int(index.numpy())))
    if node.op_type == "Slice":
        start, stop, axis, *step = [number(bound) for bound in node.inputs[1:]]
        if None not in (start, stop) and axis == 0 and not step:
            part = slice(int(start or 0), int(stop or 0))
            return replace(inner, shape=(part.stop - part.start, *inner.shape[1:]), view_ops=(*inner.view_ops, part))
    return None


def _reached(values: Sequence[ir.Value | None], weights: dict[ir.Node, Weight], *, forward: bool) -> Iterator[ir.Node]:
    """Yield the nearest linear layers before or after some values, along values that are not integers.

    Tokens are integers: the head of one pass is not connected with the layers of the next one.
    """
    left, seen = list(values), set(values)
    while left:
        value = left.pop(0)
        if value is None or (value.dtype is not None and value.dtype not in FLOATS):
            continue
        nodes = value.consumers() if forward else [value.producer()]
        for node in nodes:
            if node is None:
                continue
            if node in weights:
                yield node
                continue
            found = [each for each in (node.outputs if forward else node.inputs) if each not in seen]
            seen.update(found)
            left.extend(found)


def matrices(graph: ir.Graph) -> list[ir.Value]:
    """Return the float initializers with two axes or more."""
    values = graph.initializers.values()
    return [v for v in values if v.dtype in FLOATS and v.shape is not None and len(v.shape) > 1]


def readers(value: ir.Value) -> str:
    """Return the purpose of a matrix, by the ops that read it."""
    return f"read by {', '.join(sorted({node.op_type for node in value.consumers()}))}"
