"""What this version can do, as data: one row for every engine, and in it every word that goes together.

A new feature is a word in a row (and gone from PLANNED), or a row.
"""

from collections.abc import Mapping

from speccompile.errors import RecipeError
from speccompile.recipe.refusal import Origin, nearest, one_of

Row = Mapping[str, tuple[str, ...]]

ROWS: tuple[Row, ...] = (
    {
        "backend": ("onnxruntime",),
        "provider": ("cpu",),
        "drafter": ("none", "model", "prompt_lookup"),
        "method": ("exact",),
        "decoding": ("greedy",),
        "precision": ("float32",),
    },
)

PLANNED: Row = {
    "backend": ("tensorrt", "tensorrt_rtx"),
    "provider": ("cuda", "nv_tensorrt_rtx"),
    "drafter": ("medusa", "eagle", "eagle3", "mtp", "layer_skip", "retrieval", "suffix_automaton"),
    "method": ("typical", "lenience", "top_k"),
    "decoding": ("sampling",),
    "precision": ("float16", "bfloat16", "int8", "int4", "fp8"),
}

DRAFTER_KEYS: Row = {
    "none": ("kind",),
    "model": ("kind", "model", "revision", "tokens", "sample", "tree"),
    "prompt_lookup": ("kind", "tokens", "ngram", "tree"),
}
"""Keys of the section `drafter` that mean something for each kind. A kind with `model` has weights of its own."""

EXACT_METHODS = ("exact",)
"""Verification methods that never change what the target alone would give."""


def narrow(rows: tuple[Row, ...], dimension: str, word: str, key: str, origin: Origin) -> tuple[Row, ...]:
    """The rows that can do `word`. Raises RecipeError at `key` when there are none."""
    able = tuple(row for row in rows if word in row[dimension])
    if able:
        return able
    possible = list(dict.fromkeys(known for row in rows for known in row[dimension]))
    raise _refuse(possible, dimension, word, key, origin)


def _refuse(possible: list[str], dimension: str, word: str, key: str, origin: Origin) -> RecipeError:
    known = {word for row in ROWS for word in row[dimension]} | set(PLANNED[dimension])
    if word in known:
        received = f"'{word}', which is not available in this version"
        return origin.refusal(key, received, one_of(possible), f"set {key} to {one_of(possible)}")
    guess = nearest(word, [*possible, *sorted(known)])
    hint = f"did you mean '{guess}'?" if guess else f"set {key} to {one_of(possible)}"
    return origin.refusal(key, f"'{word}', which is unknown", one_of(possible), hint)
