"""Fuse head split, norm and rotary embedding of projections into one node per layer."""

from dataclasses import dataclass
from typing import NamedTuple

import onnx_ir as ir

from speccompile.compiler.lower.native import DOMAIN
from speccompile.compiler.lower.neutral import is_attend
from speccompile.compiler.lower.neutral_codes import CODE_OPS, reads_codes
from speccompile.compiler.lower.passes import replace_value
from speccompile.compiler.lower.passes.attend_kernel import HEADS_LAST
from speccompile.compiler.lower.passes.matching import made_by, match_slice


@dataclass(frozen=True)
class Rows:
    """Heads of a projection: `heads` of them, each `width` columns of `source` [B, T, *], from `offset` on. They are
    normalized by `norm`, if there is one, and then rotated by `rotary`."""

    source: ir.Value
    offset: int
    heads: int
    width: int
    norm: ir.Node | None
    rotary: ir.Node | None


def fuse_head_split(model: ir.Model) -> int:
    """Before: query = Reshape(Transpose(rotated(q))), key = rotated(k), value = v, where each of q, k and v is
    Transpose(Reshape(Slice(projection), [B, T, heads, D])), and rotated(x) = RotaryEmbedding(x, cos, sin), with an
    RMSNormalization before it, or x itself.

    After: query, key, value = speccompile.native::RotaryHeads(projection, projection, projection, cos, sin), or
    NormRotaryHeads, or SplitHeads. For all inputs of an Attend.
    """
    attends = [node for node in model.graph if node.domain == DOMAIN and is_attend(node.op_type)]
    return sum(_joined(model.graph, node) for node in attends)


def _joined(graph: ir.Graph, attend: ir.Node) -> bool:
    values = [_own(attend.inputs[place]) for place in ((1, 3) if reads_codes(attend.op_type) else (1, 2))]
    query, key, value = _flat(attend.inputs[0]), *(None if each is None else _rows(each) for each in values)
    if query is None or key is None or value is None or not _fits(query, key, value):
        return False
    node = _node(query, key, value)
    graph.insert_before(attend, node)
    for old, new in zip((attend.inputs[0], *values), node.outputs, strict=True):
        assert old is not None
        replace_value(old, new)
    return True


def _own(rows: ir.Value | None) -> ir.Value | None:
    """Return the rows of this pass: the last ones, after those of a drafter's earlier passes, and before they are
    quantized."""
    encoded = next(filter(None, (made_by(rows, op, DOMAIN) for op in CODE_OPS)), None)
    rows = rows if encoded is None else encoded.inputs[0]
    joined = made_by(rows, "Concat")
    return rows if joined is None else joined.inputs[-1]


def _flat(query: ir.Value | None) -> Rows | None:
    """Match Reshape(Transpose(rows))."""
    reshape = made_by(query, "Reshape")
    turned = None if reshape is None else made_by(reshape.inputs[0], "Transpose")
    if turned is None or turned.attributes["perm"].as_ints() != HEADS_LAST:
        return None
    return None if turned.inputs[0] is None else _rows(turned.inputs[0])


def _rows(value: ir.Value) -> Rows | None:
    """Match values [B, heads, T, D]; a normalization may stand before or after the Transpose."""
    rotary = made_by(value, "RotaryEmbedding")
    if rotary is not None and rotary.inputs[0] is not None:
        value = rotary.inputs[0]
    norm, value = _normalized(value)
    turned = made_by(value, "Transpose")
    if turned is None or turned.attributes["perm"].as_ints() != HEADS_LAST or turned.inputs[0] is None:
        return None
    inner, value = _normalized(turned.inputs[0])
    if norm is not None and inner is not None:
        return None
    reshape = made_by(value, "Reshape")
    shape, source = value.shape, None if reshape is None else reshape.inputs[0]
    if source is None or shape is None or len(shape) != 4 or source.shape is None or len(source.shape) != 3:
        return None
    heads, width = shape[2], shape[3]
    if not isinstance(heads, int) or not isinstance(width, int) or source.shape[2] != heads * width:
        return None
    part = match_slice(source)
    if part is not None and part.step == 1:
        return Rows(part.source, part.start, heads, width, norm or inner, rotary)
    return Rows(source, 0, heads, width, norm or inner, rotary)


def _normalized(value: ir.Value) -> tuple[ir.Node | None, ir.Value]:
    norm = made_by(value, "RMSNormalization")
    if norm is None or norm.inputs[0] is None or norm.attributes["axis"].as_int() != -1:
        return None, value
    return norm, norm.inputs[0]


def _fits(query: Rows, key: Rows, value: Rows) -> bool:
    """Return whether one node can compute all three."""
    if (key.width, key.heads) != (query.width, value.heads) or value.rotary is not None or value.norm is not None:
        return False
    rotaries, norms = (query.rotary, key.rotary), (query.norm, key.norm)
    if norms != (None, None):
        if None in norms or None in rotaries:
            return False
        if len({norm.attributes["epsilon"].as_float() for norm in norms if norm}) > 1:
            return False
    if rotaries == (None, None):
        return True
    return None not in rotaries and _angles(query) == _angles(key) and _is_batched(query)


class _Angles(NamedTuple):
    """Angles by which the first columns of a head are rotated."""

    cosines: ir.Value | None
    sines: ir.Value | None
    turned: int
    interleaved: int


def _angles(rows: Rows) -> _Angles:
    assert rows.rotary is not None
    attributes = rows.rotary.attributes
    turned = attributes.get_int("rotary_embedding_dim", 0) or rows.width
    _, cosines, sines = rows.rotary.inputs[:3]
    return _Angles(cosines, sines, turned, attributes.get_int("interleaved", 0))


def _is_batched(rows: Rows) -> bool:
    """Return whether every token of the batch has a row of angles."""
    assert rows.rotary is not None
    table = rows.rotary.inputs[1]
    if table is None or table.shape is None or rows.source.shape is None:
        return False
    return len(table.shape) == 3 and table.shape[0] == rows.source.shape[0]


def _node(query: Rows, key: Rows, value: Rows) -> ir.Node:
    attributes: dict[str, int | float] = {
        "heads": query.heads, "groups": key.heads, "key_width": key.width, "value_width": value.width,
        "query_offset": query.offset, "key_offset": key.offset, "value_offset": value.offset,
    }  # fmt: skip
    inputs: list[ir.Value | None] = [query.source, key.source, value.source]
    operator = "SplitHeads"
    if query.rotary is not None:
        angles, operator = _angles(query), "RotaryHeads"
        inputs += [angles.cosines, angles.sines]
        attributes |= {"turned": angles.turned, "interleaved": angles.interleaved}
    if query.norm is not None and key.norm is not None:
        operator = "NormRotaryHeads"
        inputs += [query.norm.inputs[1], key.norm.inputs[1]]
        attributes["epsilon"] = query.norm.attributes["epsilon"].as_float()
    return ir.node(operator, inputs, attributes, domain=DOMAIN, num_outputs=3)
