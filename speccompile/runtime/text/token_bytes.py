"""Bound on the text that one token can hold, from a tokenizer's definition."""

from typing import Any


def _byte_letters() -> dict[str, int]:
    """Return the letters by which byte-level vocabularies (GPT-2's) write bytes."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAC + 1), *range(0xAE, 0xFF + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + place): byte for place, byte in enumerate(others)}


BYTE_LETTERS = _byte_letters()
"""Letters of byte-level vocabularies -> bytes."""

_KEPT_BY = {"ByteLevel", "Metaspace", "Split", "Digits", "Punctuation", "Sequence", "UnicodeScripts"}
"""Pre-tokenizers that keep all text; `Split`, `Punctuation` and `Sequence` only as below."""
_NFC = 4
"""Bytes of a text to one byte of its composed form, at most: three marks of two bytes each on a letter of two bytes
become one character of three."""


def longest_token_bytes(definition: dict[str, Any]) -> int:
    """Return the most bytes of text, in UTF-8, for which one token can stand; 0 where there is no bound.

    definition: content of a `tokenizer.json`. There is a bound for byte-level BPE without unknown tokens: all bytes of
    a text are in its tokens. Names of tokens are as long as their bytes, or longer.
    """
    model, normalizer = definition["model"], definition.get("normalizer")
    kinds = {None: 1, "NFC": _NFC}
    kind = normalizer and normalizer.get("type")
    if model.get("type") != "BPE" or kind not in kinds or not _keeps_bytes(definition.get("pre_tokenizer")):
        return 0
    if not model["vocab"].keys() >= BYTE_LETTERS.keys():  # bytes without a letter are dropped
        return 0
    added = definition.get("added_tokens") or []
    if any(token.get("lstrip") or token.get("rstrip") for token in added):  # those swallow blanks around them
        return 0
    names = [*model["vocab"], *(token["content"] for token in added)]
    return kinds[kind] * max((len(name.encode()) for name in names), default=0)


def _keeps_bytes(pre_tokenizer: dict[str, Any] | None) -> bool:
    """Return whether a pre-tokenizer writes texts as bytes, each of which is a letter, and drops none."""
    steps = (pre_tokenizer or {}).get("pretokenizers") or [pre_tokenizer or {}]
    kinds = [step.get("type") for step in steps]
    dropped = any(step.get("behavior") == "Removed" for step in steps)
    return "ByteLevel" in kinds and _KEPT_BY.issuperset(kinds) and not dropped
