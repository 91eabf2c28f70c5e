"""Parts of a text that are accepted draft tokens."""

from collections import deque
from collections.abc import Iterable
from itertools import groupby

from speccompile.runtime.text.tokenizer import IncrementalDetokenizer

Span = tuple[str, bool]
"""A part of a text, and whether it is of accepted draft tokens."""


def join_spans(spans: Iterable[Span]) -> list[Span]:
    """Return the spans without empty ones, neighbours of one kind as one."""
    parts = groupby((span for span in spans if span[0]), key=lambda span: span[1])
    return [("".join(text for text, _ in group), is_draft) for is_draft, group in parts]


class SpanCutter:
    """Cutter of a text, whole or in pieces that do not end where tokens do, at its accepted draft tokens.

    The length of every token's text is kept until that text comes. A character of several tokens belongs to the last of
    them; text behind that of all tokens, an incomplete character, is no draft token's.
    """

    def __init__(self, detokenizer: IncrementalDetokenizer) -> None:
        """detokenizer: at the end of the prompt, without stop strings."""
        self._detokenizer = detokenizer
        self._lengths = deque[tuple[int, bool]]()  # characters, whether they are of accepted draft tokens

    def add_tokens(self, token_ids: Iterable[int], draft_mask: Iterable[bool]) -> None:
        """Take the next tokens, and whether each is an accepted draft token."""
        for token, is_draft in zip(token_ids, draft_mask, strict=True):
            self._lengths.append((len(self._detokenizer.push([token])), is_draft))

    def finish(self) -> None:
        """Take the end of the text, which may be an incomplete character."""
        self._lengths.append((len(self._detokenizer.finish()), False))

    def cut(self, text: str) -> list[Span]:
        """Return the next text in parts."""
        spans: list[Span] = []
        while text:
            length, is_draft = self._lengths.popleft() if self._lengths else (len(text), False)
            if length > len(text):
                self._lengths.appendleft((length - len(text), is_draft))
            spans.append((text[:length], is_draft))
            text = text[length:]
        return join_spans(spans)
