"""Attend for engines that take dynamic sizes: the cache cut to its length, one key axis, plain MatMul and Softmax."""

import onnx_ir as ir

from speccompile.lower import neutral
from speccompile.lower.passes import Nodes, replace_each, static_size

HIDDEN = -1e30


def attend_sliced(model: ir.Model) -> int:
    """Before: context = speccompile::Attend(query, rows.., caches.., length, positions, bias).

    After: keys = Concat(Slice(key_cache, 0, max(length)), key_rows), values alike; query heads that share a key head
    are folded into rows, so that keys and values are never repeated:

        context = MatMul(Softmax(MatMul(query * scale, keys^T) + bias), values)

    The softmax runs over one contiguous key axis `[committed | in-step]`: two partial sums added afterwards would
    round differently with the window's width.
    """
    return replace_each(model, neutral.DOMAIN, "Attend", _attend)


def _attend(nodes: Nodes, node: ir.Node) -> ir.Value:
    query, key_rows, value_rows, key_cache, value_cache, length, _, bias = node.inputs
    heads, groups = static_size(query, 1), static_size(key_rows, 1)
    shared = heads // groups
    scale, softcap = node.attributes["scale"].as_float(), node.attributes["softcap"].as_float()
    batch, window = static_size(key_cache, 0), node.attributes["window"].as_int()

    committed = nodes("ReduceMax", length, keepdims=1)  # [1]
    rows = nodes("Shape", bias, start=3, end=4)
    keys = _whole(nodes, key_cache, key_rows, length, committed, rows)
    values = _whole(nodes, value_cache, value_rows, length, committed, rows)
    folded = nodes("Reshape", query, nodes.integers(batch, groups, -1, static_size(query, 3)))  # [B, G, shared * T, D]
    scaled = nodes("Mul", folded, nodes.number(scale, query.dtype))
    scores = nodes("MatMul", scaled, nodes("Transpose", keys, perm=[0, 1, 3, 2]))
    if softcap > 0:
        cap = nodes.number(softcap, query.dtype)
        scores = nodes("Mul", nodes("Tanh", nodes("Div", scores, cap)), cap)
    if batch == 1 and window == 0:  # every committed row is seen: nothing but zeros on the left
        left = nodes("Concat", nodes.integers(0, 0, 0), committed, nodes.integers(0, 0, 0, 0), axis=0)
        full_bias = nodes("Pad", bias, left)
    else:
        full_bias = nodes("Concat", _committed_bias(nodes, node, committed, window), bias, axis=3)
    if shared > 1 and query.shape[2] != 1:  # for one token the bias is broadcast
        full_bias = nodes("Concat", *[full_bias] * shared, axis=2)  # [B, 1, shared * T, C]
    scores = nodes("Add", scores, full_bias)
    context = nodes("MatMul", nodes("Softmax", scores, axis=-1), values)
    return nodes("Reshape", context, nodes.integers(batch, heads, -1, static_size(value_rows, 3)))


def _whole(
    nodes: Nodes, cache: ir.Value, rows: ir.Value, length: ir.Value, committed: ir.Value, width: ir.Value
) -> ir.Value:
    """[B, G, L + R, D]: the committed part of the cache, then the in-step rows."""
    start, axis = nodes.integers(0), nodes.integers(2)
    # In a batch, rows of different lengths leave gaps.
    updated = written(cache, rows, length) if static_size(cache, 0) == 1 else None
    if updated is not None:
        return nodes("Slice", updated, start, nodes("Add", committed, width), axis)
    return nodes("Concat", nodes("Slice", cache, start, committed, axis), rows, axis=2)


def written(cache: ir.Value, rows: ir.Value, length: ir.Value) -> ir.Value | None:
    """The updated cache, where these rows are committed as they are: they then lie in their place. Else None."""
    commits = (node for node in cache.consumers() if (node.domain, node.op_type) == (neutral.DOMAIN, "Commit"))
    found = next((node for node in commits if node.inputs == (cache, rows, length)), None)
    return None if found is None or found.attributes["axis"].as_int() != 2 else found.outputs[0]


def _committed_bias(nodes: Nodes, node: ir.Node, committed: ir.Value, window: int) -> ir.Value:
    """[B, 1, T, L]: zero where a committed row is seen. Rows of a batch have committed different lengths."""
    length, positions, bias = node.inputs[5:]
    start, step = nodes("Constant", value_int=0), nodes("Constant", value_int=1)
    column = nodes("Range", start, nodes("Squeeze", committed), step)  # [L]
    seen = nodes("Less", column, nodes("Reshape", length, nodes.integers(-1, 1, 1, 1)))  # [B, 1, 1, L]
    if window > 0:
        distance = nodes("Sub", nodes("Unsqueeze", positions, nodes.integers(1, 3)), column)  # [B, 1, T, L]
        seen = nodes("And", seen, nodes("Less", distance, nodes("Constant", value_int=window)))
    visible, hidden = nodes.number(0.0, bias.dtype), nodes.number(HIDDEN, bias.dtype)
    mask = nodes("Where", seen, visible, hidden)
    one = nodes.integers(1)
    size = nodes("Concat", one, one, nodes("Shape", bias, start=2, end=3), one, axis=0)
    return nodes("Expand", mask, size)
