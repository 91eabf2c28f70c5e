"""Linear layers for the kernels of `native/`: layers with one input become one node with concatenated weights."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from speccompile.compiler.checkpoints.gguf.block_types import CodeKind
from speccompile.compiler.lower.native import DOMAIN
from speccompile.compiler.lower.native.functions import add_functions
from speccompile.compiler.lower.native.layouts import Floats
from speccompile.compiler.lower.quantize import passthrough
from speccompile.compiler.lower.quantize.formats import FORMATS, Field, code_fields
from speccompile.compiler.lower.quantize.gemm import split_gemm
from speccompile.compiler.lower.quantize.lazy import add_initializer
from speccompile.compiler.lower.quantize.linear import HEAD, LAYER, ROUTER, TRANSPOSED, Linear, Weight, find_linears
from speccompile.compiler.lower.quantize.numpy_quantizers import Int4
from speccompile.compiler.lower.quantize.report import QuantizeReport
from speccompile.compiler.lower.quantize.shared import Shared
from speccompile.compiler.weights.graph import identity
from speccompile.compiler.weights.stored import Codes, joined_codes
from speccompile.plan.precisions import IN_BLOCKS, PRECISIONS, STORED, head_precision

JOINED = "+"
"""Separator between the names of concatenated weights."""


@dataclass(frozen=True)
class FusedColumns:
    """Concatenated weights [K, N], each with its bias."""

    weights: tuple[Weight, ...]
    biases: tuple[ir.Value | None, ...] = (None,)

    @property
    def name(self) -> str:
        return JOINED.join(weight.name for weight in self.weights)

    @property
    def shape(self) -> tuple[int, int]:
        return self.weights[0].shape[0], sum(weight.shape[1] for weight in self.weights)

    def read(self, part: slice) -> Floats:
        """Read float32 [K, columns of the part], which may span several of the weights."""
        found = [weight.columns(own) for weight, own in self._reached(part)]
        return found[0] if len(found) == 1 else np.concatenate(found, 1)

    def int4(self, part: slice, block_size: int) -> Int4:
        """Read columns in 4 bits."""
        found = [passthrough.int4_or_passthrough(weight, own, block_size) for weight, own in self._reached(part)]
        return found[0] if len(found) == 1 else Int4(*(np.concatenate(each, 1) for each in zip(*found, strict=True)))

    @property
    def code_kind(self) -> CodeKind | None:
        """Return how all of them are stored in codes; None where they are not."""
        return self.weights[0].rows.code_kind

    def codes(self, part: slice) -> Codes:
        """Read columns in codes."""
        return joined_codes([each.rows.block_codes(own) for each, own in self._reached(part)])

    def identity(self) -> list[Any]:
        """Return the identity of their values, as JSON."""
        return [weight.source_weight.identity() for weight in self.weights]

    def _reached(self, part: slice) -> Iterator[tuple[Weight, slice]]:
        """Yield (weight, its columns) for the columns of the part."""
        start = 0
        for weight in self.weights:
            first, last = max(part.start - start, 0), min(part.stop - start, weight.shape[1])
            if first < last:
                yield weight, slice(first, last)
            start += weight.shape[1]

    def bias(self) -> Floats:
        """Return the bias float32 [N], zeros for weights without one; a single zero if no weight has a bias."""
        if all(bias is None for bias in self.biases):
            return np.zeros(1, np.float32)
        rows = []
        for weight, bias in zip(self.weights, self.biases, strict=True):
            tensor = None if bias is None else ir.convenience.get_const_tensor(bias)
            rows.append(np.zeros(weight.shape[1], np.float32) if tensor is None else tensor.numpy())
        return np.concatenate(rows)


def native(
    model: ir.Model, linears: Sequence[Linear], word: str, block_size: int, shared: Shared | None = None
) -> QuantizeReport:
    """Before: y_1 = Add(MatMul(x, weight_1), bias_1), .., y_n = Add(MatMul(x, weight_n), bias_n).

    After, with the columns of all n weights in one constant:

        y   = speccompile.native::Linear..(x, numbers, .., bias)
        y_i = Slice(y, columns of weight_i)                             n > 1

    A lookup in a table that a head reads too, or in a table in eight bits, reads the same numbers:

        Gather(table, ids)  ->  speccompile.native::Embed..(ids, numbers, ..)

    word: float32, bfloat16, int8, int4 or stored; shared: the target's weights, in its format. Routers of experts stay
    float32. In `stored` each type of codes has its own node, for only equal codes can be concatenated.
    A weight that several nodes read is stored once; rows of a bfloat16 table that no head reads are gathered as stored.
    """
    writer = _Writer(model.graph, word, block_size, shared)
    for group in _groups(linears, writer.form_of):
        writer.replace(group)
    writer.look_up([linear for linear in linears if linear.role == HEAD])
    add_functions(model)
    return writer.report


def fuse_linears(model: ir.Model) -> None:
    """Fuse linear layers with one input over the model's own weights, which stay in the checkpoint:

    y   = Add(Concat(MatMul(x, weight_1), .., MatMul(x, weight_n)), biases)
    y_i = Slice(y, columns of weight_i)
    """
    split_gemm(model)
    for group in _groups(find_linears(model.graph), lambda _: "float32"):
        if len(group) > 1:
            columns, results = _side_by_side(group)
            products = [ir.node("MatMul", linear.node.inputs) for linear in group]
            whole = ir.node("Concat", [product.outputs[0] for product in products], {"axis": -1})
            nodes = [*products, whole]
            if any(bias is not None for bias in columns.biases):
                biases = ir.node("Constant", [], {"value": ir.tensor(columns.bias())})
                nodes += [biases, ir.node("Add", [whole.outputs[0], biases.outputs[0]])]
            made = _cut(nodes, nodes[-1].outputs[0], columns, results[0])
            _replace_nodes(model.graph, group, results, nodes, made)


def _groups(linears: Iterable[Linear], form_of: Callable[[Linear], str | CodeKind]) -> list[list[Linear]]:
    """Group linear layers with one input and one form; heads and routers stay alone."""
    groups: dict[tuple[ir.Value | None, str, str | CodeKind], list[Linear]] = defaultdict(list)
    for linear in linears:
        alone = "" if linear.role == LAYER else str(linear.node.name or linear.weight.name)
        groups[linear.node.inputs[0], linear.role + alone, form_of(linear)].append(linear)
    return list(groups.values())


def _side_by_side(group: Sequence[Linear]) -> tuple[FusedColumns, list[ir.Value]]:
    """Return the concatenated weights of a group, and the outputs of its layers with biases added."""
    biases = [_bias(linear) for linear in group]
    columns = FusedColumns(tuple(linear.weight for linear in group), tuple(bias for bias, _ in biases))
    return columns, [result for _, result in biases]


def _cut(nodes: list[ir.Node], whole: ir.Value, columns: FusedColumns, like: ir.Value) -> list[ir.Value]:
    whole.type = like.type
    whole.shape = None if like.shape is None else ir.Shape([*like.shape[:-1], columns.shape[1]])
    last = ir.node("Constant", [], {"value_ints": [-1]})
    nodes.insert(0, last)
    cut, start = [], 0
    for weight in columns.weights:
        bounds = [ir.node("Constant", [], {"value_ints": [at]}) for at in (start, start + weight.shape[1])]
        part = ir.node("Slice", [whole, *(bound.outputs[0] for bound in bounds), last.outputs[0]])
        nodes += [*bounds, part]
        cut.append(part.outputs[0])
        start += weight.shape[1]
    return cut


def _replace_nodes(
    graph: ir.Graph, group: Sequence[Linear], results: list[ir.Value], nodes: list[ir.Node], made: list[ir.Value]
) -> None:
    """Replace a group's nodes by `nodes`, and its results by theirs."""
    for new, old in zip(made, results, strict=True):
        new.shape, new.type, new.name = old.shape, old.type, old.name
    old_nodes = {
        node for linear, old in zip(group, results, strict=True) for node in (linear.node, old.producer()) if node
    }
    ir.convenience.replace_nodes_and_values(graph, group[0].node, list(old_nodes), nodes, results, made)


