"""Caches of a traced graph as int8 codes and scales."""

from collections.abc import Mapping

import onnx_ir as ir

from speccompile.bundle.caches import code_widths, scale_name
from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.passes.matching import made_by

_ATTEND_CACHES = (3, 4)  # indices of both caches among the inputs of an Attend


def store_codes(model: ir.Model, bits: Mapping[str, int]) -> int:
    """Before: updated = speccompile::Commit(cache, DecodeInt8(codes, scales), length), float32 [B, G, S, D], cache an
    input of one of these names. bits: name -> bits of a code.

    After: two inputs, cache int8 [B, G, S, D] and its scales float32 [B, G, S, 1]; updated codes =
    Commit(cache, codes, length), updated scales = Commit(cache scales, scales, length). An Attend over a cache, before
    or after the commit, reads DecodeInt8(codes, scales). With 4 bits DecodeInt4(codes, scales): two codes in a
    byte, int8 [B, G, S, D / 2], and scales float32 [B, G, S, 2].

    No row is quantized again: a commit moves the codes that attention has read. A Concat of committed and in-step rows,
    for attention with a bias of each distance, reads what they decode to as well. Raise AssertionError if anything else
    reads a cache.
    """
    graph, fired = model.graph, 0
    for cache in [value for value in graph.inputs if value.name in bits]:
        its = bits[cache.name or ""]
        pair = _pair(cache, its)
        place = list(graph.inputs).index(cache)
        graph.inputs[place : place + 1] = list(pair)
        _store(graph, cache, pair, f"DecodeInt{its}")
        fired += 1
    return fired


def _pair(cache: ir.Value, bits: int) -> tuple[ir.Value, ir.Value]:
    assert cache.name is not None
    assert cache.shape is not None
    *rows, width = cache.shape
    widths = code_widths(int(width), bits)
    shapes = [ir.Shape([*rows, each]) for each in widths]
    codes = ir.Value(name=cache.name, type=ir.TensorType(ir.DataType.INT8), shape=shapes[0])
    scales = ir.Value(name=scale_name(cache.name), type=ir.TensorType(ir.DataType.FLOAT), shape=shapes[1])
    return codes, scales


def _store(graph: ir.Graph, cache: ir.Value, pair: tuple[ir.Value, ir.Value], decode: str) -> None:
    """Let what reads a float cache, and what reads its update, read codes and scales."""
    decoded = ir.node(decode, list(pair), domain=neutral.DOMAIN)
    decoded.outputs[0].type, decoded.outputs[0].shape = cache.type, cache.shape
    is_read = False
    for node, index in list(cache.uses()):
        is_neutral = node.domain == neutral.DOMAIN
        if (is_neutral and neutral.is_attend(node.op_type) and index in _ATTEND_CACHES) or node.op_type == "Concat":
            if not is_read:
                graph.insert_before(_first_reader(graph, cache), decoded)
                is_read = True
            node.replace_input_with(index, decoded.outputs[0])
        else:
            assert (is_neutral, node.op_type, index) == (True, "Commit", 0), (
                f"{node.op_type} reads the cache {cache.name}"
            )
            _commit(graph, node, pair, decode)


def _first_reader(graph: ir.Graph, cache: ir.Value) -> ir.Node:
    readers = {use.node for use in cache.uses()}
    return next(node for node in graph if node in readers)


def _commit(graph: ir.Graph, node: ir.Node, pair: tuple[ir.Value, ir.Value], decode: str) -> None:
    rows, length, old = node.inputs[1], node.inputs[2], node.outputs[0]
    assert made_by(rows, decode, neutral.DOMAIN), "rows are committed as they were read"
    assert rows is not None
    commits = [
        ir.node("Commit", [buffer, row, length], dict(node.attributes), domain=neutral.DOMAIN)
        for buffer, row in zip(pair, rows.producer().inputs, strict=True)
    ]
    graph.insert_before(node, commits)
    updated = tuple(commit.outputs[0] for commit in commits)
    for value, buffer in zip(updated, pair, strict=True):
        value.type, value.shape = buffer.type, buffer.shape
    if old.is_graph_output():
        assert old.name is not None
        place = list(graph.outputs).index(old)
        graph.outputs[place : place + 1] = list(updated)
        updated[1].name, updated[0].name, old.name = scale_name(old.name), old.name, None
    _store(graph, old, updated, decode)
    graph.remove(node, safe=True)
