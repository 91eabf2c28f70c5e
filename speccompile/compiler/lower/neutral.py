"""The neutral ops in ONNX: `speccompile::Attend`, `Commit`, `LowRank`, `Nucleus` and `Draw`; on logits:
`neutral_logits`; of states: `neutral_states`; of quantized caches: `neutral_codes`.

They are ONNX functions whose bodies define the ops in standard ones, so a neutral graph runs in any runtime (slowly:
over the full static buffer). Backends replace them by fast implementations.
"""

import onnx
import onnx.defs
import onnx.parser
import onnx_ir as ir

from speccompile.compiler.lower import neutral_adapters, neutral_codes, neutral_logits, neutral_states

DOMAIN = "speccompile"
OPSET = 24

VISIBLE = """
    to_batch = Constant <value_ints = [-1, 1, 1, 1]> ()
    length_4d = Reshape (length, to_batch)
    is_committed = Less (column, length_4d)
    to_query = Constant <value_ints = [1, 3]> ()
    position_4d = Unsqueeze (positions, to_query)
    distance = Sub (position_4d, column)
    limit = Constant <value_int: int = @window> ()
    has_no_window = Equal (limit, first)
    is_near = Less (distance, limit)
    is_in_window = Or (is_near, has_no_window)
    is_seen = And (is_committed, is_in_window)
"""
"""Body that computes `is_seen`, the committed columns [B, 1, T, columns] that a query sees, from the length, the
positions and the window.

`column` holds the columns' positions, `first` the number 0.
"""

ATTENDS = ("Attend", "AttendSinks", "AttendLatent", "AttendLatentSinks")
"""Variants of the neutral op `attend`: without and with sinks, over keys and values and over latent rows."""

INT8_ATTENDS, INT4_ATTENDS = neutral_codes.CODE_ATTENDS.values()
"""Neutral op -> the kernel of a backend over codes and scales: of keys and values in int8; of values in int4."""

CACHED = "query, key_rows, value_rows, key_cache, value_cache, length, positions, bias"
SINKS = 8
"""Index of the sinks among the inputs of an Attend with sinks."""


def attend_name(*, is_latent: bool, has_sinks: bool) -> str:
    """Return the name of a variant, one of ATTENDS."""
    return ATTENDS[2 * is_latent + has_sinks]


def is_attend(op: str) -> bool:
    """Return whether an op is one of ATTENDS, or of the kernels for quantized caches."""
    return op in ATTENDS or neutral_codes.reads_codes(op)


def is_latent(op: str) -> bool:
    """Return whether an op of ATTENDS works on latent rows: its context is as wide as a row of keys, not of values."""
    return op in ATTENDS[2:]


KEYS = """
    keys = Concat <axis = 2> ({key_cache}, key_rows)
    values = Concat <axis = 2> ({value_cache}, value_rows)
"""
LATENT_KEYS = """
    values = Concat <axis = 2> ({key_cache}, key_rows)
    tails = Concat <axis = 2> ({value_cache}, value_rows)
    keys = Concat <axis = 3> (values, tails)
"""
"""Keys and values of the op over keys and values, and of the op over latent rows."""

