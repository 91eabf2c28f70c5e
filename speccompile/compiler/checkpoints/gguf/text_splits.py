"""Splits of text into words, for byte-level tokenizers, by `tokenizer.ggml.pre`.

Names: llama_vocab::impl::load of llama.cpp. Splits: tokenizer.json of the models that the names stand for.
"""

from typing import Any, NamedTuple

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
"""GPT-2's own split, and the decoder of all byte-level tokenizers."""
_BYTES_ALONE = BYTE_LEVEL | {"use_regex": False}
_DIGITS = {"type": "Digits", "individual_digits": True}
_NFC = {"type": "NFC"}

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_LETTER = r"\p{L}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


class TextSplit(NamedTuple):
    """A split. normalizer, pre_tokenizer: of tokenizer.json. ignore_merges: whether a word that is a token is taken
    whole. adds_bos: whether a text begins with BOS where the file does not say."""

    pre_tokenizer: dict[str, Any]
    normalizer: dict[str, Any] | None = None
    ignore_merges: bool = False
    adds_bos: bool = False


def _sequence(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(parts)}


def _regex(pattern: str) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return _sequence(split, _BYTES_ALONE)


def _words(digits: str, letters: str = _LETTER) -> str:
    """Return the pattern of GPT-4's kind. digits: how many digits make a word; letters: what a word consists of."""
    words = rf"[^\r\n\p{{L}}\p{{N}}]?{letters if letters == _LETTER else f'[{letters}]'}+"
    return rf"{_CONTRACTIONS}|{words}|{digits}| ?[^\s{letters}\p{{N}}]+[\r\n]*|{_SPACES}"


def _cased_words(ending: str, digits: str) -> str:
    """Return the pattern of GPT-4o's kind, which cuts where case changes."""
    begin = r"[^\r\n\p{L}\p{N}]?"
    words = f"{begin}{_UPPER}*{_LOWER}+{ending}|{begin}{_UPPER}+{_LOWER}*{ending}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"


_LLAMA_3 = TextSplit(_regex(_words(r"\p{N}{1,3}")), ignore_merges=True, adds_bos=True)
_SINGLE_DIGITS = TextSplit(_sequence(_DIGITS, BYTE_LEVEL))

TEXT_SPLITS = {
    "gpt-2": TextSplit(BYTE_LEVEL),
    "llama-bpe": _LLAMA_3,
    "llama3": _LLAMA_3,
    "llama-v3": _LLAMA_3,
    "qwen2": TextSplit(_regex(_words(r"\p{N}")), _NFC),
    "qwen35": TextSplit(_regex(_words(r"\p{N}", _LETTER + r"\p{M}")), _NFC),
    "lfm2": _LLAMA_3,
    "smollm": _SINGLE_DIGITS,
    "starcoder": _SINGLE_DIGITS,
    "tekken": TextSplit(_regex(_cased_words("", r"\p{N}")), ignore_merges=True, adds_bos=True),
    "gpt-4o": TextSplit(_regex(_cased_words(f"{_CONTRACTIONS}?", r"\p{N}{1,3}"))),
}
"""`tokenizer.ggml.pre` -> split."""