class _Writer:
    def __init__(self, graph: ir.Graph, word: str, block_size: int, shared: Shared | None) -> None:
        self._graph, self._word, self._block_size, self._shared = graph, word, block_size, shared
        self._stored: dict[tuple[str, str], list[ir.Value]] = {}
        self.report = QuantizeReport()

    def _numbers(self, source: ir.Value) -> tuple[str, int]:
        """Return the precision of a weight, and its block size."""
        if self._shared is not None and self._shared.has(source):
            return self._shared.word, self._shared.block_size
        return self._word, self._block_size

    def form_of(self, linear: Linear) -> str | CodeKind:
        """Return the form of a layer's weight: a key of FORMATS, or how it is stored."""
        word, _ = self._numbers(linear.weight.source)
        return "float32" if linear.role == ROUTER else _form(word, linear.role == HEAD, linear.weight)

    def replace(self, group: list[Linear]) -> None:
        """Replace linear layers with one input, one role and one form by one node."""
        _, block_size = self._numbers(group[0].weight.source)
        columns, results = _side_by_side(group)
        form = self.form_of(group[0])
        values = [*self._constants(columns, form, block_size), self._bias(columns)]
        x, first = group[0].node.inputs[0], group[0].node
        attributes, kind = _attributes(columns, form, block_size), f"Linear{_operator(form)}"
        nodes = [ir.node(kind, [x, *values], attributes, domain=DOMAIN, name=first.name)]
        made = list(nodes[0].outputs)
        if len(group) > 1:
            made = _cut(nodes, made[0], columns, results[0])
        _replace_nodes(self._graph, group, results, nodes, made)
        for linear in group:
            self.report.quantized[linear.weight.name] = _text(form, block_size)

    def look_up(self, heads: Iterable[Linear]) -> None:
        """Look up embeddings in the format of the head. A table has one row per column of a head."""
        tokens = {linear.weight.shape[1] for linear in heads}
        tied = {linear.weight.source for linear in heads if linear.weight.view_ops == TRANSPOSED}
        for table, gather in _lookups(self._graph):
            tensor = table.const_value
            assert tensor is not None
            rows, depth = tensor.shape.numpy()
            is_shared = self._shared is not None and self._shared.has(table)
            is_tied = self._shared.has_tied(table) if self._shared is not None and is_shared else table in tied
            word, block_size = self._numbers(table)
            columns = FusedColumns((Weight(table, tensor, (depth, rows), TRANSPOSED),))
            form = _form(word, True, columns.weights[0])
            if not (rows in tokens or is_shared) or (form == "float32" and not is_tied):
                continue
            if form == "bfloat16" and not is_tied:
                self._store_low(table, gather)
                continue
            values = self._constants(columns, form, block_size)
            ids, attributes = gather.inputs[1], _attributes(columns, form, block_size)
            node = ir.node(f"Embed{_operator(form)}", [ids, *values], attributes, domain=DOMAIN)
            self._stand_in(gather, [node])
            self.report.quantized[str(table.name)] = _text(form, block_size)

    def _store_low(self, table: ir.Value, gather: ir.Node) -> None:
        """Store a table in bfloat16; its rows are widened after the lookup."""
        tensor, name = table.const_value, f"{table.name}.bfloat16"
        assert tensor is not None
        if (name, "table") not in self._stored:
            low = ir.DataType.BFLOAT16
            self._stored[name, "table"] = [
                add_initializer(
                    self._graph,
                    name,
                    low,
                    tensor.shape.numpy(),
                    lambda: tensor.numpy().astype(low.numpy()),
                    {"dtype": low.name, "of": identity(tensor)},
                )
            ]
        rows = ir.node("Gather", [self._stored[name, "table"][0], gather.inputs[1]], {"axis": 0})
        self._stand_in(gather, [rows, ir.node("Cast", [rows.outputs[0]], {"to": int(ir.DataType.FLOAT)})])
        self.report.quantized[str(table.name)] = FORMATS["bfloat16"].text(0)

    def _stand_in(self, old: ir.Node, nodes: list[ir.Node]) -> None:
        result, new = old.outputs[0], nodes[-1].outputs[0]
        new.shape, new.type, new.name = result.shape, result.type, result.name
        ir.convenience.replace_nodes_and_values(self._graph, old, [old], nodes, [result], [new])

    def _constants(self, columns: FusedColumns, form: str | CodeKind, block_size: int) -> list[ir.Value]:
        word, described = (form, form) if isinstance(form, str) else (STORED, form.name)
        if (columns.name, described) not in self._stored:
            name, own = f"{columns.name}.{PRECISIONS[word].suffix}", columns.identity()
            self._stored[columns.name, described] = [
                add_initializer(
                    self._graph, f"{name}{each.suffix}", each.dtype, each.shape, each.make,
                    {"form": described, "field": each.suffix, "block_size": block_size, "of": own},
                )
                for each in _fields(columns, form, block_size)
            ]  # fmt: skip
        return self._stored[columns.name, described]

    def _bias(self, columns: FusedColumns) -> ir.Value:
        """Return the bias of all columns; one zero serves all layers without a bias."""
        bias = columns.bias()
        name = "no_bias" if len(bias) == 1 else f"{columns.name}.bias"
        if (name, "bias") not in self._stored:
            value = add_initializer(self._graph, name, ir.DataType.FLOAT, bias.shape, columns.bias)
            self._stored[name, "bias"] = [value]
        return self._stored[name, "bias"][0]


