"""Placeholders of pictures in prompts: expanded to one token a row, or kept out of what users write.

A placeholder is a token of the target's vocabulary with a text such as <image>. Where a text comes with pictures it
stands for one of them; in any other text it is written as the characters that it is, never as the token.
"""

from collections.abc import Sequence
from itertools import count

from speccompile.errors import PromptError

_PRIVATE = 0xE000
"""First character without a meaning (Unicode's private use area)."""


def unused_mark(*texts: str) -> str:
    """Return a character that occurs in none of the texts."""
    return next(mark for code in count(_PRIVATE) if all((mark := chr(code)) not in text for text in texts))


def marked(text: str, tokens: Sequence[str], mark: str) -> str:
    """Return the text with a mark inside each placeholder, so that it is none."""
    for token in tokens:
        text = text.replace(token, token[0] + mark + token[1:])
    return text


def with_pictures(text: str, token: str, texts: Sequence[str], alone: str) -> str:
    """Return the text with the text of a picture for each placeholder; if it has none, all pictures before it. alone:
    what stands for a picture then. Raise PromptError if there are others than pictures."""
    if (found := text.count(token)) == 0:
        text, found = alone * len(texts) + text, len(texts)
    if found != len(texts):
        raise PromptError(
            f"placeholders {token}: received {found} in the prompt, expected {len(texts)}, one for each picture",
            hint=f"write {token} once where each picture belongs, or nowhere to have all of them first",
        )
    first, *rest = text.split(token)
    return first + "".join(picture + part for picture, part in zip(texts, rest, strict=True))
