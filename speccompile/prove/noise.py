"""How far two right computations of the same logits may lie apart."""

NOISE = {
    "float32": 2e-4,
    "float16": 1e-2,
    "bfloat16": 5e-2,
    "int8": 2e-2,
    "int4": 2e-2,
    "w8a8": 0.3,
    "fp8": 0.3,
}
"""Precision -> largest difference of two logits computed in it from the same weights, relative to the largest logit.

Measured: hook, neutral and lowered graphs lie within 2e-6 to 5e-5 of transformers' eager on the architectures of the
test zoo; differences come from the order of summation alone and grow with depth. Where activations are quantized, a
difference of float16 decides which step a number is rounded to: 0.28 was seen between windows of one and of five.
"""

LOSS = {
    "float32": 2e-4,
    "float16": 2e-2,
    "bfloat16": 1e-1,
    "int8": 5e-2,
    "int4": 5e-2,
    "w8a8": 0.5,
    "fp8": 0.5,
}
"""Precision -> largest difference of a lowered graph from the neutral one, relative to the largest value.

The neutral graph is float32 for the dtypes; for the others it has the same quantized weights, and what these cost is
counted in tokens and not bounded.
"""

STRICT = ("float32", "float16", "bfloat16")
"""Precisions that keep the checkpoint's weights: beyond near-ties their greedy tokens are those of transformers."""


def within_noise(difference: float, largest: float, precision: str) -> bool:
    """Whether a difference of logits can come from rounding. NaN cannot."""
    return difference <= NOISE[precision] * max(largest, 1.0)
