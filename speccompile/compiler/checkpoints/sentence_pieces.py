"""Models of SentencePiece: the pieces of a `.spm` or `.model` file, and how it normalizes a text.

The file is a message of protocol buffers, `ModelProto` of the library's sentencepiece_model.proto. Its few fields that
matter are read here, so that a plan needs neither that library nor its messages.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speccompile.errors import CheckpointError, UnsupportedModelError
from speccompile.machine.formats.json_files import COPY_AGAIN

NORMAL, UNKNOWN, CONTROL = 1, 2, 3
"""Kinds of pieces: of a text, for a text without pieces, and such as `</s>`, which no text has."""
UNIGRAM, BPE = "Unigram", "BPE"
_MODELS = {1: UNIGRAM, 2: BPE}
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
"""Kinds of fields on the wire."""
_PIECE, _TRAINER, _NORMALIZER = 1, 2, 3
_MODEL_TYPE, _BYTE_FALLBACK = 3, 35
_CHARSMAP, _DUMMY_PREFIX, _EXTRA_SPACES, _ESCAPED = 2, 3, 4, 5


@dataclass(frozen=True)
class PieceModel:
    """Pieces of a text with their scores, `UNIGRAM` or `BPE`, and the map of characters that a text is normalized by,
    empty for none."""

    pieces: dict[str, float]
    kind: str
    charsmap: bytes


def read_pieces(path: Path) -> PieceModel:
    """Return the model in a file. Raise CheckpointError for a file that is none, UnsupportedModelError for one that
    cuts a text in another way than those of translators do."""
    try:
        fields = list(_fields(path.read_bytes()))
        inner = {number: dict(_fields(value)) for number, value in fields if number in (_TRAINER, _NORMALIZER)}
        pieces = [dict(_fields(value)) for number, value in fields if number == _PIECE]
        kinds = [each.get(3, NORMAL) for each in pieces]
        names = [each[1].decode() for each in pieces]
        scores = [struct.unpack("<f", each.get(2, bytes(4)))[0] for each in pieces]
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, struct.error):
        names, inner, kinds, scores = [], {}, [], []
    if not names:
        raise CheckpointError(f"{path}: received no model of SentencePiece, expected one", hint=COPY_AGAIN)
    trainer, normalizer = inner.get(_TRAINER, {}), inner.get(_NORMALIZER, {})
    kind = _MODELS.get(trainer.get(_MODEL_TYPE, 1))
    flags = [normalizer.get(flag, 1) for flag in (_DUMMY_PREFIX, _EXTRA_SPACES, _ESCAPED)]
    if kind is None or trainer.get(_BYTE_FALLBACK) or not all(flags) or {*kinds} - {NORMAL, UNKNOWN, CONTROL}:
        raise UnsupportedModelError(
            f"{path}: received a model of SentencePiece with bytes, pieces of its user's or spaces as they are, "
            "expected unigrams or BPE with a space before a text",
            hint="write tokenizer.json beside it, as the library tokenizers does: then this file is not read",
        )
    found = {name: score for name, score, each in zip(names, scores, kinds, strict=True) if each == NORMAL}
    return PieceModel(found, kind, normalizer.get(_CHARSMAP, b""))


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field of a message: a whole number, or bytes. Raise ValueError or IndexError for
    bytes that are none."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        size = {_EIGHT: 8, _FOUR: 4}.get(key & 7, 0)
        if key & 7 == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if key & 7 == _BYTES:
            size, at = _varint(data, at)
        elif not size:
            raise ValueError(f"a field of kind {key & 7}")
        if at + size > len(data):
            raise ValueError("a field that is cut off")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the whole number at a place, and the place behind it."""
    found, shift = 0, 0
    while True:
        found |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return found, at
