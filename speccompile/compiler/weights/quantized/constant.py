"""A quantized weight in an ONNX graph on disk: its stored numbers, under a name derived from the weight's.

    weight [.., N, K] = DequantizeLinear(weight.stored, weight.stored.scales, weight.stored.zero_points)

The numbers are a copy, not the checkpoint's own file: no operator reads the packing order of the formats.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from blake3 import blake3

from speccompile.compiler.weights.open_file import opened
from speccompile.compiler.weights.quantized.packed import nibbles
from speccompile.compiler.weights.quantized.scaled import Groups, Integers, QuantizedRows, Scaled
from speccompile.compiler.weights.source import Concatenated, LazyWeight, Stacked

SCALES, ZERO_POINTS = ".scales", ".zero_points"

_KINDS = {np.dtype(kind.numpy()): kind for kind in (ir.DataType.UINT4, ir.DataType.UINT8, ir.DataType.INT8,
                                                   ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT8E5M2)}  # fmt: skip
"""Dtypes that ONNX Runtime dequantizes on a CPU."""


Make = Callable[[Callable[[], ir.TensorProtocol], ir.DataType, Sequence[int], str, Any], ir.TensorProtocol]
"""Makes a constant that is computed when it is written, from: function, dtype, shape, name, identity of its values."""


def dequantize(source: LazyWeight, name: str, made: Make) -> ir.Node | None:
    """Return a node that dequantizes a weight, or several concatenated or stacked ones; the numbers are read when they
    are written. Return None for other weights, and for numbers that the node does not support: those in activation
    order, and 4-bit floats."""
    leaves = list(_leaves(source))
    known = [each for each in leaves if each is not None]
    forms = {_form(each) for each in known}
    if len(known) < len(leaves) or len(forms) != 1:
        return None
    size, kind, has_zero_points = forms.pop()
    if size is None or kind is None or (kind == ir.DataType.UINT4 and source.shape[-1] % 2):
        return None
    groups = (*source.shape[:-1], -(-source.shape[-1] // size))

    def field(end: str, of: str, dtype: ir.DataType, shape: tuple[int, ...]) -> ir.Value:
        def read() -> ir.Tensor:
            found = [getattr(each.codes(slice(0, each.shape[0])), of).T.astype(dtype.numpy()) for each in known]
            return ir.Tensor(np.concatenate(found).reshape(shape), dtype=dtype)

        tensor = made(read, dtype, shape, name + end, {"of": source.identity(), "field": of})
        return ir.Value(name=name + end, shape=ir.Shape(shape), type=ir.TensorType(dtype), const_value=tensor)

    inputs = [field("", "numbers", kind, source.shape), field(SCALES, "scales", ir.DataType.FLOAT, groups)]
    if has_zero_points:
        inputs.append(field(ZERO_POINTS, "zero_points", kind, groups))
    return ir.node("DequantizeLinear", inputs, {"axis": len(groups) - 1, "block_size": size})


def _leaves(source: LazyWeight) -> Iterator[Scaled | None]:
    """Yield the quantized weights whose concatenated rows are those of a weight; None for a part that is not
    quantized."""
    if isinstance(source, Concatenated | Stacked):
        for each in source.sources:
            yield from _leaves(each)
    else:
        yield source if isinstance(source, Scaled) else None


def _form(source: Scaled) -> tuple[int | None, ir.DataType | None, bool]:
    """Return the group size, the dtype of the numbers, and whether there are zero points."""
    first = source.codes(slice(0, 1))
    is_four_bits = isinstance(source, Integers) and source.bits == 4
    kind = ir.DataType.UINT4 if is_four_bits else _KINDS.get(first.numbers.dtype)
    return source.group_size, kind, first.zero_points is not None


def weight_of_node(node: ir.Node) -> "Copy | CopiedStack":
    """Return the weight of such a node."""
    tensors = [value.const_value for value in node.inputs if value is not None]
    shape, size = tuple(tensors[0].shape.numpy()), node.attributes["block_size"].as_int()
    fields = [_Lying(tensor) for tensor in tensors]
    if len(shape) == 2:
        return Copy(shape, size, fields)
    return CopiedStack([Copy(shape[1:], size, fields, index) for index in range(shape[0])])


class Copy(Integers):
    """The weight that such a node computes. index: in a stack. tensor: the numbers."""

    def __init__(self, shape: Sequence[int], size: int, fields: "list[_Lying]", index: int = 0) -> None:
        rows, depth = shape
        super().__init__((rows, depth), Groups(size), {})
        self._numbers, self._scales, *self._zero_points = fields
        self._index, self.tensor = index, self._numbers.tensor
        self.bits = 4 if self.tensor.dtype == ir.DataType.UINT4 else 8

    def codes(self, part: slice) -> QuantizedRows:
        start = self._index * self.shape[0]
        own = slice(start + part.start, start + part.stop)
        zero_points = [each.rows(own) for each in self._zero_points]
        return QuantizedRows(self._numbers.rows(own), self._scales.rows(own), zero_points[0] if zero_points else None)

    def identity(self) -> Any:
        made_of = [each.digest for each in (self._numbers, self._scales, *self._zero_points)]
        return {"kind": "Copy", "shape": list(self.shape), "size": self.group_size, "at": self._index, "of": made_of}


class CopiedStack(Stacked):
    """Several weights of one node."""

    def __init__(self, copies: Sequence[Copy]) -> None:
        super().__init__(copies)
        self.tensor = copies[0].tensor


class _Lying:
    """A constant [.., n] whose rows [n] are read from its file."""

    def __init__(self, tensor: Any) -> None:
        self.tensor, self._dtype, self._width = tensor, tensor.dtype, tensor.shape.numpy()[-1]
        self._file = opened(Path(tensor.path)) if isinstance(tensor, ir.ExternalTensor) else None

    def rows(self, part: slice) -> Any:
        """Return [n, rows of the part]."""
        bits = self._width * self._dtype.bitwidth
        if bits % 8:  # rows begin within a byte
            return self._numbers(0, self.tensor.nbytes)[: self.tensor.size].reshape(-1, self._width)[part].T
        size = bits // 8
        return self._numbers(part.start * size, (part.stop - part.start) * size).reshape(-1, self._width).T

    def _numbers(self, start: int, length: int) -> Any:
        if self._file is None:
            data = np.frombuffer(self.tensor.tobytes()[start : start + length], np.uint8)
        else:
            data = np.frombuffer(self._file.read((self.tensor.offset or 0) + start, length), np.uint8)
        return nibbles(data) if self._dtype == ir.DataType.UINT4 else data.view(self._dtype.numpy())

    @cached_property
    def digest(self) -> str:
        return blake3(self.tensor.tobytes()).hexdigest()


def insert(graph: ir.Graph, value: ir.Value, node: ir.Node) -> None:
    """Replace a weight by the node."""
    weight = node.outputs[0]
    weight.shape, weight.type = value.shape, ir.TensorType(ir.DataType.FLOAT)
    graph.insert_before(graph[0], node)
    ir.convenience.replace_all_uses_with(value, weight, replace_graph_outputs=True)
    del graph.initializers[str(value.name)]
    weight.name = value.name
    for each in node.inputs:
        assert each is not None
        graph.register_initializer(each)


def extract(graph: ir.Graph, stored: str) -> Iterator[tuple[ir.Node, Copy | CopiedStack]]:
    """Yield each such node, and its weight. stored: name suffix of the numbers. The caller replaces the node by the
    weight; constants that only the node has read are removed."""
    for node in list(graph):
        numbers = node.inputs[0] if node.op_type == "DequantizeLinear" else None
        if numbers is None or not numbers.is_initializer() or not str(numbers.name).endswith(stored):
            continue
        inputs = list(node.inputs)
        yield node, weight_of_node(node)
        graph.remove(node, safe=True)
        for each in inputs:
            if each is not None and not each.uses():
                del graph.initializers[str(each.name)]
