"""Precisions of weights as data: a row for each, which recipes, lowering, the proof and predictions read.

A precision with a layout of its own on CPUs has that in `compiler.lower.quantize.formats`, is read back for the proof
in `compiler.prove.weights`, and timed in `measure.profile.graphs`.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import NamedTuple


class PrecisionRow(NamedTuple):
    """Facts of one precision.

    bits: of a weight of a layer. average_bits: of a weight of a model, scales included. tolerance: see
    `compiler.prove.tolerance.TOLERANCE`. is_dtype: it is a dtype, and no format of weights alone. aliases: other words
    for it in a recipe. head: precision of heads and embedding tables beside it, "" for the same.

    On CPUs: kernel: of the operators that read it, "" if there are none. suffix: of its constants' names, by which the
    proof of weights recognizes them. largest_error: see `compiler.prove.weights`. block_bytes, column_bytes: of scales
    and zero points. padding: the depth of a weight is rounded up to a multiple of it.
    """

    bits: int
    average_bits: int
    tolerance: float
    is_dtype: bool = False
    aliases: tuple[str, ...] = ()
    head: str = ""
    kernel: str = ""
    suffix: str = ""
    largest_error: float = 0.0
    block_bytes: int = 0
    column_bytes: int = 0
    padding: int = 1


IN_BLOCKS = "int4"
"""The precision whose weights share scales in blocks."""

STORED = "stored"
"""Codes of a GGUF file stay as they are, other weights keep the dtype of their file."""

PRECISIONS = {
    "float32": PrecisionRow(
        32, 32, 2e-4, is_dtype=True, aliases=("fp32", "f32"), kernel="Float32", suffix="float32"
    ),
    "float16": PrecisionRow(
        16, 16, 2e-2, is_dtype=True, aliases=("fp16", "f16", "half"), suffix="float16", largest_error=2**-11
    ),
    "bfloat16": PrecisionRow(
        16, 16, 0.2, is_dtype=True, aliases=("bf16",), kernel="BFloat16", suffix="bfloat16", largest_error=2**-8
    ),
    "int8": PrecisionRow(
        8, 8, 5e-2, aliases=("q8", "8bit"), kernel="Int8", suffix="int8", largest_error=1 / 220, column_bytes=4,
        padding=64,
    ),
    IN_BLOCKS: PrecisionRow(
        4, 5, 5e-2, aliases=("q4", "4bit"), head="int8", kernel="Int4", suffix="4bits", largest_error=1 / 7.5,
        block_bytes=3, column_bytes=4,
    ),
    STORED: PrecisionRow(8, 7, 5e-2, kernel="Blocks", suffix="codes"),
    "w8a8": PrecisionRow(8, 8, 0.5),
    "fp8": PrecisionRow(8, 8, 0.5),
}  # fmt: skip

ALIASES = {alias: word for word, row in PRECISIONS.items() for alias in row.aliases}
"""Other word for a precision -> the precision."""

FLOATS = tuple(word for word, row in PRECISIONS.items() if row.is_dtype)
ON_CPUS = tuple(word for word, row in PRECISIONS.items() if row.kernel)
"""Precisions on CPUs. float16 is not faster than float32 and has a smaller range; bfloat16 means weights in bfloat16
with float32 products."""
OWN_LAYOUTS = tuple(word for word in ON_CPUS if word != STORED)
"""Precisions that have a layout of their own on CPUs; that of `stored` follows from the types of the codes."""


def round_up(number: int, multiple: int) -> int:
    """Round up to a multiple, as layouts pad rows and columns."""
    return -(-number // multiple) * multiple


def head_precision(word: str) -> str:
    """Return the precision of heads and embedding tables of a model in a precision."""
    return PRECISIONS[word].head or word


_NEAR = 0.5
"""Least similarity of a word that is meant: q9 shares half of q8."""


def precision_called(text: str) -> str:
    """Return the precision of this name or alias; the text itself if none has it."""
    word = _plain(text)
    return ALIASES.get(word, word if word in PRECISIONS else text)


def precision_near(text: str, among: Iterable[str]) -> str | None:
    """Return that of some precisions whose name or alias is most similar to a text; None if none is similar."""
    names = list(among)
    known = {name: name for name in names} | {alias: name for alias, name in ALIASES.items() if name in names}
    return known.get(next(iter(get_close_matches(_plain(text), known, n=1, cutoff=_NEAR)), ""))


def _plain(text: str) -> str:
    return text.strip().lower().replace("-", "")
