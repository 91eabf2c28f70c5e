"""The neutral ops of quantized caches in ONNX: `speccompile::EncodeInt8`, `DecodeInt8`, `EncodeInt4`, `DecodeInt4`, and
of those in fp8 `RoundFp8`; see `neutral`, `step.ops`."""

CODE_OPS = {"EncodeInt8": "DecodeInt8", "EncodeInt4": "DecodeInt4"}
"""Op that makes codes and scales of rows -> op that makes rows of them."""
CODE_ATTENDS = {
    "DecodeInt8": {"Attend": "AttendInt8", "AttendSinks": "AttendInt8Sinks"},
    "DecodeInt4": {"Attend": "AttendInt8Int4", "AttendSinks": "AttendInt8Int4Sinks"},
}
"""Op that decodes values -> neutral op -> the kernel of a backend over codes and scales."""


def reads_codes(op: str) -> bool:
    """Return whether an op is a kernel over codes and scales."""
    return any(op in kernels.values() for kernels in CODE_ATTENDS.values())


ENCODE = """
    last = Constant <value_ints = [-1]> ()
    zero = Constant <value_float = 0.0> ()
    one = Constant <value_float = 1.0> ()
    most = Constant <value_float = 127.0> ()
    least = Constant <value_float = -127.0> ()
    magnitudes = Abs (rows)
    largest = ReduceMax <keepdims = 1> (magnitudes, last)
    scales = Div (largest, most)
    is_empty = Equal (scales, zero)
    divisors = Where (is_empty, one, scales)
    quotients = Div (rows, divisors)
    rounded = Round (quotients)
    clipped = Clip (rounded, least, most)
    codes = Cast <to = 3> (clipped)
"""
DECODE = """
    floats = Cast <to = 1> (codes)
    values = Mul (floats, scales)
"""
"""Bodies of EncodeInt8 and DecodeInt8: step/ops.py, quantize."""

ENCODE_INT4 = """
    last = Constant <value_ints = [-1]> ()
    zero = Constant <value_float = 0.0> ()
    one = Constant <value_float = 1.0> ()
    most = Constant <value_float = 15.0> ()
    middle = Constant <value_float = 128.0> ()
    largest = ReduceMax <keepdims = 1> (rows, last)
    least = ReduceMin <keepdims = 1> (rows, last)
    range = Sub (largest, least)
    steps = Div (range, most)
    is_empty = Equal (steps, zero)
    divisors = Where (is_empty, one, steps)
    above = Sub (rows, least)
    quotients = Div (above, divisors)
    rounded = Round (quotients)
    clipped = Clip (rounded, zero, most)
    sizes = Shape (rows)
    halves = Constant <value_ints = [1, 1, 1, 2]> ()
    of_bytes = Div (sizes, halves)
    two = Constant <value_ints = [2]> ()
    to_pairs = Concat <axis = 0> (of_bytes, two)
    pairs = Reshape (clipped, to_pairs)
    places = Constant <value_floats = [1.0, 16.0]> ()
    placed = Mul (pairs, places)
    joined = ReduceSum <keepdims = 0> (placed, last)
    centred = Sub (joined, middle)
    codes = Cast <to = 3> (centred)
    scales = Concat <axis = -1> (steps, least)
"""
DECODE_INT4 = """
    wide_{0} = Cast <to = 6> ({0})
    middle_{0} = Constant <value_int = 128> ()
    offset_{0} = Cast <to = 6> (middle_{0})
    bytes_{0} = Add (wide_{0}, offset_{0})
    sixteen_{0} = Constant <value_int = 16> ()
    levels_{0} = Cast <to = 6> (sixteen_{0})
    low_{0} = Mod (bytes_{0}, levels_{0})
    high_{0} = Div (bytes_{0}, levels_{0})
    end_{0} = Constant <value_ints = [-1]> ()
    low_5d_{0} = Unsqueeze (low_{0}, end_{0})
    high_5d_{0} = Unsqueeze (high_{0}, end_{0})
    pairs_{0} = Concat <axis = -1> (low_5d_{0}, high_5d_{0})
    sizes_{0} = Shape ({0})
    twice_{0} = Constant <value_ints = [1, 1, 1, 2]> ()
    to_rows_{0} = Mul (sizes_{0}, twice_{0})
    numbers_{0} = Reshape (pairs_{0}, to_rows_{0})
    floats_{0} = Cast <to = 1> (numbers_{0})
    steps_{0}, least_{0} = Split <axis = -1, num_outputs = 2> ({1})
    scaled_{0} = Mul (floats_{0}, steps_{0})
    {2} = Add (scaled_{0}, least_{0})
"""
"""Bodies of EncodeInt4 and DecodeInt4: step/ops.py, quantize. Of a byte the low four bits are the first column, and its
sign bit is turned. Sizes are computed: an empty cache has no rows, from which no size of -1 can be inferred."""

ROUND_FP8 = """
    one = Constant <value_float = 1.0> ()
    floats = Cast <to = 1> (rows)
    codes = QuantizeLinear <output_dtype = 17> (floats, one)
    decoded = DequantizeLinear (codes, one)
    values = CastLike (decoded, rows)
"""
"""Body of RoundFp8: step/ops.py, round_fp8."""

TEXTS = (
    f"RoundFp8 (rows) => (values) {{ {ROUND_FP8} }}",
    f"EncodeInt8 (rows) => (codes, scales) {{ {ENCODE} }}",
    f"DecodeInt8 (codes, scales) => (values) {{ {DECODE} }}",
    f"EncodeInt4 (rows) => (codes, scales) {{ {ENCODE_INT4} }}",
    f"DecodeInt4 (codes, scales) => (values) {{ {DECODE_INT4.format('codes', 'scales', 'values')} }}",
)
SIGNATURES: dict[str, tuple[str, str, dict[str, str]]] = {
    "RoundFp8": ("T", "T", {}),
    "EncodeInt8": ("F", "Q F", {}),
    "DecodeInt8": ("Q F", "F", {}),
    "EncodeInt4": ("F", "Q F", {}),
    "DecodeInt4": ("Q F", "F", {}),
}
"""Types of inputs and outputs, and attributes: see `neutral`."""
