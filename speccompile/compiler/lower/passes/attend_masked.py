"""Attend for engines that take no sizes from data: over the whole static buffer, with a mask."""

import numpy as np
import onnx_ir as ir

from speccompile.compiler.lower import neutral
from speccompile.compiler.lower.passes import SAME, Nodes, batch_or_same, rewrite_nodes, static_size

_FLOAT = ir.DataType.FLOAT

HIDDEN = -1e30
"""step/ops.py, HIDDEN."""


def attend_masked(model: ir.Model) -> int:
    """Before: context = speccompile::Attend(query, rows.., caches.., length, positions, bias).

    After: query heads that share a key head are folded into rows, so that keys and values are never repeated, and

        context = MatMul(Softmax(MatMul(query * scale, keys^T) + mask), values)

    where mask hides committed rows after the length or outside the attention window. The softmax is float32 in every
    precision. If the in-step rows are committed unchanged, keys = speccompile::Commit(key_cache, key_rows), and their
    bias is moved to the columns that they then have: a key has the same column in every window. Otherwise keys =
    Concat(key_cache, key_rows), or the cache alone where no rows are in-step, as of a source. Sinks are one more column
    of the scores, dropped after the softmax. Over latent rows the product is the sum of two products, one for each part
    of the keys.

    Not ONNX's Attention: TensorRT refuses its `softcap` and its `softmax_precision`, and without the latter sums
    float16 scores in float16.
    """
    return sum(rewrite_nodes(model, neutral.DOMAIN, name, _attend) for name in neutral.ATTENDS)


