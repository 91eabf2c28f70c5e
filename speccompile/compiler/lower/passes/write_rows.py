"""Quantized caches for engines that update only caches of floats in place: the graph gives their new rows."""

import onnx_ir as ir
from onnx_ir.passes import common

from speccompile.compiler.lower import neutral, neutral_codes
from speccompile.compiler.lower.passes import Nodes, batch_or_same, nodes_of, rewrite_nodes, static_size

_FP8 = ir.DataType.FLOAT8E4M3FN
_ROWS = {3: 1, 4: 2}
"""Index of a cache among the inputs of an Attend -> that of its in-step rows."""
_DECODERS = {"DequantizeLinear", *neutral_codes.CODE_OPS.values()}


def store_fp8(model: ir.Model) -> int:
    """Before: updated = speccompile::Commit(cache, RoundFp8(rows), length), a cache of floats.

    After: the cache is float8e4m3fn, its readers read DequantizeLinear(cache, 1), and

        codes = QuantizeLinear(rows, 1), updated = Commit(cache, codes, length)

    where an Attend read the rounded rows, it reads DequantizeLinear(codes, 1).
    """
    rounded = nodes_of(model.graph, neutral.DOMAIN, "RoundFp8")
    for node in rounded:
        nodes = Nodes()
        rows = node.inputs[0]
        assert rows is not None
        one = nodes.number(1.0, rows.dtype)
        codes = nodes("QuantizeLinear", rows, one, output_dtype=int(_FP8))
        codes.type, codes.shape = ir.TensorType(_FP8), rows.shape
        floats = nodes("DequantizeLinear", codes, one)
        old = node.outputs[0]
        floats.type, floats.shape = old.type, old.shape
        commits = [each for each in old.consumers() if each.op_type == "Commit" and each.domain == neutral.DOMAIN]
        model.graph.insert_before(node, nodes.nodes)
        ir.convenience.replace_all_uses_with(old, floats)
        model.graph.remove(node, safe=True)
        for commit in commits:
            commit.replace_input_with(1, codes)
            for cache in (commit.inputs[0], commit.outputs[0]):
                assert cache is not None
                _read_decoded(model.graph, cache, floats.dtype)
    return len(rounded)


def _read_decoded(graph: ir.Graph, cache: ir.Value, dtype: ir.DataType | None) -> None:
    """Make a cache of floats one of fp8, whose readers other than commits read it as floats."""
    readers = [use for use in cache.uses() if use.node.op_type != "Commit"]
    if readers:
        nodes = Nodes()
        floats = nodes("DequantizeLinear", cache, nodes.number(1.0, dtype))
        floats.type, floats.shape = ir.TensorType(dtype or ir.DataType.FLOAT), cache.shape
        first = min((use.node for use in readers), key=list(graph).index)
        graph.insert_before(first, nodes.nodes)
        for node, place in readers:
            node.replace_input_with(place, floats)
    cache.type = ir.TensorType(_FP8)


def write_rows(model: ir.Model) -> int:
    """Before: updated = speccompile::Commit(cache, codes, length), int8 or fp8, updated an output of the graph.

    After: the output is `codes`; what read floats of the updated cache reads Commit(floats of the cache, floats of the
    codes, length), a value inside the graph. An Attend over floats of the cache and of the codes finds such a Commit.

    The engine writes the codes into the cache when the graph has run.
    """
    byte = (ir.DataType.INT8, _FP8)
    commits = nodes_of(model.graph, neutral.DOMAIN, "Commit")
    found = [node for node in commits if node.outputs[0].dtype in byte]
    for node in found:
        _commit_floats(model.graph, node)
    return len(found)


def _commit_floats(graph: ir.Graph, node: ir.Node) -> None:
    cache, codes, length = node.inputs
    updated = node.outputs[0]
    assert cache is not None
    assert codes is not None
    assert length is not None
    before, rows = _floats(cache), _floats(codes)

    def committed(reader: ir.Node, one: ir.Value, other: ir.Value) -> ir.Value:
        made = ir.node("Commit", [one, other, length], dict(node.attributes), domain=neutral.DOMAIN)
        made.outputs[0].type, made.outputs[0].shape = one.type, one.shape
        graph.insert_before(reader, made)
        return made.outputs[0]

    for one in before:
        for attend, place in list(one.uses()):
            other = attend.inputs[_ROWS[place]] if neutral.is_attend(attend.op_type) and place in _ROWS else None
            if other is not None and other in rows:
                committed(attend, one, other)
    for old in _floats(updated):
        one, other = (next(each for each in found if each.dtype == old.dtype) for found in (before, rows))
        reader = old.producer()
        assert reader is not None
        ir.convenience.replace_all_uses_with(old, committed(reader, one, other))
    _give(graph, node, codes)


def _floats(codes: ir.Value) -> list[ir.Value]:
    """Return the floats that these codes are decoded to, in all types."""
    decoders = (node for node in codes.consumers() if node.op_type in _DECODERS)
    found = [node.outputs[0] for node in decoders]
    return found + [cast.outputs[0] for each in found for cast in each.consumers() if cast.op_type == "Cast"]


def _give(graph: ir.Graph, commit: ir.Node, codes: ir.Value) -> None:
    """Let the graph give the codes in place of the updated cache."""
    updated, given = commit.outputs[0], ir.node("Identity", [codes])
    result = given.outputs[0]
    result.type, result.shape, result.name, updated.name = codes.type, codes.shape, updated.name, None
    graph.insert_before(commit, given)
    graph.outputs[list(graph.outputs).index(updated)] = result
    for unread in list(updated.consumers()):
        graph.remove(unread, safe=True)
    graph.remove(commit, safe=True)


def commit_columns(model: ir.Model) -> int:
    """Before: updated = speccompile::Commit<axis = 2>(cache, rows, length), floats inside the graph.

    After: updated = Where(0 <= place < R, rows[Clip(place, 0, R - 1)], cache), place = 0, 1, .. S - 1 less the length:
    a row is in the same column in every window.
    """

    def columns(nodes: Nodes, node: ir.Node) -> ir.Value | None:
        cache, rows, length = node.inputs
        if node.attributes["axis"].as_int() != 2 or cache is None or cache.is_graph_input():
            return None
        assert rows is not None
        assert length is not None
        count = nodes.integers(*range(static_size(cache, 2)))
        column = nodes("Reshape", count, nodes.integers(1, 1, -1, 1))
        place = nodes("Sub", column, nodes("Reshape", length, nodes.integers(-1, 1, 1, 1)))  # [B, 1, S, 1]
        first, size = nodes.integers(0), nodes("Shape", rows, start=2, end=3)
        nearest = nodes("Min", nodes("Max", place, first), nodes("Sub", size, nodes.integers(1)))
        if batch_or_same(cache) == 1:
            moved = nodes("Gather", rows, nodes("Reshape", nearest, nodes.integers(-1)), axis=2)
        else:
            moved = nodes("GatherElements", rows, nodes("Expand", nearest, nodes("Shape", cache)), axis=2)
        is_new = nodes("And", nodes("GreaterOrEqual", place, first), nodes("Less", place, size))
        return nodes("Where", is_new, moved, cache)

    return rewrite_nodes(model, neutral.DOMAIN, "Commit", columns)


def inline_codes(model: ir.Model) -> int:
    """Before: nodes of `neutral_codes`. After: their bodies, in standard operators."""
    wanted = {*neutral_codes.CODE_OPS, *neutral_codes.CODE_OPS.values()}
    return int(common.InlinePass(criteria=lambda function: function.name in wanted)(model).modified)