_SPREAD = """
    batch = Shape <start = 0, end = 1> (query)
    heads = Shape <start = 1, end = 2> (query)
    tokens = Shape <start = 2, end = 3> (query)
    groups = Shape <start = 1, end = 2> (keys)
    columns = Shape <start = 2, end = 3> (keys)
    key_width = Shape <start = 3, end = 4> (keys)
    value_width = Shape <start = 3, end = 4> (values)
    shared = Div (heads, groups)
    axis = Constant <value_ints = [2]> ()
    spread_keys = Concat <axis = 0> (batch, groups, shared, columns, key_width)
    spread_values = Concat <axis = 0> (batch, groups, shared, columns, value_width)
    flat_keys = Concat <axis = 0> (batch, heads, columns, key_width)
    flat_values = Concat <axis = 0> (batch, heads, columns, value_width)
    keys_5d = Unsqueeze (keys, axis)
    values_5d = Unsqueeze (values, axis)
    keys_spread = Expand (keys_5d, spread_keys)
    values_spread = Expand (values_5d, spread_values)
    head_keys = Reshape (keys_spread, flat_keys)
    head_values = Reshape (values_spread, flat_values)

    keys_turned = Transpose <perm = [0, 1, 3, 2]> (head_keys)
    products_t = MatMul (query, keys_turned)
    products = Cast <to = 1> (products_t)
    scale_f = Constant <value_float: float = @scale> ()
    scale_t = CastLike (scale_f, products)
    scaled = Mul (products, scale_t)
    cap_f = Constant <value_float: float = @softcap> ()
    cap = CastLike (cap_f, products)
    zero_f = Constant <value_float = 0.0> ()
    zero = CastLike (zero_f, products)
    one_f = Constant <value_float = 1.0> ()
    one = CastLike (one_f, products)
    is_capped = Greater (cap, zero)
    divisor = Where (is_capped, cap, one)
    shrunk = Div (scaled, divisor)
    bent = Tanh (shrunk)
    capped = Mul (bent, divisor)
    scores = Where (is_capped, capped, scaled)

"""

# Scores of committed columns after the length, or outside the attention window, get -1e30: step/ops.py, HIDDEN. Row s
# of a ring holds the latest position p with p mod S = s; where there is none, as if it stood after the length.
_BIASED = (
    """
    first = Constant <value_int = 0> ()
    step = Constant <value_int = 1> ()
    rows_1d = Shape <start = 2, end = 3> (key_cache)
    rows = Squeeze (rows_1d)
    slot = Range (first, rows, step)
    per_length = Constant <value_ints = [-1, 1, 1, 1]> ()
    end = Reshape (length, per_length)
    newest = Sub (end, step)
    behind = Sub (newest, slot)
    age = Mod (behind, rows)
    latest = Sub (newest, age)
    is_old = Less (latest, first)
    ring_column = Where (is_old, end, latest)
    is_ring_int = Constant <value_int: int = @ring> ()
    is_ring = Cast <to = 9> (is_ring_int)
    column = Where (is_ring, ring_column, slot)
"""
    + VISIBLE
    + """
    hidden_f = Constant <value_float = -1e30> ()
    hidden = CastLike (hidden_f, products)
    committed_bias = Where (is_seen, zero, hidden)
    one_1d = Constant <value_ints = [1]> ()
    per_query = Concat <axis = 0> (batch, one_1d, tokens, rows_1d)
    committed_full = Expand (committed_bias, per_query)
    full_bias = Concat <axis = 3> (committed_full, bias)
    biased = Add (scores, full_bias)
"""
)

_SOFTMAX = """
    weights_f = Softmax <axis = -1> (biased)
"""
_SINK_SOFTMAX = """
    sinks_f = CastLike (sinks, biased)
    to_heads = Constant <value_ints = [1, -1, 1, 1]> ()
    sinks_4d = Reshape (sinks_f, to_heads)
    per_sink = Concat <axis = 0> (batch, heads, tokens, one_1d)
    sink = Expand (sinks_4d, per_sink)
    with_sink = Concat <axis = 3> (biased, sink)
    all_weights = Softmax <axis = -1> (with_sink)
    none_1d = Constant <value_ints = [0]> ()
    last_1d = Constant <value_ints = [3]> ()
    weights_f = Slice (all_weights, none_1d, columns, last_1d)
"""


