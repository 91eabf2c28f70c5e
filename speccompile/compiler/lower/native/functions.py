"""Bodies of the operators as ONNX functions: their definition, and the fallback without the library.

Weights come in the kernels' layout. The conversion depends on constants alone, so ONNX Runtime does it once, when it
opens a session. The products use operators of ONNX Runtime whose rows do not depend on neighboring rows: unsigned times
unsigned bytes, which saturate on no processor, and 8 bits in blocks of 32 for int4.
"""

import onnx
import onnx.parser
import onnx_ir as ir

from speccompile.compiler.lower import neutral, neutral_adapters, neutral_codes, neutral_states
from speccompile.compiler.lower.native import CHAIN, DOMAIN, INTEGERS, ONNXRUNTIME_DOMAIN, VERSION, weights
from speccompile.compiler.lower.native.committed import CODED, COMMITTED, DECODED, DECODED_INT4

_SCORES = (
    """
    batch = Shape <start = 0, end = 1> (query)
    tokens = Shape <start = 1, end = 2> (query)
    groups = Shape <start = 1, end = 2> (keys)
    key_width = Shape <start = 3, end = 4> (keys)
    value_width = Shape <start = 3, end = 4> (values)
    all = Constant <value_ints = [-1]> ()
    as_heads = Concat <axis = 0> (batch, tokens, groups, all, key_width)
    heads = Reshape (query, as_heads)
    by_group = Transpose <perm = [0, 2, 3, 1, 4]> (heads)
    shared = Shape <start = 2, end = 3> (by_group)
    as_rows = Concat <axis = 0> (batch, groups, all, key_width)
    rows = Reshape (by_group, as_rows)
    scale_f = Constant <value_float: float = @scale> ()
    scaled = Mul (rows, scale_f)
    keys_turned = Transpose <perm = [0, 1, 3, 2]> (keys)
    products = MatMul (scaled, keys_turned)
    cap = Constant <value_float: float = @softcap> ()
    zero = Constant <value_float = 0.0> ()
    one_f = Constant <value_float = 1.0> ()
    is_capped = Greater (cap, zero)
    divisor = Where (is_capped, cap, one_f)
    shrunk = Div (products, divisor)
    bent = Tanh (shrunk)
    capped = Mul (bent, divisor)
    scores = Where (is_capped, capped, products)

"""
    + neutral.VISIBLE
    + """
    hidden = Constant <value_float = -1e30> ()
    committed_bias = Where (is_seen, zero, hidden)
    one = Constant <value_ints = [1]> ()
    per_query = Concat <axis = 0> (batch, one, tokens, committed)
    committed_full = Expand (committed_bias, per_query)
    token_bias = Concat <axis = 3> (committed_full, bias)
    for_shared = Concat <axis = 0> (one, shared, one, one)
    shared_bias = Tile (token_bias, for_shared)
    columns = Shape <start = 3, end = 4> (token_bias)
    as_bias = Concat <axis = 0> (batch, one, all, columns)
    full_bias = Reshape (shared_bias, as_bias)
    biased = Add (scores, full_bias)
"""
)
_SOFTMAX = """
    weights = Softmax <axis = -1> (biased)
"""
_SINK_SOFTMAX = """
    to_heads = Constant <value_ints = [1, -1, 1, 1]> ()
    sinks_4d = Reshape (sinks, to_heads)
    per_token = Concat <axis = 0> (batch, one, tokens, one)
    all_sinks = Tile (sinks_4d, per_token)
    as_sinks = Concat <axis = 0> (batch, groups, all, one)
    sink = Reshape (all_sinks, as_sinks)
    with_sink = Concat <axis = 3> (biased, sink)
    all_weights = Softmax <axis = -1> (with_sink)
    last_axis = Constant <value_ints = [3]> ()
    weights = Slice (all_weights, none, columns, last_axis)
"""
_CONTEXT = """
    context_rows = MatMul (weights, values)
    as_groups = Concat <axis = 0> (batch, groups, shared, tokens, value_width)
    by_token = Reshape (context_rows, as_groups)
    turned = Transpose <perm = [0, 3, 1, 2, 4]> (by_token)
    as_context = Concat <axis = 0> (batch, tokens, all)
    context = Reshape (turned, as_context)
"""


