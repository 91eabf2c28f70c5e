"""Parts of a streamed text that are accepted draft tokens."""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from speccompile.runtime.text.tokenizer import IncrementalDetokenizer
from speccompile.serving.scheduler.request import OutputDelta

if TYPE_CHECKING:
    from speccompile.runtime.text.tokenizer import Tokenizer


class DraftSpans:
    """Reader of one sequence's deltas that says which characters come from accepted draft tokens.

    A stream holds text back that may become a stop string, so its pieces do not end where tokens do: the length of
    every token's text is kept until that text is sent. A character of several tokens belongs to its last one.
    """

    def __init__(self, tokenizer: "Tokenizer | None", prompt: Sequence[int]) -> None:
        """prompt: token ids, on which the text of the first new tokens depends."""
        self._text = None if tokenizer is None else IncrementalDetokenizer(tokenizer, prompt)
        self._unsent = deque[tuple[int, bool]]()  # characters, whether they are of accepted draft tokens

    def read(self, piece: OutputDelta, sent: str) -> dict[str, Any]:
        """Return the field `drafts` of a chunk: the round's draft tokens, and `sent`, the text of the chunk, in parts.

        Call it for every delta with tokens, in order."""
        if self._text is not None:
            self._measure(self._text, piece)
        return {"draft_tokens": piece.draft_tokens, "accepted_tokens": piece.accepted, "spans": self._split(sent)}

    def _measure(self, text: IncrementalDetokenizer, piece: OutputDelta) -> None:
        for place, token in enumerate(piece.token_ids):
            self._unsent.append((len(text.push([token])), place < piece.accepted))
        if piece.generation is not None:
            self._unsent.append((len(text.finish()), False))

    def _split(self, sent: str) -> list[dict[str, Any]]:
        """Return the parts of the next text: {"text": .., "draft": whether it is of accepted draft tokens}."""
        spans: list[dict[str, Any]] = []
        while sent:
            length, is_draft = self._unsent.popleft() if self._unsent else (len(sent), False)
            if length > len(sent):
                self._unsent.appendleft((length - len(sent), is_draft))
            text, sent = sent[:length], sent[length:]
            if text and spans and spans[-1]["draft"] == is_draft:
                spans[-1]["text"] += text
            elif text:
                spans.append({"text": text, "draft": is_draft})
        return spans
