"""Commit of tokens for engines that update only K/V-like caches in place."""

import onnx_ir as ir

from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.passes import Nodes, batch_or_same, nodes_of, static_size


def commit_integers(model: ir.Model) -> int:
    """Before: updated = speccompile::Commit<axis = 1>(tokens, rows, length), int64 [B, S], tokens an input and updated
    an output of the graph.

    After: both are float32 [B, 1, S, 1], updated = speccompile::Commit<axis = 2>(tokens, Cast(rows), length), and what
    read the updated tokens reads Cast(Reshape(updated)); what read them before, Cast(Reshape(tokens)).

    TensorRT scatters in place into float tensors of four axes alone. float32 holds every integer below 2^24.
    """
    commits = nodes_of(model.graph, neutral.DOMAIN, "Commit")
    integers = [node for node in commits if node.outputs[0].dtype == ir.DataType.INT64]
    for node in integers:
        _widen(model.graph, node)
    return len(integers)


def _widen(graph: ir.Graph, node: ir.Node) -> None:
    buffer, rows, length = node.inputs
    old = node.outputs[0]
    assert buffer is not None
    readers = [use for use in buffer.uses() if use.node is not node]
    assert rows is not None
    batch, size = batch_or_same(buffer), static_size(buffer, 1)
    assert buffer.shape is not None
    rows_of = buffer.shape[0]
    nodes = Nodes()
    column = nodes("Reshape", nodes("Cast", rows, to=int(ir.DataType.FLOAT)), nodes.integers(batch, 1, -1, 1))
    commit = ir.node("Commit", [buffer, column, length], {"axis": 2, "mode": neutral.LINEAR}, domain=neutral.DOMAIN)
    nodes.nodes.append(commit)
    updated = commit.outputs[0]
    tokens = nodes("Cast", nodes("Reshape", updated, nodes.integers(batch, size)), to=int(ir.DataType.INT64))
    tokens.type, tokens.shape = ir.TensorType(ir.DataType.INT64), ir.Shape([rows_of, size])
    graph.insert_before(node, nodes.nodes)
    if readers:
        before = Nodes()
        held = before("Cast", before("Reshape", buffer, before.integers(batch, size)), to=int(ir.DataType.INT64))
        held.type, held.shape = tokens.type, tokens.shape
        graph.insert_before(graph[0], before.nodes)
        for user, place in readers:
            user.replace_input_with(place, held)
    graph.outputs[list(graph.outputs).index(old)] = updated
    updated.name, old.name = old.name, None
    for cache in (buffer, updated):
        cache.type, cache.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([rows_of, 1, size, 1])
    ir.convenience.replace_all_uses_with(old, tokens)
    graph.remove(node, safe=True)