def _attend(*, is_latent: bool, has_sinks: bool, committed: str = COMMITTED) -> str:
    keys = neutral.LATENT_KEYS if is_latent else neutral.KEYS
    joined = keys.format(key_cache="committed_keys", value_cache="committed_values")
    return committed + joined + _SCORES + (_SINK_SOFTMAX if has_sinks else _SOFTMAX) + _CONTEXT


def _columns(result: str, source: str, offset: str, width: str) -> str:
    """Return statements for the columns of a projection from the attribute `offset` on. width: a number; the body
    defines `last` and `none`."""
    return f"""
    {result}_start_0d = Constant <value_int: int = @{offset}> ()
    {result}_end_0d = Add ({result}_start_0d, {width})
    {result}_start = Unsqueeze ({result}_start_0d, none)
    {result}_end = Unsqueeze ({result}_end_0d, none)
    {result} = Slice ({source}, {result}_start, {result}_end, last)
"""


_ENDS = """
    none = Constant <value_ints = [0]> ()
    last = Constant <value_ints = [-1]> ()
"""

_HEADS = f"""{_ENDS}
    heads_0d = Constant <value_int: int = @heads> ()
    groups_0d = Constant <value_int: int = @groups> ()
    key_width_0d = Constant <value_int: int = @key_width> ()
    value_width_0d = Constant <value_int: int = @value_width> ()
    query_width_0d = Mul (heads_0d, key_width_0d)
    keys_width_0d = Mul (groups_0d, key_width_0d)
    values_width_0d = Mul (groups_0d, value_width_0d)
    {_columns("own_query", "query", "query_offset", "query_width_0d")}
    {_columns("own_key", "key", "key_offset", "keys_width_0d")}
    {_columns("own_value", "value", "value_offset", "values_width_0d")}
    heads_1d = Unsqueeze (heads_0d, none)
    groups_1d = Unsqueeze (groups_0d, none)
    key_width_1d = Unsqueeze (key_width_0d, none)
    value_width_1d = Unsqueeze (value_width_0d, none)
    zeros = Constant <value_ints = [0, 0]> ()
    as_query = Concat <axis = 0> (zeros, heads_1d, key_width_1d)
    as_key = Concat <axis = 0> (zeros, groups_1d, key_width_1d)
    as_value = Concat <axis = 0> (zeros, groups_1d, value_width_1d)
    query_4d = Reshape (own_query, as_query)
    key_4d = Reshape (own_key, as_key)
    value_4d = Reshape (own_value, as_value)
    query_rows = Transpose <perm = [0, 2, 1, 3]> (query_4d)
    key_rows = Transpose <perm = [0, 2, 1, 3]> (key_4d)
    values = Transpose <perm = [0, 2, 1, 3]> (value_4d)
"""

_TURNED = """
    turned_query = RotaryEmbedding <interleaved: int = @interleaved, rotary_embedding_dim: int = @turned>
        ({query}, cosines, sines)
    keys = RotaryEmbedding <interleaved: int = @interleaved, rotary_embedding_dim: int = @turned>
        ({key}, cosines, sines)
"""

_QUERIES = """
    queries_4d = Transpose <perm = [0, 2, 1, 3]> ({query})
    flat = Constant <value_ints = [0, 0, -1]> ()
    queries = Reshape (queries_4d, flat)
"""

_NORMALIZED = """
    normal_query = RMSNormalization <axis = -1, epsilon: float = @epsilon> (query_rows, query_weight)
    normal_key = RMSNormalization <axis = -1, epsilon: float = @epsilon> (key_rows, key_weight)
"""

_TABLES = """
    last = Constant <value_ints = [-1]> ()
    floats = Cast <to = 1> (positions)
    spread = Unsqueeze (floats, last)
    angles = Mul (spread, frequencies)
    factor = Constant <value_float: float = @scale> ()
    cosine = Cos (angles)
    sine = Sin (angles)
    cosines = Mul (cosine, factor)
    sines = Mul (sine, factor)
"""

_GATED = f"""{_ENDS}
    width_0d = Constant <value_int: int = @width> ()
    {_columns("gates", "gate", "gate_offset", "width_0d")}
    {_columns("ups", "up", "up_offset", "width_0d")}
"""

_ONE_WEIGHT, _PLACES = "columns, depth", "heads, groups, key_width, value_width, query_offset, key_offset, value_offset"
_BLOCKS = f"{_ONE_WEIGHT}, block_size, zero_point"
_GATE_PLACES = "width, gate_offset, up_offset"

