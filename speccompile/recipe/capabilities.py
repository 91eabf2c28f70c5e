"""Capabilities of this version as data: a row per group of engines, with the values that may be combined.

To add a feature, add a value to a row (and remove it from PLANNED), or add a row.
"""

import re
from collections.abc import Mapping, Sequence

from speccompile.drafters import DRAFTING_METHODS, kind_near
from speccompile.drafters.method import MASKS, NOTHING
from speccompile.errors import RecipeError
from speccompile.plan.precisions import FLOATS, ON_CPUS, precision_near
from speccompile.plan.recipe_source import RecipeSource, format_value, nearest, one_of
from speccompile.recipe.acceptance_methods import ACCEPTANCE_METHODS

SupportRow = Mapping[str, tuple[str, ...]]

_ANYWHERE: SupportRow = {
    "graphs": ("separate", "fused"),
    "drafter": tuple(DRAFTING_METHODS),
    "method": tuple(ACCEPTANCE_METHODS),
    "decoding": ("greedy", "sampling"),
    "constraints": ("false", "true"),
}

_WEIGHT_ONLY = ("int8", "int4")
"""Formats of weights that engines on GPUs read."""

_BLOCKS = ("32", "64", "128")


def _onnxruntime(provider: str, precision: tuple[str, ...], drafter_precision: tuple[str, ...]) -> SupportRow:
    return {
        "backend": ("onnxruntime",),
        "provider": (provider,),
        "compute_capability": (),
        **_ANYWHERE,
        "precision": precision,
        "drafter_precision": drafter_precision,
        "block_size": _BLOCKS,
    }


def _tensorrt(backend: str, capabilities: tuple[str, ...], precision: tuple[str, ...]) -> SupportRow:
    return {
        "backend": (backend,),
        "provider": ("cuda",),
        "compute_capability": capabilities,
        **_ANYWHERE,
        "precision": precision,
        # TensorRT's compiler crashes when the passes of an unrolled drafter share a weight-only quantized weight.
        "drafter_precision": tuple(word for word in precision if word not in _WEIGHT_ONLY),
        "block_size": _BLOCKS,
    }


SUPPORT_TABLE: tuple[SupportRow, ...] = (
    _onnxruntime("cpu", ON_CPUS, ON_CPUS),
    _onnxruntime("cuda", ("float32", "float16", "int8", "int4"), ("float32", "float16", "int8", "int4")),
    _onnxruntime("nv_tensorrt_rtx", (*FLOATS, *_WEIGHT_ONLY), FLOATS),
    _tensorrt("tensorrt_rtx", ("7.5",), ("float16", "int8", "w8a8")),
    _tensorrt("tensorrt_rtx", ("8.0", "8.6"), (*FLOATS, *_WEIGHT_ONLY, "w8a8")),
    _tensorrt("tensorrt_rtx", ("8.9", "12.0", "12.1"), (*FLOATS, *_WEIGHT_ONLY, "w8a8", "fp8")),
    _tensorrt("tensorrt", ("7.5",), ("float32", "float16", "int8", "w8a8")),
    _tensorrt("tensorrt", ("8.0", "8.6", "8.7"), (*FLOATS, *_WEIGHT_ONLY, "w8a8")),
    _tensorrt("tensorrt", ("8.9", "9.0", "10.0", "11.0", "12.0", "12.1"), (*FLOATS, *_WEIGHT_ONLY, "w8a8", "fp8")),
)

PLANNED: SupportRow = {
    "backend": (),
    "provider": (),
    "compute_capability": (),
    "graphs": (),
    "drafter": ("jetspec", "suffix_automaton"),
    "method": (),
    "decoding": (),
    "constraints": (),
    "precision": (),
    "drafter_precision": (),
    "block_size": (),
}

DRAFTER_KEYS: SupportRow = {
    kind: ("kind", *method.keys, *(("then", "gate") if method.weights not in (NOTHING, MASKS) else ()))
    for kind, method in DRAFTING_METHODS.items()
}
"""Keys of the section `drafter` that apply to each kind."""

_GGUF_TYPE = re.compile(r"(?:[it]?q\d_\w+|iq\d|mxfp4|nvfp4)", re.IGNORECASE)
"""Name of a type of GGUF files, or of a mixture of them: Q4_K_M, Q8_0, IQ4_XS."""

BLOCK_SIZE = 32
"""Default number of weights that share a scale in precision int4."""


def filter_rows(
    rows: tuple[SupportRow, ...], dimension: str, word: str, key: str, origin: RecipeSource, use: str = ""
) -> tuple[SupportRow, ...]:
    """Return the rows that support `word`. Raise RecipeError at `key` if there are none; `use`: purpose to name."""
    able = tuple(row for row in rows if word in row[dimension])
    if able:
        return able
    raise _refuse(rows, dimension, word, key, origin, use)


def _refuse(
    rows: tuple[SupportRow, ...], dimension: str, word: str, key: str, origin: RecipeSource, use: str
) -> RecipeError:
    possible = list(dict.fromkeys(known for row in rows for known in row[dimension]))
    known = {word for row in SUPPORT_TABLE for word in row[dimension]} | set(PLANNED[dimension])
    if word in PLANNED[dimension]:
        received = f"{format_value(word)}, which is not available in this version"
        return origin.refusal(key, received, one_of(possible), f"set {key} to {one_of(possible)}")
    if word in known:
        received = f"'{word}', which {_engine_of(rows)} cannot do{use}"
        return origin.refusal(key, received, one_of(possible), f"set {key} to {one_of(possible)}")
    guess = nearest(word, [*possible, *sorted(known)]) or _near(dimension, word, possible)
    hint = f"did you mean '{guess}'?" if guess else f"set {key} to {one_of(possible)}"
    if _GGUF_TYPE.fullmatch(word):
        like = "int8" if "8" in word else "int4"
        hint = f"this is a type of GGUF files: use {like}, or stored for a model that has codes of its own"
    return origin.refusal(key, f"{format_value(word)}, which is unknown", one_of(possible), hint)


def _near(dimension: str, word: str, possible: Sequence[str]) -> str | None:
    """Return the value that a word with aliases may mean; None if none is similar."""
    if dimension == "drafter":
        return kind_near(word)
    return precision_near(word, possible) if dimension in ("precision", "drafter_precision") else None


def _engine_of(rows: tuple[SupportRow, ...]) -> str:
    """Describe the engines of some rows of the table in the values of a recipe."""
    backend, provider, capabilities = (
        one_of(list(dict.fromkeys(word for row in rows for word in row[dimension])))
        for dimension in ("backend", "provider", "compute_capability")
    )
    return f"{backend} with compute capability {capabilities}" if capabilities else f"{backend} on {provider}"