def _attend(is_latent: bool, has_sinks: bool) -> str:
    name, inputs = attend_name(is_latent=is_latent, has_sinks=has_sinks), CACHED + ", sinks" * has_sinks
    keys = (LATENT_KEYS if is_latent else KEYS).format(key_cache="key_cache", value_cache="value_cache")
    return f"""
<domain: "speccompile", opset_import: ["" : 24]>
{name} <scale: float, softcap: float, window: int, ring: int> ({inputs}) => (context)
{{
    {keys} {_SPREAD} {_BIASED} {_SINK_SOFTMAX if has_sinks else _SOFTMAX}
    weights = CastLike (weights_f, head_values)
    context = MatMul (weights, head_values)
}}
"""


_COMMIT = """
<domain: "speccompile", opset_import: ["" : 24]>
Commit <axis: int, mode: string> (buffer, rows, length) => (updated)
{
    updated = TensorScatter <axis: int = @axis, mode: string = @mode> (buffer, rows, length)
}
"""

LINEAR, CIRCULAR = "linear", "circular"
"""Modes of Commit and of TensorScatter: one row after the other, and in a ring from the last to the first."""

_NUCLEUS = """
<domain: "speccompile", opset_import: ["" : 24]>
Nucleus (probs, top_k, top_p, min_p) => (threshold, mass)
{
    to_rows = Constant <value_ints = [-1, 1, 1]> ()
    axis = Constant <value_ints = [2]> ()
    none = Constant <value_ints = [0]> ()
    one = Constant <value_ints = [1]> ()
    nothing = Constant <value_float = 0.0> ()
    everything = Constant <value_float = 1.0> ()
    count = Reshape (top_k, to_rows)
    share = Reshape (top_p, to_rows)
    part = Reshape (min_p, to_rows)

    size = Shape <start = 2, end = 3> (probs)
    ordered, order = TopK <axis = 2> (probs, size)
    best = Slice (ordered, none, one, axis)
    before_count = Sub (count, one)
    last_place = Sub (size, one)
    place_below = Min (before_count, last_place)
    place = Max (place_below, none)
    rows = Shape <start = 0, end = 2> (probs)
    per_row = Concat <axis = 0> (rows, one)
    places = Expand (place, per_row)
    last = GatherElements <axis = 2> (ordered, places)
    is_uncounted = LessOrEqual (count, none)
    is_counted = GreaterOrEqual (ordered, last)
    is_left = Or (is_uncounted, is_counted)
    left = Where (is_left, ordered, nothing)

    total = ReduceSum <keepdims = 1> (left, axis)
    wanted = Mul (share, total)
    axis_0d = Constant <value_int = 2> ()
    through = CumSum (left, axis_0d)
    above = Sub (through, left)
    is_below = Less (above, wanted)
    is_best = Equal (ordered, best)
    is_whole = GreaterOrEqual (share, everything)
    is_first = Or (is_best, is_whole)
    is_in = Or (is_below, is_first)
    is_positive = Greater (left, nothing)
    is_kept = And (is_in, is_positive)
    above_all = Constant <value_float = 3e38> ()
    kept = Where (is_kept, left, above_all)
    lowest = ReduceMin <keepdims = 1> (kept, axis)
    least = Mul (part, best)
    limit = Max (lowest, least)

    has_share = Less (share, everything)
    has_part = Greater (part, nothing)
    has_count = Not (is_uncounted)
    has_either = Or (has_share, has_part)
    is_limited = Or (has_either, has_count)
    threshold_3d = Where (is_limited, limit, nothing)
    threshold = Squeeze (threshold_3d, axis)
    is_chosen = GreaterOrEqual (probs, threshold_3d)
    chosen = Where (is_chosen, probs, nothing)
    sum = ReduceSum <keepdims = 1> (chosen, axis)
    mass_3d = Where (is_limited, sum, everything)
    mass = Squeeze (mass_3d, axis)
}
"""