_TEXTS = {
    f"LinearFloat32 <{_ONE_WEIGHT}> (x, weight, bias) => (y)": "floats = Identity (weight)" + weights.PRODUCT,
    f"LinearBFloat16 <{_ONE_WEIGHT}> (x, weight, bias) => (y)": "floats = Cast <to = 1> (weight)" + weights.PRODUCT,
    f"LinearInt8 <{_ONE_WEIGHT}> (x, numbers, scales, bias) => (y)": weights.INT8,
    f"LinearInt4 <{_ONE_WEIGHT}, block_size> (x, numbers, scales, zero_points, factors, bias) => (y)": weights.INT4,
    f"LinearBlocks4 <{_BLOCKS}> (x, numbers, scales, offsets, bias) => (y)": weights.BLOCKS4 + weights.PRODUCT,
    f"LinearBlocks8 <{_BLOCKS}> (x, numbers, scales, offsets, bias) => (y)": weights.BLOCKS8 + weights.PRODUCT,
    f"EmbedFloat32 <{_ONE_WEIGHT}> (ids, weight) => (y)": "floats = Identity (weight)" + weights.ROWS,
    f"EmbedBFloat16 <{_ONE_WEIGHT}> (ids, weight) => (y)": "floats = Cast <to = 1> (weight)" + weights.ROWS,
    f"EmbedInt8 <{_ONE_WEIGHT}> (ids, numbers, scales) => (y)": weights.EMBED_INT8,
    f"EmbedBlocks4 <{_BLOCKS}> (ids, numbers, scales, offsets) => (y)": weights.BLOCKS4 + weights.ROWS,
    f"EmbedBlocks8 <{_BLOCKS}> (ids, numbers, scales, offsets) => (y)": weights.BLOCKS8 + weights.ROWS,
    f"Attend <scale, softcap, window, ring> ({neutral.CACHED}) => (context)": _attend(is_latent=False, has_sinks=False),
    f"AttendSinks <scale, softcap, window, ring> ({neutral.CACHED}, sinks) => (context)":
        _attend(is_latent=False, has_sinks=True),
    f"AttendLatent <scale, softcap, window, ring> ({neutral.CACHED}) => (context)":
        _attend(is_latent=True, has_sinks=False),
    f"AttendLatentSinks <scale, softcap, window, ring> ({neutral.CACHED}, sinks) => (context)":
        _attend(is_latent=True, has_sinks=True),
    f"AttendInt8 <scale, softcap, window, ring> ({CODED}) => (context)":
        _attend(is_latent=False, has_sinks=False, committed=DECODED),
    f"AttendInt8Sinks <scale, softcap, window, ring> ({CODED}, sinks) => (context)":
        _attend(is_latent=False, has_sinks=True, committed=DECODED),
    "EncodeInt8 (rows) => (codes, scales)": neutral_codes.ENCODE,
    "DecodeInt8 (codes, scales) => (values)": neutral_codes.DECODE,
    f"AttendInt8Int4 <scale, softcap, window, ring> ({CODED}) => (context)":
        _attend(is_latent=False, has_sinks=False, committed=DECODED_INT4),
    f"AttendInt8Int4Sinks <scale, softcap, window, ring> ({CODED}, sinks) => (context)":
        _attend(is_latent=False, has_sinks=True, committed=DECODED_INT4),
    "EncodeInt4 (rows) => (codes, scales)": neutral_codes.ENCODE_INT4,
    "DecodeInt4 (codes, scales) => (values)": neutral_codes.DECODE_INT4.format("codes", "scales", "values"),
    f"SplitHeads <{_PLACES}> (query, key, value) => (queries, keys, values)":
        _HEADS + "keys = Identity (key_rows)" + _QUERIES.format(query="query_rows"),
    f"RotaryHeads <{_PLACES}, turned, interleaved> (query, key, value, cosines, sines) => (queries, keys, values)":
        _HEADS + _TURNED.format(query="query_rows", key="key_rows") + _QUERIES.format(query="turned_query"),
    f"NormRotaryHeads <{_PLACES}, turned, interleaved, epsilon> "
    "(query, key, value, cosines, sines, query_weight, key_weight) => (queries, keys, values)":
        _HEADS + _NORMALIZED + _TURNED.format(query="normal_query", key="normal_key")
        + _QUERIES.format(query="turned_query"),
    "JoinRows (rows, others) => (both)": "both = Concat <axis = 2> (rows, others)",
    "RotaryTables <scale> (positions, frequencies) => (cosines, sines)": _TABLES,
    "RmsNorm <epsilon> (x, weight) => (y)":
        "y = RMSNormalization <axis = -1, epsilon: float = @epsilon> (x, weight)",
    "SkipRmsNorm <epsilon> (x, residual, weight) => (y, sum)":
        "sum = Add (x, residual)\n y = RMSNormalization <axis = -1, epsilon: float = @epsilon> (sum, weight)",
    "LayerNorm <epsilon> (x, weight, bias) => (y)":
        "y = LayerNormalization <axis = -1, epsilon: float = @epsilon> (x, weight, bias)",
    f"GatedSilu <{_GATE_PLACES}> (gate, up) => (y)":
        _GATED + "open = Sigmoid (gates)\n swish = Mul (gates, open)\n y = Mul (swish, ups)",
    f"GatedGelu <{_GATE_PLACES}> (gate, up) => (y)":
        _GATED + 'bent = Gelu <approximate = "tanh"> (gates)\n y = Mul (bent, ups)',
    "LowRank (y, x, a, b, adapter) => (z)": neutral_adapters.LOW_RANK,
    "Choose <yes, no> (x) => (y)": """
        is_yes = Cast <to = 9> (x)
        yes_f = Constant <value_float: float = @yes> ()
        no_f = Constant <value_float: float = @no> ()
        y = Where (is_yes, yes_f, no_f)
        """,
    "Softplus (x) => (y)": "y = Softplus (x)",
    "Log (x) => (y)": "y = Log (x)",
    # Arithmetic that is not folded: its inputs are computed.
    "After (count, read) => (y)": """
        all = Constant <value_ints = [-1]> ()
        none = Constant <value_ints = [0]> ()
        one = Constant <value_ints = [1]> ()
        nothing = Constant <value_int = 0> ()
        flat = Reshape (read, all)
        first = Slice (flat, none, one)
        whole = Cast <to = 7> (first)
        zeros = Mul (whole, nothing)
        zero = ReduceSum <keepdims = 0> (zeros)
        y = Add (count, zero)
        """,
    "Convolve <silu> (rows, state, taps, bias) => (y)":
        neutral_states.CONVOLVE_TAPS
        + """
        with_bias = Add (result, bias)
        open = Sigmoid (with_bias)
        swish = Mul (with_bias, open)
        is_silu_int = Constant <value_int: int = @silu> ()
        is_silu = Cast <to = 9> (is_silu_int)
        y = Where (is_silu, swish, with_bias)
        """,
}  # fmt: skip
"""Signature -> body; further operators of states have the bodies of their neutral functions."""


