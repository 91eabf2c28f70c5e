"""A generation as HTML, for notebooks: its text with accepted draft tokens marked."""

from collections.abc import Sequence
from html import escape

from speccompile.runtime.text.draft_spans import Span, SpanCutter, join_spans
from speccompile.runtime.text.tokenizer import IncrementalDetokenizer

# Translucent over the notebook's own colors, dark or light, and underlined for those who do not see the color.
_MARK = "background:rgba(46,160,67,.22);border-bottom:2px solid rgba(46,160,67,.85)"
_TEXT = "white-space:pre-wrap;overflow-wrap:anywhere;color:inherit;background:none;margin:.5em 0 0;padding:0"
_FACTS = "font-size:85%;opacity:.8"


def as_html(facts: Sequence[str], spans: Sequence[Span]) -> str:
    """Return HTML with inline styles alone: a line of facts, and the text. Everything is escaped."""
    legend = [f'<span style="{_MARK}">accepted draft tokens</span>'] if any(is_draft for _, is_draft in spans) else []
    head = " &middot; ".join([*map(escape, facts), *legend])
    text = "".join(_marked(part) if is_draft else escape(part) for part, is_draft in spans)
    return f'<div><div style="{_FACTS}">{head}</div><pre style="{_TEXT}">{text}</pre></div>'


def text_spans(
    text: str, token_ids: Sequence[int], draft_mask: Sequence[bool], detokenizer: IncrementalDetokenizer
) -> list[Span]:
    """Return the text in parts. detokenizer: at the end of the prompt, without stop strings."""
    cutter = SpanCutter(detokenizer)
    cutter.add_tokens(token_ids, draft_mask)
    return cutter.cut(text)


def id_spans(token_ids: Sequence[int], draft_mask: Sequence[bool]) -> list[Span]:
    """Return the parts of a list of token ids, for a generation without text."""
    last = len(token_ids) - 1
    parts = (f"{token}, " if place < last else f"{token}" for place, token in enumerate(token_ids))
    return join_spans(zip(parts, draft_mask, strict=True))


def _marked(text: str) -> str:
    return f'<span style="{_MARK}">{escape(text)}</span>'
