"""The neutral ops of states in ONNX: `speccompile::Convolve`, `Shift`, `Recur`, `Advance`; see `neutral`, `step.ops`.

A recurrence is a Scan over the tokens: the same operators over the same shapes compute each token, so that no bit
depends on the number of tokens.
"""

# `beta` is absent without a delta rule: values are then added unchanged.
_PREPARED = """
    value_heads = Shape <start = 1, end = 2> (value)
    key_heads = Shape <start = 1, end = 2> (key)
    shared = Div (value_heads, key_heads)
    one = Constant <value_ints = [1]> ()
    all = Constant <value_ints = [-1]> ()
    batch = Shape <start = 0, end = 1> (value)
    tokens = Shape <start = 2, end = 3> (value)
    key_width = Shape <start = 3, end = 4> (key)
    heads_axis = Constant <value_ints = [2]> ()
    spread = Concat <axis = 0> (batch, key_heads, shared, tokens, key_width)
    flat = Concat <axis = 0> (batch, value_heads, tokens, key_width)

    key_f = Cast <to = 1> (key)
    key_5d = Unsqueeze (key_f, heads_axis)
    key_spread = Expand (key_5d, spread)
    keys_4d = Reshape (key_spread, flat)
    keys = Transpose <perm = [2, 0, 1, 3]> (keys_4d)
    value_f = Cast <to = 1> (value)
    values = Transpose <perm = [2, 0, 1, 3]> (value_f)
    decay_f = Cast <to = 1> (decay)
    gate = Exp (decay_f)
    gates = Transpose <perm = [2, 0, 1, 3]> (gate)

    length_shape = Constant <value_ints = [-1, 1, 1, 1]> ()
    length_4d = Reshape (length, length_shape)
    nothing = Constant <value_int = 0> ()
    zero_f = Constant <value_float = 0.0> ()
    has_begun = Greater (length_4d, nothing)
    begun = Where (has_begun, state, zero_f)
"""

_BETAS = """
    beta_f = Cast <to = 1> (beta)
    betas = Transpose <perm = [2, 0, 1, 3]> (beta_f)
"""

# In a Scan's body: the state [B, H, K, V] after one more token, `after`, of k, v, g [B, H, D], and b of a delta rule.
_STEP = """
    last = Constant <value_ints = [-1]> ()
    before_last = Constant <value_ints = [-2]> ()
    k_column = Unsqueeze (k, last)
    g_column = Unsqueeze (g, last)
    v_row = Unsqueeze (v, before_last)
    decayed = Mul (s, g_column)
    {update}
    added = Mul (k_column, u_row)
    after = Add (decayed, added)
"""
_PLAIN = "u_row = Identity (v_row)"
_DELTA = """
    recalled_each = Mul (decayed, k_column)
    recalled = ReduceSum <keepdims = 1> (recalled_each, before_last)
    b_row = Unsqueeze (b, before_last)
    missing = Sub (v_row, recalled)
    u_row = Mul (missing, b_row)
"""


def _moved(delta: bool, outputs: str, carried: tuple[str, str], own: tuple[str, str], results: str, tail: str) -> str:
    """Return a Scan over the tokens that advances the state, and the inputs of the Scan.

    carried: names of the loop state in the body, and its initial values; own: name in the body, and value, of the
    scanned input besides keys, values, gates and betas; tail: additional statements of the body.
    """
    body = _STEP.format(update=_DELTA if delta else _PLAIN) + tail
    count = 5 if delta else 4
    inner, scanned = f"{own[0]}, k, v, g" + ", b" * delta, f"{own[1]}, keys, values, gates" + ", betas" * delta
    token = f"token ({carried[0]}, {inner}) => ({results}) {{ {body} }}"
    return f"{outputs} = Scan <num_scan_inputs = {count}, body = {token}> ({carried[1]}, {scanned})"


def _recur(delta: bool) -> str:
    tail = """
    q_column = Unsqueeze (q, last)
    read_each = Mul (after, q_column)
    read = ReduceSum <keepdims = 0> (read_each, before_last)
    """
    moved = _moved(delta, "final, contexts", ("s", "begun"), ("q", "queries"), "after, read", tail)
    return f"""{_PREPARED}{_BETAS * delta}
    query_f = Cast <to = 1> (query)
    query_5d = Unsqueeze (query_f, heads_axis)
    query_spread = Expand (query_5d, spread)
    queries_4d = Reshape (query_spread, flat)
    queries = Transpose <perm = [2, 0, 1, 3]> (queries_4d)
    {moved}
    context_f = Transpose <perm = [1, 2, 0, 3]> (contexts)
    context = CastLike (context_f, value)
"""


