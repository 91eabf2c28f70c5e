"""Parts of a streamed text that are accepted draft tokens."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from speccompile.runtime.text.draft_spans import SpanCutter
from speccompile.runtime.text.tokenizer import IncrementalDetokenizer
from speccompile.serving.scheduler.request import OutputDelta

if TYPE_CHECKING:
    from speccompile.runtime.text.tokenizer import Tokenizer


class DraftSpans:
    """Reader of one sequence's deltas that says which characters come from accepted draft tokens.

    A stream holds text back that may become a stop string, so its pieces do not end where tokens do.
    """

    def __init__(self, tokenizer: "Tokenizer | None", prompt: Sequence[int]) -> None:
        """prompt: token ids, on which the text of the first new tokens depends."""
        self._cutter = None if tokenizer is None else SpanCutter(IncrementalDetokenizer(tokenizer, prompt))

    def read(self, piece: OutputDelta, sent: str) -> dict[str, Any]:
        """Return the field `drafts` of a chunk: the round's draft tokens, how many were accepted within the answer, and
        `sent`, the text of the chunk, in parts: {"text": .., "draft": whether it is of accepted draft tokens}.

        Call it for every delta with tokens, in order."""
        spans = [] if self._cutter is None else self._cut(self._cutter, piece, sent)
        accepted = min(piece.accepted, len(piece.token_ids))  # the end of the answer cuts off the rest
        return {"draft_tokens": piece.draft_tokens, "accepted_tokens": accepted, "spans": spans}

    def _cut(self, cutter: SpanCutter, piece: OutputDelta, sent: str) -> list[dict[str, Any]]:
        cutter.add_tokens(piece.token_ids, (place < piece.accepted for place in range(len(piece.token_ids))))
        if piece.generation is not None:
            cutter.finish()
        return [{"text": text, "draft": is_draft} for text, is_draft in cutter.cut(sent)]
