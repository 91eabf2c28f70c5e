"""Tolerances between two correct computations of the same logits."""

from collections.abc import Collection

from speccompile.bundle.caches import cache_dtype
from speccompile.bundle.manifest import EngineEntry
from speccompile.contract import COMPONENTS, FP8_CACHE, INT4_VALUES, INT8_CACHE, Graph
from speccompile.plan.precisions import PRECISIONS

INT8_CACHES, INT4_CACHES, FP8_CACHES = "int8 caches", "int4 values", "fp8 caches"
"""Keys of the tables below for graphs over quantized caches, where a rounding difference may move a key or a value to
another quantization step."""

TOLERANCE = {
    **{word: row.tolerance for word, row in PRECISIONS.items()},
    INT8_CACHES: 2e-2,
    INT4_CACHES: 0.2,
    FP8_CACHES: 0.2,
}
"""Precision -> largest difference of two numbers computed in it from the same weights, relative to the largest one.

Measured over the test zoo, random models whose tokens move every logit. float32: 2e-6 to 5e-5, from the order of
summation alone. float16: up to 5e-3, 8e-3 where tokens choose experts; bfloat16: up to 5e-2, 0.11 where a token near
the border between two experts changes sides. int8 and int4: up to 1.7e-2 in float16. Where activations are quantized,
a difference of float16 decides which step a number is rounded to: up to 9e-2 between two graphs, 0.28 between two
windows. A wrong mask may hide in the larger ones, so every lowering is compared in float32 as well. int8 caches: up to
3.5e-5 with the two layers of the zoo, and 3e-3 with the demo's five, where keys and values take another step.
"""

CARRIED_NOISE = 2e-3
"""Tolerance of float32 graphs with recurrent states, advanced token by token, against transformers' recurrences in
chunks: random Qwen 3.5 measures 2.5e-4."""

_LAYERS = 4
"""Number of layers up to which the table holds unchanged."""


def tolerance(precision: str, layers: int) -> float:
    """Return the tolerance of a model with `layers` layers. Beyond a few, rounding differences add up as independent
    ones do, with the root of the layers: with quantized activations, any difference moves numbers over the border
    between two steps, and after some layers all roundings differ. Measured on a random Llama of 32 layers (8 B) in
    int4: two graphs of it lie 8.5e-2 apart, and 2e-4 or less over the same weights in float32, whose tolerance stays
    unchanged."""
    return TOLERANCE[precision] * (1.0 if precision == "float32" else max(1.0, (layers / _LAYERS) ** 0.5))


QUANTIZATION_TOLERANCE = {"float32": 2e-4, "float16": 5e-2, INT8_CACHES: 1e-2, INT4_CACHES: 5e-2, FP8_CACHES: 5e-2}
"""Precision -> largest margin, relative to the largest logit, at which its token may differ from transformers'.

The loss of other precisions is counted and not bounded: their tokens are those of other weights, or rounded too
coarsely. Measured, root mean square over the test zoo: float16 up to 1.6e-2, bfloat16 up to 0.1, with experts 0.4.
"""


def rounding(entry: EngineEntry) -> str:
    """Return the precision that decides the tolerance between logits of an engine's target.

    ONNX Runtime on the CPU has no arithmetic in bfloat16: there it is only a storage format of weights.
    """
    word = entry.precision["target"]
    is_stored = word == "bfloat16" and (entry.backend, entry.provider) == ("onnxruntime", "cpu")
    word = "float32" if is_stored else word
    return arithmetic_over(word, entry.graphs)


def arithmetic_over(word: str, graphs: Collection[Graph]) -> str:
    """Return the key of `TOLERANCE` for graphs in a precision: that of their quantized caches, if it is larger."""
    dtypes = {cache_dtype(graphs, part) for part in COMPONENTS}
    words = {INT4_VALUES: INT4_CACHES, INT8_CACHE: INT8_CACHES, FP8_CACHE: FP8_CACHES}
    return max([word, *(words[dtype] for dtype in sorted(dtypes & words.keys()))], key=TOLERANCE.__getitem__)


def within_noise(difference: float, largest: float, precision: str) -> bool:
    """Return whether a difference of logits can come from rounding. NaN cannot."""
    return difference <= TOLERANCE[precision] * max(largest, 1.0)
