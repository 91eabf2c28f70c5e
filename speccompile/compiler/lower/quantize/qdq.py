"""Weights and activations for TensorRT: standard QuantizeLinear and DequantizeLinear before a MatMul."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from speccompile.compiler.lower.quantize import numpy_quantizers, passthrough
from speccompile.compiler.lower.quantize.lazy import add_initializer
from speccompile.compiler.lower.quantize.linear import HEAD, Linear, Weight
from speccompile.compiler.lower.quantize.numpy_quantizers import FP8, INT4, INT8
from speccompile.compiler.lower.quantize.report import QuantizeReport

Ranges = Mapping[str, tuple[float, float]]
"""Activation -> its smallest and largest value."""

ACTIVATIONS = {"w8a8": INT8, "fp8": FP8}
"""Precisions that quantize activations -> the dtype of their numbers, and of the weights'."""

_BLOCK_SIZES = (128, 64, 32, 16)


@dataclass(frozen=True)
class Format:
    """Numbers of one kind, with a scale per `block_size` of them along K; block_size 0: one scale per column."""

    kind: ir.DataType
    block_size: int = 0

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} {f'in blocks of {self.block_size}' if self.block_size else 'by column'}"


def qdq(graph: ir.Graph, linears: Iterable[Linear], word: str, block_size: int, ranges: Ranges) -> QuantizeReport:
    """Before: y = MatMul(x, weight). After, for the words "int4" and "int8":

        y = MatMul(x, DequantizeLinear(numbers, scales))

    and for "w8a8" and "fp8", whose activations are quantized as well:

        y = MatMul(DequantizeLinear(QuantizeLinear(x, scale), scale), DequantizeLinear(numbers, scales))

    A weight or an activation that several MatMuls read is quantized once.
    """
    report, pairs = QuantizeReport(), _QdqPairs(graph)
    for linear in linears:
        x, name = linear.node.inputs[0], linear.weight.name
        assert x is not None
        form = Format(ACTIVATIONS[word]) if word in ACTIVATIONS else _weight_only(linear, word, block_size)
        if word in ACTIVATIONS:
            bounds = ranges.get(str(x.name), (np.nan, np.nan))
            if not np.isfinite(bounds).all():
                report.left[name] = "no prompt of the calibration reached it"
                continue
            linear.node.replace_input_with(0, pairs.activation(x, form.kind, bounds, linear.node))
        linear.node.replace_input_with(1, pairs.weight(linear.weight, form, linear.node))
        report.quantized[name] = str(form)
    return report


def _weight_only(linear: Linear, word: str, block_size: int) -> Format:
    """Return a format whose blocks divide K: TensorRT infers the block size from the shapes, and would misread a
    shorter last block."""
    if word == "int8" or linear.role == HEAD:
        return Format(INT8)
    rows = linear.weight.shape[0]
    sizes = [size for size in _BLOCK_SIZES if size <= block_size and rows % size == 0]
    return Format(INT4, sizes[0]) if sizes else Format(INT8)


@dataclass(frozen=True)
class _PassThrough:
    """A weight in numbers of a kind: the checkpoint's own numbers if possible."""

    weight: Weight
    kind: ir.DataType
    block_size: int

    def numbers(self) -> numpy_quantizers.Numbers:
        found = passthrough.symmetric(self.weight, self.block_size) if self.kind == INT4 else None
        if found is None:
            return numpy_quantizers.numbers(self.weight.numpy(), self.kind, self.block_size)
        return found[0].astype(self.kind.numpy())

    def scales(self) -> numpy_quantizers.Floats:
        found = passthrough.symmetric(self.weight, self.block_size) if self.kind == INT4 else None
        return numpy_quantizers.scales(self.weight.numpy(), self.kind, self.block_size) if found is None else found[1]


class _QdqPairs:
    """QDQ pairs of weights and activations, each made once."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._made: dict[str, ir.Value] = {}

    def weight(self, weight: Weight, form: Format, reader: ir.Node) -> ir.Value:
        """Return the dequantized weight, float32 [K, N], inserted before its first reader."""
        name = f"{weight.name}.{form.kind.name.lower()}"
        if name not in self._made:
            rows, columns = weight.shape
            kind, block = form.kind, form.block_size or rows
            shape = (rows // block, columns) if form.block_size else (columns,)
            known = _PassThrough(weight, kind, block)
            recipe = {"kind": kind.name, "block_size": block, "of": weight.source_weight.identity()}
            numbers = add_initializer(
                self._graph, name, kind, weight.shape, known.numbers, recipe | {"field": "numbers"}
            )
            scales = add_initializer(
                self._graph, f"{name}.scales", ir.DataType.FLOAT, shape, lambda: known.scales().reshape(shape),
                recipe | {"field": "scales"},
            )  # fmt: skip
            attributes = {"axis": 0, "block_size": block} if form.block_size else {"axis": 1}
            node = ir.node("DequantizeLinear", [numbers, scales], attributes)
            self._made[name] = self._insert(reader, node, ir.Shape(weight.shape))
        return self._made[name]

    def activation(self, x: ir.Value, kind: ir.DataType, bounds: tuple[float, float], reader: ir.Node) -> ir.Value:
        """Return the quantized and dequantized activation, float32 in the shape of x, inserted before its first
        reader."""
        name = f"{x.name}.{kind.name.lower()}"
        if name not in self._made:
            scale = add_initializer(
                self._graph,
                f"{name}.scale",
                ir.DataType.FLOAT,
                (),
                lambda: numpy_quantizers.activation_scale(kind, *bounds),
            )
            zero = add_initializer(self._graph, f"{name}.zero", kind, (), lambda: np.zeros((), kind.numpy()))
            numbers = ir.node("QuantizeLinear", [x, scale, zero])
            numbers.outputs[0].shape, numbers.outputs[0].type = x.shape, ir.TensorType(kind)
            self._graph.insert_before(reader, numbers)
            node = ir.node("DequantizeLinear", [numbers.outputs[0], scale])
            self._made[name] = self._insert(reader, node, x.shape)
        return self._made[name]

    def _insert(self, reader: ir.Node, node: ir.Node, shape: ir.Shape | None) -> ir.Value:
        result = node.outputs[0]
        result.shape, result.type = shape, ir.TensorType(ir.DataType.FLOAT)
        self._graph.insert_before(reader, node)
        return result
