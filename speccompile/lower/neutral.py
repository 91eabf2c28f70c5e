"""The neutral ops in ONNX: `speccompile::Attend` and `speccompile::Commit`.

They are ONNX functions: their bodies say, in standard ops, what the ops mean, so a neutral graph runs in any runtime
(slowly: over the full static buffer). Backends replace them by what is fast there.
"""

import onnx
import onnx.defs
import onnx.parser
import onnx_ir as ir

DOMAIN = "speccompile"
OPSET = 24

# Scores of committed columns behind the length, or out of the attention window, get -1e30: step/ops.py, HIDDEN.
_ATTEND = """
<domain: "speccompile", opset_import: ["" : 24]>
Attend <scale: float, softcap: float, window: int>
    (query, key_rows, value_rows, key_cache, value_cache, length, positions, bias) => (context)
{
    keys = Concat <axis = 2> (key_cache, key_rows)
    values = Concat <axis = 2> (value_cache, value_rows)

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

    first = Constant <value_int = 0> ()
    step = Constant <value_int = 1> ()
    rows_1d = Shape <start = 2, end = 3> (key_cache)
    rows = Squeeze (rows_1d)
    column = Range (first, rows, step)
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
    hidden_f = Constant <value_float = -1e30> ()
    hidden = CastLike (hidden_f, products)
    committed_bias = Where (is_seen, zero, hidden)
    one_1d = Constant <value_ints = [1]> ()
    per_query = Concat <axis = 0> (batch, one_1d, tokens, rows_1d)
    committed_full = Expand (committed_bias, per_query)
    full_bias = Concat <axis = 3> (committed_full, bias)
    biased = Add (scores, full_bias)
    weights_f = Softmax <axis = -1> (biased)
    weights = CastLike (weights_f, head_values)
    context = MatMul (weights, head_values)
}
"""

_COMMIT = """
<domain: "speccompile", opset_import: ["" : 24]>
Commit <axis: int> (buffer, rows, length) => (updated)
{
    updated = TensorScatter <axis: int = @axis> (buffer, rows, length)
}
"""


def functions() -> list[onnx.FunctionProto]:
    """The two neutral ops as ONNX functions."""
    return [onnx.parser.parse_function(_ATTEND), onnx.parser.parse_function(_COMMIT)]


def add_functions(model: ir.Model) -> None:
    """Give a graph that calls the neutral ops their bodies, so that it runs anywhere."""
    for proto in functions():
        function = ir.from_proto(proto)
        model.functions[function.identifier()] = function
    model.opset_imports[DOMAIN] = 1


_KINDS = {"length": "I", "positions": "I", "bias": "M"}
"""Inputs whose type is not that of the others: integers, and the mask, which is float32 in every precision."""


def register_schemas() -> None:
    """Let onnxscript know the two ops. Doing it again changes nothing."""
    if onnx.defs.has("Attend", DOMAIN):
        return
    schema, attribute = onnx.defs.OpSchema, onnx.defs.OpSchema.Attribute
    kinds = onnx.defs.OpSchema.AttrType
    floats = ["tensor(float)", "tensor(float16)", "tensor(bfloat16)"]
    parameter = schema.FormalParameter
    for proto in functions():
        is_attend = proto.name == "Attend"
        types = {name: _KINDS.get(name, "T") for name in proto.input}
        onnx.defs.register_schema(
            schema(
                proto.name, DOMAIN, 1,
                inputs=[parameter(name, kind) for name, kind in types.items()],
                outputs=[parameter(proto.output[0], "T")],
                type_constraints=[("T", floats if is_attend else [*floats, "tensor(int64)"], ""),
                                  ("I", ["tensor(int64)"], ""), ("M", ["tensor(float)"], "")],
                attributes=[attribute("scale", kinds.FLOAT), attribute("softcap", kinds.FLOAT),
                            attribute("window", kinds.INT)] if is_attend else [attribute("axis", kinds.INT)],
            )
        )  # fmt: skip