def functions() -> dict[str, onnx.FunctionProto]:
    """Return operator -> its function."""
    head = f'<domain: "{DOMAIN}", opset_import: ["" : {neutral.OPSET}, "{ONNXRUNTIME_DOMAIN}" : 1]>\n'
    texts = [f"{signature} {{ {body} }}" for signature, body in _TEXTS.items()]
    states = [text for op, text in neutral_states.TEXTS.items() if op != "Convolve"]
    protos = [onnx.parser.parse_function(head + text) for text in (*texts, *states)]
    return {proto.name: proto for proto in protos}


def add_functions(model: ir.Model) -> None:
    """Add the functions of the operators that a graph calls, and no other functions of the domain but those of chains
    and programs."""
    known = functions()
    called = [node for node in ir.traversal.RecursiveGraphIterator(model.graph) if node.domain == DOMAIN]
    chains = {node.op_identifier() for node in called if node.op_type in (CHAIN, INTEGERS)}
    called += [node for identifier in chains for node in model.functions[identifier]]
    for identifier in [each for each in model.functions if each[0] == DOMAIN and each not in chains]:
        del model.functions[identifier]
    for name in sorted({node.op_type for node in called if node.domain == DOMAIN} - {CHAIN, INTEGERS}):
        function = ir.from_proto(known[name])
        model.functions[function.identifier()] = function
    if called:
        model.opset_imports[DOMAIN] = VERSION
        model.opset_imports[ONNXRUNTIME_DOMAIN] = 1
