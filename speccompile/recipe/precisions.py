"""Precisions by the names that people give them."""

from collections.abc import Iterable
from difflib import get_close_matches

PRECISIONS = {
    "fp32": "float32", "f32": "float32", "fp16": "float16", "f16": "float16", "half": "float16", "bf16": "bfloat16",
    "q8": "int8", "8bit": "int8", "q4": "int4", "4bit": "int4",
}  # fmt: skip
"""Alias of a precision -> its name."""

_NEAR = 0.5
"""Least similarity of a word that is meant: q9 shares half of q8."""


def precision_called(text: str) -> str:
    """Return the precision of this name or alias; the text itself if none has it."""
    word = _plain(text)
    return PRECISIONS.get(word, word if word in (*PRECISIONS.values(), "fp8", "stored") else text)


def precision_near(text: str, among: Iterable[str]) -> str | None:
    """Return that of some precisions whose name or alias is most similar to a text; None if none is similar."""
    names = list(among)
    known = {name: name for name in names} | {alias: name for alias, name in PRECISIONS.items() if name in names}
    return known.get(next(iter(get_close_matches(_plain(text), known, n=1, cutoff=_NEAR)), ""))


def _plain(text: str) -> str:
    return text.strip().lower().replace("-", "")
