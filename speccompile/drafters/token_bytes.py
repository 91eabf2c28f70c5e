"""Bytes of the text that each token of a tokenizer stands for, read from its tokenizer.json.

Two tokens are the same if their bytes are, whatever they are called: a byte-level vocabulary writes a space as `Ġ`, one
with SentencePiece's sign as `▁`, and a newline is `Ċ` there and `<0x0A>` here.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints.json_files import read_json_object
from speccompile.errors import CheckpointError
from speccompile.runtime.text.token_bytes import BYTE_LETTERS

BYTE_LEVEL, METASPACE = "ByteLevel", "Metaspace"
_SPACE = "▁"
"""SentencePiece's sign for a space."""
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_LATIN = {ord(letter): byte for letter, byte in BYTE_LETTERS.items()}
_UNKNOWN = ("<unk>", "[UNK]", "<|unk|>")


@dataclass(frozen=True)
class TokenBytes:
    """Tokens of a tokenizer. texts: id -> bytes of tokens that stand for text; controls: id -> name of those that stand
    for none, such as the end of a text; fallbacks: ids of `<0x41>` and the like, which a text has only where it has no
    other tokens; unknown: id of the token for text without tokens, None without one."""

    texts: Mapping[int, bytes]
    controls: Mapping[int, str]
    fallbacks: frozenset[int] = frozenset()
    unknown: int | None = None

    def by_bytes(self, size: int) -> dict[bytes, int]:
        """Return bytes -> id, of ids below `size`; of several the lowest that a text can have."""
        ranked = sorted(self.texts.items(), key=lambda each: (each[0] in self.fallbacks, each[0]), reverse=True)
        return {text: token for token, text in ranked if token < size}


def read_token_bytes(path: Path) -> TokenBytes:
    """Return the bytes of a tokenizer.json's tokens. Raise CheckpointError if it has no vocabulary, or if its tokens do
    not say their bytes."""
    data = read_json_object(path) or {}
    try:
        model, added = data["model"], list(data.get("added_tokens") or ())
        names = _names(model["vocab"])
        controls = {int(each["id"]): str(each["content"]) for each in added if each.get("special")}
        plain = {int(each["id"]): str(each["content"]).encode() for each in added if not each.get("special")}
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise CheckpointError(
            f"{path}: received no vocabulary in model.vocab, expected the file of a `tokenizers` tokenizer",
            hint="save the tokenizer again with transformers: tokenizer.save_pretrained(FOLDER)",
        ) from None
    kind = _kind(data)
    if kind is None:
        raise CheckpointError(
            f"{path}: received a tokenizer of type {model.get('type')} whose tokens do not say their bytes, expected a "
            "byte-level one, or one with SentencePiece's spaces",
            hint="choose a drafter that was trained with the target's tokenizer: another one cannot be compared",
        )
    unknown = _unknown(model, names)
    if unknown is not None:
        controls.setdefault(unknown, names[unknown])
    texts = {token: text for token, name in names.items() if (text := _bytes(name, kind)) is not None}
    single = frozenset(token for token, name in names.items() if kind == METASPACE and _BYTE.fullmatch(name))
    return TokenBytes(
        {token: text for token, text in (texts | plain).items() if text and token not in controls}, controls,
        single, unknown,
    )  # fmt: skip


def _names(vocabulary: Any) -> dict[int, str]:
    if isinstance(vocabulary, list):  # Unigram: (token, score) in the order of the ids
        return {token: str(piece[0]) for token, piece in enumerate(vocabulary)}
    return {int(token): str(name) for name, token in vocabulary.items()}


def _kind(data: Mapping[str, Any]) -> str | None:
    """Return how names of tokens write bytes, None if they do not."""
    model = data["model"]
    if model.get("type") not in ("BPE", "Unigram") or model.get("end_of_word_suffix"):
        return None
    steps = [*_steps(data.get("pre_tokenizer")), *_steps(data.get("decoder"))]
    if any(step.get("type") == BYTE_LEVEL for step in steps):
        return BYTE_LEVEL
    steps += _steps(data.get("normalizer"))
    writes = any(_SPACE in (step.get("content"), step.get("replacement")) for step in steps)
    return METASPACE if writes or any(step.get("type") == METASPACE for step in steps) else None


def _steps(step: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """Return a step, or those of a sequence."""
    if not step:
        return []
    inner: Iterable[Mapping[str, Any]] = next(
        (step[key] for key in ("pretokenizers", "decoders", "normalizers") if key in step), ()
    )
    return [each for one in inner for each in _steps(one)] if step.get("type") == "Sequence" else [step]


def _bytes(name: str, kind: str) -> bytes | None:
    """Return the bytes of a token's name, None if the name does not write any."""
    if kind == BYTE_LEVEL:
        try:
            return name.translate(_LATIN).encode("latin-1") if all(map(BYTE_LETTERS.__contains__, name)) else None
        except UnicodeEncodeError:
            return None
    if found := _BYTE.fullmatch(name):
        return bytes.fromhex(found[1])
    return name.replace(_SPACE, " ").encode("utf-8", "surrogatepass")


def _unknown(model: Mapping[str, Any], names: Mapping[int, str]) -> int | None:
    """Return the id of the token for text that has no tokens."""
    if type(model.get("unk_id")) is int:
        return int(model["unk_id"])
    called = (model["unk_token"],) if model.get("unk_token") else _UNKNOWN
    return next((token for token, name in names.items() if name in called), None)
