"""How far two right computations of the same logits may lie apart."""

NOISE = {
    "float32": 2e-4,
    "float16": 1e-2,
    "bfloat16": 5e-2,
    "int8": 1e-2,
    "int4": 1e-2,
    "w8a8": 1e-2,
    "fp8": 1e-2,
}
"""Precision -> largest difference of two logits computed in it from the same weights, relative to the largest logit.

Measured: hook, neutral and lowered graphs lie within 2e-6 to 5e-5 of transformers' eager on the architectures of the
test zoo; differences come from the order of summation alone and grow with depth.
"""

LOSS = {"float32": 2e-4, "float16": 2e-2, "bfloat16": 1e-1, "int8": 0.15, "int4": 0.5, "w8a8": 0.5, "fp8": 0.5}
"""Precision -> largest error against the float32 graph: root mean square, relative to that of the right values."""

STRICT = ("float32", "float16", "bfloat16")
"""Precisions that keep the checkpoint's weights: beyond near-ties their greedy tokens are those of transformers."""


def within_noise(difference: float, largest: float, precision: str) -> bool:
    """Whether a difference of logits can come from rounding. NaN cannot."""
    return difference <= NOISE[precision] * max(largest, 1.0)
