"""Attend as a kernel that reads the cache in place."""

from collections.abc import Sequence
from itertools import chain

import onnx_ir as ir

from speccompile.compiler.lower import neutral, neutral_codes
from speccompile.compiler.lower.native import DOMAIN
from speccompile.compiler.lower.passes import Nodes, batch_or_same, replace_value, rewrite_nodes, static_size
from speccompile.compiler.lower.passes.matching import made_by

HEADS_LAST = (0, 2, 1, 3)
"""[B, heads, T, D] -> [B, T, heads, D], and back."""


def attend_kernel(model: ir.Model) -> int:
    """Before: context = speccompile::Attend(query [B, N, T, D], rows.., caches.., length, positions, bias).

    After: context = speccompile.native::Attend(query' [B, T, N * D], rows.., caches.., length, positions, bias), with
    transposes of the query and the result, which are omitted if the model transposes the result back. Likewise for an
    Attend with sinks and for one over latent rows.

    No row of the cache is copied, no hidden score is computed, and a row's sums have one order for every window.

    Where rows and caches are speccompile::DecodeInt8(codes, scales), it becomes AttendInt8(query', codes, scales, ..,
    length, positions, bias), which reads the codes as they are; EncodeInt8 becomes the kernel of this name.
    AttendInt8Int4 reads values of DecodeInt4.
    """
    for name in chain.from_iterable(neutral_codes.CODE_OPS.items()):
        rewrite_nodes(model, neutral.DOMAIN, name, _code)
    fired = sum(rewrite_nodes(model, neutral.DOMAIN, name, _attend) for name in neutral.ATTENDS)
    for node in [node for node in model.graph if node.domain == DOMAIN and neutral.is_attend(node.op_type)]:
        for result in _turned_back(node.outputs[0]):
            replace_value(result, node.outputs[0])
    return fired


def _code(nodes: Nodes, node: ir.Node) -> Sequence[ir.Value]:
    return nodes.several(len(node.outputs), node.op_type, *filter(None, node.inputs), domain=DOMAIN)


def _attend(nodes: Nodes, node: ir.Node) -> ir.Value:
    query, *rest = node.inputs
    op, decoded = node.op_type, [_decoded(rows) for rows in rest[:4]]
    if decoded[3] is not None:
        op = neutral_codes.CODE_ATTENDS[decoded[3].op_type][op]
        rest[:4] = [part for each in decoded if each is not None for part in each.inputs]
    assert query is not None
    assert query.shape is not None
    batch, heads = batch_or_same(query), static_size(query, 1)
    width = static_size(node.inputs[1 if neutral.is_latent(node.op_type) else 2], 3)
    turned = nodes("Transpose", query, perm=HEADS_LAST)
    flat = nodes("Reshape", turned, nodes.integers(batch, -1, heads * static_size(query, 3)))
    settings = {name: node.attributes[name].value for name in ("scale", "softcap", "window", "ring")}
    context = nodes(op, flat, *rest, domain=DOMAIN, **settings)
    context.type, context.shape = query.type, ir.Shape([query.shape[0], query.shape[2], heads * width])
    by_head = nodes("Reshape", context, nodes.integers(batch, -1, heads, width))
    return nodes("Transpose", by_head, perm=HEADS_LAST)


def _decoded(rows: ir.Value | None) -> ir.Node | None:
    """Return the node that makes rows of codes and scales."""
    return next(filter(None, (made_by(rows, op, DOMAIN) for op in neutral_codes.CODE_OPS.values())), None)


def _turned_back(context: ir.Value) -> list[ir.Value]:
    """Return the values that are the context after its heads are transposed behind its tokens, and joined."""
    found = []
    for reshape in context.consumers():
        for turned in _readers(reshape, "Transpose"):
            for back in _readers(turned, "Transpose"):
                if back.attributes["perm"].as_ints() == HEADS_LAST:
                    found += [
                        flat.outputs[0] for flat in _readers(back, "Reshape") if _is_flat(flat.outputs[0], context)
                    ]
    return found


def _readers(node: ir.Node, op: str) -> list[ir.Node]:
    return [reader for reader in node.outputs[0].consumers() if made_by(reader.outputs[0], op)]


def _is_flat(value: ir.Value, context: ir.Value) -> bool:
    shapes = value.shape, context.shape
    return all(shape is not None and len(shape) == 3 for shape in shapes) and shapes[0][2] == shapes[1][2]
