"""Convert a model to float16 or bfloat16, where that is precise enough."""

from enum import IntEnum

import ml_dtypes
import numpy as np
import onnx_ir as ir
from onnx_ir.passes import common

from speccompile.compiler.lower.neutral import ATTENDS, is_attend
from speccompile.compiler.lower.passes.cast_like import cast_like
from speccompile.compiler.lower.passes.fold_constants import fold_constants
from speccompile.compiler.weights.graph import ComputedTensor, identity
from speccompile.contract import is_scale

_FLOAT32 = ir.DataType.FLOAT
_LOW_OPS = {*ATTENDS, "Commit", "Conv", "Einsum", "Gemm", "MatMul", "MatMulNBits", "RoundFp8"}
_FULL_OPS = {
    "Allow", "ArgMax", "Cos", "CumSum", "DecodeInt8", "Draw", "EncodeInt8", "Exp", "LayerNormalization", "Log",
    "LogSoftmax", "LpNormalization", "Nucleus", "Pow", "RMSNormalization", "Reciprocal", "ReduceL2", "ReduceMax",
    "ReduceMean", "ReduceSum", "Sin", "Softmax", "Sqrt", "TopK",
}  # fmt: skip
_LOOKUPS = {"DequantizeLinear", "Gather", "GatherElements", "GatherND"}  # of an embedding, of quantized activations
_SHAPES = {"ConstantOfShape", "Expand", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
# Ops that commute with the conversion of a constant.
_MOVES = _SHAPES - {"ConstantOfShape"} | {"DequantizeLinear", "Gather"}
_CACHES = slice(3, 5)  # Attend's keys and values that were committed
_BIAS = 7  # Attend's mask input: it stays float32


class _Kind(IntEnum):
    """Kind of a float value. A node computes in the largest kind of its inputs, and in FULL if LOW meets TABLE."""

    CONSTANT = 0  # converted to any type
    LOW = 1
    TABLE = 2  # float32, computed from constants and integers alone: positions, masks, rotary tables
    FULL = 3  # float32


def reduce_precision(model: ir.Model, dtype: ir.DataType) -> int:
    """Before: a neutral graph in float32. After: weights, embeddings, matrix products, caches and inputs of attention
    are of type `dtype`, FLOAT16 or BFLOAT16. Return the number of nodes that compute in it.

    Norms, softmax, sums, rotary tables, masks, the argmax, sampling, and every input and output that is not a cache
    stay float32. A node that reads both types computes in float32. Weights are converted when they are read, one at a
    time.
    """
    fold_constants(model)  # sequences become plain values
    _infer_types(model)
    cast_like(model)
    common.TopologicalSortPass()(model)
    fired = _Reduction(model.graph, dtype).run()
    common.RemoveUnusedNodesPass()(model)  # weights that are now read in the new type alone
    return fired


def _infer_types(model: ir.Model) -> None:
    """Infer the types that the trace leaves open."""
    for node in model.graph:
        if node.op_type == "MatMulNBits":  # of ONNX Runtime: onnx does not know its result
            node.outputs[0].type = ir.TensorType(_FLOAT32)
    # Without values of integers: onnx takes the two lengths of a batch for a shape, and then infers nothing.
    common.ShapeInferencePass(data_prop=False)(model)
    unknown = [value.name for node in model.graph for value in node.outputs if value.dtype is None]
    assert not unknown, f"onnx could not tell the types of {unknown[:3]}"


class _Reduction:
    def __init__(self, graph: ir.Graph, dtype: ir.DataType) -> None:
        self.graph, self.dtype = graph, dtype
        self.kinds: dict[ir.Value, _Kind] = {}
        self.fixed = set(graph.initializers.values())  # values of any type that are the same in every run
        self.low: dict[ir.Value, ir.Value] = {}  # value -> the same in the new type
        self.full: dict[ir.Value, ir.Value] = {}  # value -> the same in float32

    def run(self) -> int:
        self.kinds |= {v: _Kind.CONSTANT for v in self.graph.initializers.values() if v.dtype == _FLOAT32}
        for value in self.graph.inputs:
            if value.dtype == _FLOAT32:
                self._mark(value, _Kind.LOW if _is_read_cache(value) else _Kind.FULL)
        fired = sum(self._visit(node) for node in list(self.graph))
        for index, value in enumerate(self.graph.outputs):
            if self.kinds.get(value) == _Kind.LOW and not _is_cache(value):
                self._restore(index, value)
        return fired

    def _mark(self, value: ir.Value, kind: _Kind) -> None:
        self.kinds[value] = kind
        if kind == _Kind.LOW:
            value.type = ir.TensorType(self.dtype)  # setting its dtype would change every value that shares its type

    def _visit(self, node: ir.Node) -> bool:
        """Choose the kind of a node, cast its inputs to it, mark its results. Return whether the kind is LOW."""
        if all(value is None or value in self.fixed for value in node.inputs):
            self.fixed.update(node.outputs)
        floats = {i: v for i, v in enumerate(node.inputs) if v in self.kinds}
        if is_attend(node.op_type):
            node.replace_input_with(_BIAS, self._as_full(floats.pop(_BIAS), node))  # of T5 it is looked up, thus LOW
        kinds = [self.kinds[value] for value in floats.values()]
        kind = self._kind(node, kinds)
        for index, value in floats.items():
            if kind == _Kind.LOW:
                node.replace_input_with(index, self._as_low(value, node))
            elif kind == _Kind.FULL:
                node.replace_input_with(index, self._as_full(value, node))
        results = [value for value in node.outputs if value.dtype == _FLOAT32]
        for value in results:
            self._mark(value, kind)
        return kind == _Kind.LOW and bool(results)

    def _kind(self, node: ir.Node, kinds: list[_Kind]) -> _Kind:
        if {_Kind.LOW, _Kind.FULL}.isdisjoint(kinds):
            return self._kind_of_constants(node, kinds)
        if node.op_type in _LOW_OPS:
            return _Kind.FULL if is_scale(node.inputs[0].name or "") else _Kind.LOW
        computes_full = node.op_type in {*_FULL_OPS, "Cast"} or max(kinds) > _Kind.LOW
        return _Kind.FULL if computes_full else _Kind.LOW

    def _kind_of_constants(self, node: ir.Node, kinds: list[_Kind]) -> _Kind:
        """Return the kind of a node whose inputs do not depend on the model's computation."""
        if _Kind.TABLE in kinds:
            return _Kind.TABLE
        if node.outputs[0] in self.fixed or node.op_type in _SHAPES:
            return _Kind.CONSTANT
        return _Kind.LOW if node.op_type in _LOOKUPS else _Kind.TABLE

    def _as_low(self, value: ir.Value, reader: ir.Node) -> ir.Value:
        if self.kinds[value] == _Kind.LOW:
            return value
        if value not in self.low:
            is_constant = self.kinds[value] == _Kind.CONSTANT
            low = self._low_constant(value, reader) if is_constant else self._cast(value, self.dtype, reader)
            self.low[value], self.kinds[low] = low, _Kind.LOW
        return self.low[value]

    def _as_full(self, value: ir.Value, reader: ir.Node) -> ir.Value:
        if self.kinds[value] != _Kind.LOW:
            return value
        if value not in self.full:
            self.full[value] = self._cast(value, _FLOAT32, reader)
        return self.full[value]

    def _cast(self, value: ir.Value, dtype: ir.DataType, reader: ir.Node) -> ir.Value:
        node = ir.node("Cast", [value], {"to": int(dtype)})
        return self._insert(node, value, dtype, reader)

    def _insert(self, node: ir.Node, value: ir.Value, dtype: ir.DataType, reader: ir.Node) -> ir.Value:
        """Insert a node, which converts a value, before its reader."""
        self.graph.insert_before(reader, node)
        node.outputs[0].type, node.outputs[0].shape = ir.TensorType(dtype), value.shape
        return node.outputs[0]

    def _low_constant(self, value: ir.Value, reader: ir.Node) -> ir.Value:
        """Return a constant in the new type: converted itself, or computed from converted ones."""
        producer, tensor = value.producer(), ir.convenience.get_const_tensor(value)
        if producer is None:
            assert tensor is not None
            return self._low_weight(value, tensor)
        if producer.op_type == "Constant":
            assert tensor is not None
            node = ir.node("Constant", [], {"value": _convert(tensor, self.dtype)})
        elif producer.op_type in _MOVES:
            inputs = [self._as_low(v, reader) if v in self.kinds else v for v in producer.inputs]
            node = ir.node(producer.op_type, inputs, dict(producer.attributes))
        else:
            return self._cast(value, self.dtype, reader)
        return self._insert(node, value, self.dtype, reader)

    def _low_weight(self, value: ir.Value, tensor: ir.TensorProtocol) -> ir.Value:
        """Return a converted weight; the float32 one is dropped when nothing reads it any more."""
        low = ir.Value(
            name=self._named(value), shape=value.shape, type=ir.TensorType(self.dtype),
            const_value=_converted(tensor, self.dtype),
        )  # fmt: skip
        self.graph.register_initializer(low)
        return low

    def _restore(self, index: int, value: ir.Value) -> None:
        """Convert an output back to float32, as the contract requires."""
        if value not in self.full:
            node = ir.node("Cast", [value], {"to": int(_FLOAT32)})
            self.graph.append(node)
            self.full[value] = node.outputs[0]
        full = self.full[value]
        full.type, full.shape = ir.TensorType(_FLOAT32), value.shape
        full.name, value.name = value.name, self._named(value)
        self.graph.outputs[index] = full

    def _named(self, value: ir.Value) -> str:
        return f"{value.name}.{self.dtype.name.lower()}"


def _is_read_cache(value: ir.Value) -> bool:
    """Return whether an input of the graph is a cache of floats, including one that it only reads."""
    return not is_scale(value.name or "") and any(
        node.op_type == "Commit" or (is_attend(node.op_type) and value in node.inputs[_CACHES])
        for node in value.consumers()
    )


def _is_cache(output: ir.Value) -> bool:
    node = output.producer()
    return node is not None and node.op_type == "Commit"


def _converted(tensor: ir.TensorProtocol, dtype: ir.DataType) -> ir.LazyTensor:
    """Convert a tensor while it is written: the whole model is never held twice."""
    recipe = {"dtype": dtype.name, "of": identity(tensor)}
    return ComputedTensor(lambda: _convert(tensor, dtype), dtype, tensor.shape.numpy(), str(tensor.name), recipe)


def _convert(tensor: ir.TensorProtocol, dtype: ir.DataType) -> ir.Tensor:
    """Round to the nearest. Values beyond the range become the largest number: a mask's -1e30 must not make NaNs."""
    wanted = dtype.numpy()
    largest = float(ml_dtypes.finfo(wanted).max)
    given = tensor.numpy()
    with np.errstate(over="ignore"):
        low = given.astype(wanted)
    too_large = np.isinf(low) & np.isfinite(given)
    low[too_large] = np.copysign(largest, given[too_large]).astype(wanted)
    return ir.Tensor(low)