def _attend(nodes: Nodes, node: ir.Node) -> ir.Value:
    query, key_rows, value_rows, key_cache, value_cache, length = node.inputs[:6]
    heads, groups, batch = static_size(query, 1), static_size(key_rows, 1), batch_or_same(key_cache)
    softcap = node.attributes["softcap"].as_float()
    key, value = _written(key_cache, key_rows, length), _written(value_cache, value_rows, length)
    is_source = key_rows.shape[2] == 0
    if is_source:
        keys, values, mask = key_cache, value_cache, _committed(nodes, node)
    elif key is not None and value is not None:
        keys, values, mask = key, value, _mask_in_place(nodes, node)
    else:
        keys, values = (nodes("Concat", *pair, axis=2) for pair in ((key_cache, key_rows), (value_cache, value_rows)))
        mask = _mask_beside(nodes, node)
    scores = _scores(nodes, node, keys, values)
    if softcap > 0:
        cap = nodes.number(softcap)
        scores = nodes("Mul", nodes("Tanh", nodes("Div", scores, cap)), cap)
    if heads > groups and query.shape[2] != 1 and not is_source:  # for one token the mask is broadcast
        mask = nodes("Concat", *[mask] * (heads // groups), axis=2)  # [B, 1, shared * T, C]
    weights = _weights(nodes, node, nodes("Add", scores, mask))
    read, rows = (keys, key_rows) if neutral.is_latent(node.op_type) else (values, value_rows)
    context = nodes("MatMul", _cast(nodes, weights, _FLOAT, query.dtype), read)
    return nodes("Reshape", context, nodes.integers(batch, heads, -1, static_size(rows, 3)))


def _scores(nodes: Nodes, node: ir.Node, keys: ir.Value, values: ir.Value) -> ir.Value:
    """Return float32 [B, G, shared * T, C]."""
    query, width, tail = node.inputs[0], static_size(node.inputs[1], 3), static_size(node.inputs[2], 3)
    groups, batch = static_size(node.inputs[1], 1), batch_or_same(node.inputs[3])
    folded = nodes("Reshape", query, nodes.integers(batch, groups, -1, static_size(query, 3)))  # [B, G, shared * T, D]
    scale = nodes.number(node.attributes["scale"].as_float(), query.dtype)
    scaled = nodes("Mul", folded, scale)  # before the product, which could overflow float16

    def product(part: ir.Value, rows: ir.Value) -> ir.Value:
        made = nodes("MatMul", part, nodes("Transpose", rows, perm=[0, 1, 3, 2]))
        return _cast(nodes, made, query.dtype, _FLOAT)

    if not neutral.is_latent(node.op_type):
        return product(scaled, keys)
    first, last = nodes.several(2, "Split", scaled, nodes.integers(width, tail), axis=3)
    return nodes("Add", product(first, keys), product(last, values))


def _weights(nodes: Nodes, node: ir.Node, scores: ir.Value) -> ir.Value:
    """Return the softmax of scores [B, G, shared * T, C]; sinks are added before it, and dropped after it."""
    if len(node.inputs) <= neutral.SINKS:
        return nodes("Softmax", scores, axis=-1)
    query, sinks = node.inputs[0], node.inputs[neutral.SINKS]
    heads, groups, batch = static_size(query, 1), static_size(node.inputs[1], 1), batch_or_same(node.inputs[3])
    one = nodes.integers(1)
    per_head = nodes("Shape", query, start=0, end=2) if batch == SAME else nodes.integers(batch, heads)
    size = nodes("Concat", per_head, nodes("Shape", query, start=2, end=3), one, axis=0)
    by_head = nodes("Reshape", _cast(nodes, sinks, sinks.dtype, _FLOAT), nodes.integers(1, heads, 1, 1))
    column = nodes("Reshape", nodes("Expand", by_head, size), nodes.integers(batch, groups, -1, 1))
    weights = nodes("Softmax", nodes("Concat", scores, column, axis=3), axis=-1)
    end, last = nodes("Shape", scores, start=3, end=4), nodes.integers(3)
    return nodes("Slice", weights, nodes.integers(0), end, last)


def _cast(nodes: Nodes, value: ir.Value, dtype: ir.DataType | None, wanted: ir.DataType | None) -> ir.Value:
    """Cast the value from type `dtype` to type `wanted`; None is float32."""
    wanted = wanted or _FLOAT
    return value if (dtype or _FLOAT) == wanted else nodes("Cast", value, to=int(wanted))


def _mask_beside(nodes: Nodes, node: ir.Node) -> ir.Value:
    """Return float32 [B, 1, T, S + R]: committed columns, then in-step rows."""
    bias = node.inputs[7]
    one = nodes.integers(1)
    size = nodes("Concat", one, one, nodes("Shape", bias, start=2, end=3), one, axis=0)
    return nodes("Concat", nodes("Expand", _committed(nodes, node), size), bias, axis=3)


def _mask_in_place(nodes: Nodes, node: ir.Node) -> ir.Value:
    """Return float32 [B, 1, T, S]: the bias of in-step row r stands in column length + r."""
    bias, columns = node.inputs[7], static_size(node.inputs[3], 2)
    place = nodes("Sub", _columns(nodes, columns), _start(nodes, node))  # [B, 1, 1, S]: the row of this column
    first, rows = nodes.integers(0), nodes("Shape", bias, start=3, end=4)
    nearest = nodes("Min", nodes("Max", place, first), nodes("Sub", rows, nodes.integers(1)))
    one = nodes.integers(1)
    size = nodes("Concat", one, one, nodes("Shape", bias, start=2, end=3), one, axis=0)
    moved = nodes("GatherElements", bias, nodes("Expand", nearest, size), axis=3)  # [B, 1, T, S]
    in_step = nodes("And", nodes("GreaterOrEqual", place, first), nodes("Less", place, rows))
    return nodes("Where", in_step, moved, _committed(nodes, node))


def _committed(nodes: Nodes, node: ir.Node) -> ir.Value:
    """Return float32 [B, 1, T or 1, S]: zero for committed rows that are seen."""
    window, column = node.attributes["window"].as_int(), _columns(nodes, static_size(node.inputs[3], 2))
    seen = nodes("Less", column, _start(nodes, node))
    if window > 0:
        distance = nodes("Sub", nodes("Unsqueeze", node.inputs[6], nodes.integers(1, 3)), column)  # [B, 1, T, S]
        seen = nodes("And", seen, nodes("Less", distance, nodes("Constant", value_int=window)))
    return nodes("Where", seen, nodes.number(0.0), nodes.number(HIDDEN))


def _columns(nodes: Nodes, count: int) -> ir.Value:
    """Return int64 [1, 1, 1, S]: 0, 1, .."""
    return nodes("Constant", value=ir.tensor(np.arange(count, dtype=np.int64).reshape(1, 1, 1, -1)))


def _start(nodes: Nodes, node: ir.Node) -> ir.Value:
    """Return int64 [B, 1, 1, 1]: the column of the first in-step row."""
    return nodes("Reshape", node.inputs[5], nodes.integers(-1, 1, 1, 1))


def _written(cache: ir.Value, rows: ir.Value, length: ir.Value) -> ir.Value | None:
    """Return the updated cache if these rows are committed to it unchanged, else None."""
    commits = (node for node in cache.consumers() if (node.domain, node.op_type) == (neutral.DOMAIN, "Commit"))
    found = next((node for node in commits if node.inputs == (cache, rows, length)), None)
    return None if found is None or found.attributes["axis"].as_int() != 2 else found.outputs[0]