_DRAW = """
<domain: "speccompile", opset_import: ["" : 24]>
Draw (weights, threshold, uniforms) => (tokens)
{
    axis = Constant <value_ints = [2]> ()
    axis_0d = Constant <value_int = 2> ()
    end = Constant <value_ints = [-1]> ()
    nothing = Constant <value_float = 0.0> ()
    limit = Unsqueeze (threshold, axis)
    is_kept = GreaterOrEqual (weights, limit)
    kept = Where (is_kept, weights, nothing)
    through = CumSum (kept, axis_0d)
    total = Gather <axis = 2> (through, end)
    uniform = Unsqueeze (uniforms, axis)
    share = Mul (uniform, total)
    is_passed = LessOrEqual (through, share)
    passed = Cast <to = 7> (is_passed)
    place = ReduceSum <keepdims = 0> (passed, axis)
    last = ArgMax <axis = 2, keepdims = 0> (through)
    tokens = Min (place, last)
}
"""


def functions() -> list[onnx.FunctionProto]:
    """Return the neutral ops as ONNX functions."""
    head = f'<domain: "{DOMAIN}", opset_import: ["" : {OPSET}]>\n'
    attends = [_attend(is_latent, has_sinks) for is_latent in (False, True) for has_sinks in (False, True)]
    states = [head + text for text in (*neutral_codes.TEXTS, *neutral_states.TEXTS.values())]
    texts = [*attends, _COMMIT, neutral_adapters.TEXT, *neutral_logits.TEXTS, _NUCLEUS, _DRAW, *states]
    return [onnx.parser.parse_function(text) for text in texts]


def add_functions(model: ir.Model) -> None:
    """Add the bodies of the neutral ops to a graph that calls them, so that any runtime can run it."""
    for proto in functions():
        function = ir.from_proto(proto)
        model.functions[function.identifier()] = function
    model.opset_imports[DOMAIN] = 1


_FLOATS = ["tensor(float)", "tensor(float16)", "tensor(bfloat16)"]
_TYPES = {
    "T": _FLOATS, "C": [*_FLOATS, "tensor(int64)", "tensor(int8)"], "F": ["tensor(float)"], "I": ["tensor(int64)"],
    "B": ["tensor(bool)"], "Q": ["tensor(int8)"],
}  # fmt: skip
_ATTEND_ATTRIBUTES = {"scale": "FLOAT", "softcap": "FLOAT", "window": "INT", "ring": "INT"}
_SIGNATURES = {
    **{name: ("T T T T T I I F" + " T" * name.endswith("Sinks"), "T", _ATTEND_ATTRIBUTES) for name in ATTENDS},
    "Commit": ("C C I", "C", {"axis": "INT", "mode": "STRING"}),
    "LowRank": ("F F F F I", "F", {}),
    **neutral_logits.SIGNATURES,
    "Nucleus": ("F I F F", "F F", {}),
    "Draw": ("F F F", "I", {}),
    **neutral_codes.SIGNATURES,
    **neutral_states.SIGNATURES,
}
"""Types of inputs and outputs, and attributes. F: float32 in every precision, as masks and probabilities are."""


def register_schemas() -> None:
    """Register the ops with onnxscript. A second call changes nothing."""
    if onnx.defs.has("Attend", DOMAIN):
        return
    for proto in functions():
        onnx.defs.register_schema(_schema(proto))


def _schema(proto: onnx.FunctionProto) -> onnx.defs.OpSchema:
    schema = onnx.defs.OpSchema
    inputs, outputs, attributes = _SIGNATURES[proto.name]
    used = sorted(set(inputs.split() + outputs.split()))
    return schema(
        proto.name, DOMAIN, 1,
        inputs=[schema.FormalParameter(*pair) for pair in zip(proto.input, inputs.split(), strict=True)],
        outputs=[schema.FormalParameter(*pair) for pair in zip(proto.output, outputs.split(), strict=True)],
        type_constraints=[(kind, _TYPES[kind], "") for kind in used],
        attributes=[schema.Attribute(name, getattr(schema.AttrType, kind)) for name, kind in attributes.items()],
    )  # fmt: skip
