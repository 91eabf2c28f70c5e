"""The neutral ops of quantized caches in ONNX: `speccompile::EncodeInt8`, `DecodeInt8`; see `neutral`, `step.ops`."""

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

TEXTS = (
    f"EncodeInt8 (rows) => (codes, scales) {{ {ENCODE} }}",
    f"DecodeInt8 (codes, scales) => (values) {{ {DECODE} }}",
)
SIGNATURES: dict[str, tuple[str, str, dict[str, str]]] = {
    "EncodeInt8": ("F", "Q F", {}),
    "DecodeInt8": ("Q F", "F", {}),
}
"""Types of inputs and outputs, and attributes: see `neutral`."""