def _form(word: str, is_head: bool, weight: Weight) -> str | CodeKind:
    """Return the form of a weight in a precision, see `_Writer.form_of`. is_head: it is a head, or a table."""
    if word != STORED:
        return head_precision(word) if is_head else word
    return weight.rows.code_kind or ("bfloat16" if weight.rows.dtype == "bfloat16" else "float32")


def _operator(form: str | CodeKind) -> str:
    return PRECISIONS[form].kernel if isinstance(form, str) else f"{PRECISIONS[STORED].kernel}{form.bits}"


def _text(form: str | CodeKind, block_size: int) -> str:
    return FORMATS[form].text(block_size) if isinstance(form, str) else f"{form.name} as stored"


def _fields(columns: FusedColumns, form: str | CodeKind, block_size: int) -> list[Field]:
    if isinstance(form, CodeKind):
        return code_fields(form, columns.codes, *columns.shape)
    return FORMATS[form].fields(columns.read, *columns.shape, block_size, lambda part: columns.int4(part, block_size))


def _attributes(columns: FusedColumns, form: str | CodeKind, block_size: int) -> dict[str, int]:
    depth, width = columns.shape
    own = {"columns": width, "depth": depth}
    if isinstance(form, CodeKind):
        return own | {"block_size": form.block_size, "zero_point": form.zero_point}
    return own | ({"block_size": block_size} if form == IN_BLOCKS else {})