def _advance(delta: bool) -> str:
    tail = """
    is_taken = Less (i, taken)
    kept = Where (is_taken, after, s)
    outer = Identity (taken)
    """
    carried = ("s, taken", "begun, count_4d")
    moved = _moved(delta, "moved, untouched", carried, ("i", "places"), "kept, outer", tail)
    return f"""{_PREPARED}{_BETAS * delta}
    count_4d = Reshape (count, length_shape)
    tokens_0d = Squeeze (tokens)
    unit = Constant <value_int = 1> ()
    places = Range (nothing, tokens_0d, unit)
    {moved}
    has_moved = Greater (count_4d, nothing)
    updated = Where (has_moved, moved, state)
"""


# Tap by tap, the oldest first: products of a row are added in the same order at every row.
_CONVOLVE = """
    behind = Concat <axis = 2> (state, rows)
    width = Shape <start = 2, end = 3> (rows)
    width_0d = Squeeze (width)
    depth = Shape <start = 0, end = 1> (taps)
    depth_0d = Squeeze (depth)
    first = Constant <value_int = 0> ()
    unit = Constant <value_int = 1> ()
    places = Range (first, depth_0d, unit)
    zeros = Sub (rows, rows)
    sum, same, again = Scan <num_scan_inputs = 2, body = tap (total, every, size, place, t)
        => (more, every_out, size_out) {
        axis = Constant <value_ints = [2]> ()
        end = Add (place, size)
        zero_1d = Constant <value_ints = [0]> ()
        from = Unsqueeze (place, zero_1d)
        to = Unsqueeze (end, zero_1d)
        part = Slice (every, from, to, axis)
        product = Mul (part, t)
        more = Add (total, product)
        every_out = Identity (every)
        size_out = Identity (size)
    }> (zeros, behind, width_0d, places, taps)
    result = Identity (sum)
"""

CONVOLVE_TAPS = _CONVOLVE
"""Body of Convolve with a transposed weight: `taps` [K, C]."""

_SHIFT = """
    length_shape = Constant <value_ints = [-1, 1, 1, 1]> ()
    nothing = Constant <value_int = 0> ()
    zero_f = Constant <value_float = 0.0> ()
    length_4d = Reshape (length, length_shape)
    has_begun = Greater (length_4d, nothing)
    zero = CastLike (zero_f, state)
    begun = Where (has_begun, state, zero)
    behind = Concat <axis = 2> (begun, rows)
    kept = Shape <start = 2, end = 3> (state)
    kept_0d = Squeeze (kept)
    unit = Constant <value_int = 1> ()
    places = Range (nothing, kept_0d, unit)
    places_shape = Constant <value_ints = [1, 1, -1, 1]> ()
    places_4d = Reshape (places, places_shape)
    count_4d = Reshape (count, length_shape)
    index_4d = Add (count_4d, places_4d)
    size = Shape (state)
    index = Expand (index_4d, size)
    moved = GatherElements <axis = 2> (behind, index)
    has_moved = Greater (count_4d, nothing)
    updated = Where (has_moved, moved, state)
"""

TEXTS = {
    "Convolve": "Convolve (rows, state, weight) => (result) "
    f"{{ taps = Transpose <perm = [1, 0]> (weight) {_CONVOLVE} }}",
    "Shift": f"Shift (rows, state, length, count) => (updated) {{ {_SHIFT} }}",
    "Recur": f"Recur (query, key, value, decay, state, length) => (context) {{ {_recur(delta=False)} }}",
    "RecurDelta": f"RecurDelta (query, key, value, decay, beta, state, length) => (context) {{ {_recur(delta=True)} }}",
    "Advance": f"Advance (key, value, decay, state, length, count) => (updated) {{ {_advance(delta=False)} }}",
    "AdvanceDelta": "AdvanceDelta (key, value, decay, beta, state, length, count) => (updated) "
    f"{{ {_advance(delta=True)} }}",
}
"""Op -> its function, without the head. ONNX functions cannot test whether an input is present, so a recurrence with a
delta rule is a separate op."""

SIGNATURES: dict[str, tuple[str, str, dict[str, str]]] = {
    "Convolve": ("T T T", "T", {}),
    "Shift": ("T T I I", "T", {}),
    "Recur": ("T T T T F I", "T", {}),
    "RecurDelta": ("T T T T T F I", "T", {}),
    "Advance": ("T T T F I I", "F", {}),
    "AdvanceDelta": ("T T T T F I I", "F", {}),
}
"""Types of inputs and outputs, as in `neutral`: states of recurrences are float32 in every precision."""
