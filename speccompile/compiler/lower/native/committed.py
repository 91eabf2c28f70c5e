"""Statements of attention's bodies for committed rows, in the order of their positions: floats, or codes and scales."""

from speccompile.compiler.lower import neutral_codes


# Keys and values `[committed | in-step]` on one axis: adding two partial sums would round differently with the width of
# the window.
def _order(cache: str) -> str:
    """Return statements for the committed rows of a cache, in the order of their positions: `committed`, their number,
    and `column`, their positions, int64 [committed], or [B, 1, 1, committed] in a ring, whose rows are gathered."""
    return f"""
    axis = Constant <value_ints = [2]> ()
    none = Constant <value_ints = [0]> ()
    first = Constant <value_int = 0> ()
    step = Constant <value_int = 1> ()
    is_ring_int = Constant <value_int: int = @ring> ()
    is_ring = Cast <to = 9> (is_ring_int)
    size = Shape <start = 2, end = 3> ({cache})
    longest = ReduceMax <keepdims = 1> (length)
    committed = Min (longest, size)
    committed_0d = Squeeze (committed)
    places = Range (first, committed_0d, step)
    per_length = Constant <value_ints = [-1, 1, 1, 1]> ()
    ends = Reshape (length, per_length)
    lost = Sub (ends, size)
    begins = Max (lost, none)
    later = Add (begins, places)
    column = Where (is_ring, later, places)
    turned_column = Mod (column, size)
    to_rows = Constant <value_ints = [0, 1, -1, 1]> ()
    row = Reshape (turned_column, to_rows)
    """


def _in_order(result: str, cache: str) -> str:
    """Return statements for the committed rows of a cache, after `_order`."""
    return f"""
    {result} = If (is_ring) <
        then_branch = {result}_turned () => ({result}_then) {{
            {result}_groups = Shape <start = 0, end = 2> ({cache})
            {result}_width = Shape <start = 3, end = 4> ({cache})
            {result}_size = Concat <axis = 0> ({result}_groups, committed, {result}_width)
            {result}_rows = Expand (row, {result}_size)
            {result}_then = GatherElements <axis = 2> ({cache}, {result}_rows)
        }},
        else_branch = {result}_straight () => ({result}_else) {{
            {result}_else = Slice ({cache}, none, committed, axis)
        }}
    >
    """


def _scaled(kind: str) -> str:
    """Return statements for int8 keys, or values, as floats: those of committed rows, after `_in_order`, and of the
    window's. kind: key or value."""
    return f"""
    {kind}_floats = Cast <to = 1> (own_{kind}_codes)
    committed_{kind}s = Mul ({kind}_floats, own_{kind}_scales)
    {kind}_row_floats = Cast <to = 1> ({kind}_row_codes)
    {kind}_rows = Mul ({kind}_row_floats, {kind}_row_scales)
"""


COMMITTED = (
    _order("key_cache") + _in_order("committed_keys", "key_cache") + _in_order("committed_values", "value_cache")
)
CODED = """query, key_row_codes, key_row_scales, value_row_codes, value_row_scales, key_codes, key_scales, value_codes,
    value_scales, length, positions, bias"""
_OWN = (
    _order("key_codes")
    + _in_order("own_key_codes", "key_codes")
    + _in_order("own_key_scales", "key_scales")
    + _in_order("own_value_codes", "value_codes")
    + _in_order("own_value_scales", "value_scales")
    + _scaled("key")
)
DECODED = _OWN + _scaled("value")
DECODED_INT4 = (
    _OWN
    + neutral_codes.DECODE_INT4.format("own_value_codes", "own_value_scales", "committed_values")
    + neutral_codes.DECODE_INT4.format("value_row_codes", "value_row_scales", "value_rows")
)