def _bias(linear: Linear) -> tuple[ir.Value | None, ir.Value]:
    """Return the constant bias [N] of a product [.., N] that has no other reader, and the sum; without a bias None and
    the product itself."""
    product = linear.node.outputs[0]
    readers = list(product.consumers())
    if len(readers) != 1 or product.is_graph_output() or readers[0].op_type != "Add" or readers[0].domain != "":
        return None, product
    other = next((value for value in readers[0].inputs if value is not product), None)
    tensor = None if other is None else ir.convenience.get_const_tensor(other)
    is_bias = tensor is not None and tuple(tensor.shape.numpy()) == linear.weight.shape[1:]
    return (other, readers[0].outputs[0]) if is_bias else (None, product)


def _lookups(graph: ir.Graph) -> list[tuple[ir.Value, ir.Node]]:
    """Return tables of float32 rows, and the nodes that look rows up in them by a tensor of ids."""
    tables = [value for value in graph.initializers.values() if value.dtype == ir.DataType.FLOAT]
    return [(table, node) for table in tables for node in table.consumers() if _looks_up(node, table)]


def _looks_up(node: ir.Node, table: ir.Value) -> bool:
    if node.op_type != "Gather" or node.inputs[0] is not table or node.attributes.get_int("axis", 0) != 0:
        return False
    return table.shape is not None and len(table.shape) == 2
