"""Offsets of tokens in the text of an answer, for log-probabilities of /v1/completions."""

from collections.abc import Sequence

from speccompile.runtime.text.tokenizer import IncrementalDetokenizer
from speccompile.serving.http.tokens import TokenTexts


class TextOffsets:
    """Offsets of one choice's tokens, taken in order. Only text that the choice shows counts: special tokens add none,
    and the tokens of one character all begin where it does."""

    def __init__(self, texts: TokenTexts, prompt: Sequence[int], start: int) -> None:
        """start: number of characters before the answer, those of an echoed prompt."""
        self._texts, self._end = texts, start
        self._stream = None if texts.tokenizer is None else IncrementalDetokenizer(texts.tokenizer, prompt)

    def take(self, tokens: Sequence[int], most: int | None = None) -> list[int]:
        """Return the offset of each next token, in characters. most: length of the whole text if it is known, which a
        stop string may have cut."""
        found = [self._take(token) for token in tokens]
        return found if most is None else [min(offset, most) for offset in found]

    def _take(self, token: int) -> int:
        if self._stream is None:
            return self._end  # without a tokenizer there is no text
        start = self._end
        self._end += len(self._stream.push([token]))
        # a run of byte tokens shows its text with the token behind it, which begins after that text
        return max(start, self._end - len(self._texts[token].text)) if self._end > start else start
