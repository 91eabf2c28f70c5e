"""Eight bits for ONNX Runtime's processors: integers times integers, with a scale a column and a scale a row."""

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from speccompile.lower.passes import ONNXRUNTIME
from speccompile.lower.quantize import kernels
from speccompile.lower.quantize.lazy import add_initializer
from speccompile.lower.quantize.linear import HEAD, Linear, Weight
from speccompile.lower.quantize.report import QuantizeReport

_MIDDLE = 128  # what stands for zero: the kernels that use the processor's dot products take unsigned activations
_STEP = np.float32(1 / 127)  # between two numbers, where the largest activation of a row is 1
_TINY = 1e-30  # so that a row of zeros is not divided by zero

_FORMAT = "int8 by column"


def matmul_integer(graph: ir.Graph, linears: Sequence[Linear]) -> QuantizeReport:
    """Before: y = MatMul(x, weight). After, with one scale for every row of x and one for every column of the weight:

        largest = Max(ReduceMax(Abs(x)), tiny)
        numbers = QuantizeLinear(x / largest, 1 / 127)                         uint8, 128 for zero
        y       = largest * com.microsoft::MatMulIntegerToFloat(numbers, weight8, 1 / 127, scales)

    The sums are exact integers: whatever kernel a window's width chooses, a row's result is the same, bit for bit. An
    activation that several MatMuls read is quantized once, and a weight that several MatMuls read is stored once. The
    embedding of tokens, which has as many rows as the head has columns, is stored the same way; a head that is tied to
    it reads the same numbers.
    """
    report, store, rows = QuantizeReport(), _Weights(graph), _Rows(graph)
    tokens = {linear.weight.shape[1] for linear in linears if linear.role == HEAD}
    for linear in linears:
        numbers, scales = store.column_scaled(linear.weight, linear.node)
        _replace(graph, linear, *rows.quantized(linear.node), numbers, scales)
        report.quantized[linear.weight.name] = _FORMAT
    for table, gather in _lookups(graph):
        if table.const_value is not None and table.const_value.shape.numpy()[0] in tokens:
            store.lookup(table, gather)
            report.quantized[str(table.name)] = "int8 by row"
    return report


def _replace(
    graph: ir.Graph, linear: Linear, x: ir.Value, largest: ir.Value, weight: ir.Value, scales: ir.Value
) -> None:
    node, made = linear.node, _Chain(graph, linear.node)
    step, zero = made.constant(_STEP), made.constant(np.uint8(_MIDDLE))
    product = made("MatMulIntegerToFloat", x, weight, step, scales, zero, domain=ONNXRUNTIME)
    old = node.outputs[0]
    product.shape, product.type = old.shape, old.type
    result = made("Mul", product, largest)
    result.shape, result.type, result.name = old.shape, old.type, old.name
    ir.convenience.replace_nodes_and_values(graph, node, [node], [], [old], [result])


class _Chain:
    """Nodes in front of another one."""

    def __init__(self, graph: ir.Graph, before: ir.Node) -> None:
        self._graph, self._before = graph, before

    def __call__(self, op: str, *inputs: ir.Value, domain: str = "", **attributes: int | list[int]) -> ir.Value:
        node = ir.node(op, list(inputs), attributes, domain=domain)
        self._graph.insert_before(self._before, node)
        return node.outputs[0]

    def constant(self, value: np.generic | np.ndarray) -> ir.Value:
        return self("Constant", value=ir.tensor(np.asarray(value)))


class _Rows:
    """Activations in eight bits, each once."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._made: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}

    def quantized(self, reader: ir.Node) -> tuple[ir.Value, ir.Value]:
        """uint8 of the shape of what `reader` reads first, and each row's largest float32, with a last axis of one."""
        x = reader.inputs[0]
        assert x is not None
        if x not in self._made:
            made = _Chain(self._graph, reader)
            reduced = made("ReduceMax", made("Abs", x), made.constant(np.array([-1])), keepdims=1)
            largest = made("Max", reduced, made.constant(np.float32(_TINY)))
            share = made("Div", x, largest)
            share.type, share.shape = x.type, x.shape
            numbers = made("QuantizeLinear", share, made.constant(_STEP), made.constant(np.uint8(_MIDDLE)))
            numbers.type, numbers.shape = ir.TensorType(ir.DataType.UINT8), x.shape
            largest.type = x.type
            self._made[x] = numbers, largest
        return self._made[x]


class _Weights:
    """Matrices in eight bits, each once: int8 [K, N] with float32 scales [N], tables transposed."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._made: dict[str, tuple[ir.Value, ir.Value]] = {}
        self._turned: dict[str, ir.Value] = {}

    def column_scaled(self, weight: Weight, reader: ir.Node) -> tuple[ir.Value, ir.Value]:
        """int8 [K, N] and its scales; those of a head that is tied to a table are the table's."""
        if weight.steps != ((1, 0),) or not any(_looks_up(node, weight.source) for node in weight.source.consumers()):
            return self._stored(weight, (0, 1))
        numbers, scales = self._stored(weight, (1, 0))
        if weight.name not in self._turned:
            self._turned[weight.name] = _Chain(self._graph, reader)("Transpose", numbers, perm=[1, 0])
        return self._turned[weight.name], scales

    def lookup(self, table: ir.Value, gather: ir.Node) -> None:
        """Let a Gather of rows of float32 [V, H] read int8 [V, H] and the rows' scales [V]."""
        assert table.const_value is not None
        size = tuple(table.const_value.shape.numpy())
        numbers, scales = self._stored(Weight(table, table.const_value, size[::-1], ((1, 0),)), (1, 0))
        made, ids = _Chain(self._graph, gather), gather.inputs[1]
        assert ids is not None
        rows = made("Cast", made("Gather", numbers, ids), to=int(ir.DataType.FLOAT))
        factors = made("Unsqueeze", made("Gather", scales, ids), made.constant(np.array([-1])))
        old, result = gather.outputs[0], made("Mul", rows, factors)
        result.shape, result.type, result.name = old.shape, old.type, old.name
        ir.convenience.replace_nodes_and_values(self._graph, gather, [gather], [], [old], [result])

    def _stored(self, weight: Weight, order: tuple[int, int]) -> tuple[ir.Value, ir.Value]:
        """order: of the axes [K, N] in the file."""
        if weight.name not in self._made:
            rows, columns = weight.shape
            name, shape = f"{weight.name}.int8", tuple(weight.shape[axis] for axis in order)

            def numbers() -> kernels.Numbers:
                return np.ascontiguousarray(kernels.numbers(weight.numpy(), kernels.INT8, rows).transpose(order))

            def scales() -> kernels.Floats:
                return kernels.scales(weight.numpy(), kernels.INT8, rows).reshape(columns)

            self._made[weight.name] = (
                add_initializer(self._graph, name, kernels.INT8, shape, numbers),
                add_initializer(self._graph, f"{name}.scales", ir.DataType.FLOAT, (columns,), scales),
            )
        return self._made[weight.name]


def _lookups(graph: ir.Graph) -> list[tuple[ir.Value, ir.Node]]:
    """Tables of float32 rows, and the nodes that look rows up in them."""
    tables = [value for value in graph.initializers.values() if value.dtype == ir.DataType.FLOAT]
    return [(table, node) for table in tables for node in table.consumers() if _looks_up(node, table)]


def _looks_up(node: ir.Node, table: ir.Value) -> bool:
    """Whether a node gathers rows of a table by a tensor of ids."""
    if node.op_type != "Gather" or node.inputs[0] is not table or node.attributes.get_int("axis", 0) != 0:
        return False
    return table.shape is not None and len(table.shape) == 2
