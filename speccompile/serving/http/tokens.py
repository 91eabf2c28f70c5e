"""Text of single tokens, for log-probabilities."""

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from speccompile.runtime.text.token_bytes import BYTE_LETTERS

if TYPE_CHECKING:
    from speccompile.runtime.text.tokenizer import Tokenizer

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class TokenText(NamedTuple):
    """Text of a token. text: U+FFFD if it is no complete character; data: its bytes, None if they are unknown."""

    text: str
    data: list[int] | None


class TokenTexts:
    """Text that each token of a vocabulary adds after other text. Without a tokenizer: the token's number."""

    def __init__(self, tokenizer: "Tokenizer | None") -> None:
        self.tokenizer = tokenizer
        self._known: dict[int, TokenText] = {}

    def __getitem__(self, token: int) -> TokenText:
        if token not in self._known:
            self._known[token] = self._find(token)
        return self._known[token]

    def _find(self, token: int) -> TokenText:
        if self.tokenizer is None:
            return _whole(f"token_id:{token}")
        name = self.tokenizer.id_to_token(token)
        if name is None or not self.tokenizer.without_special_tokens(
            [token]
        ):  # special: it writes no text, and its name stands for it
            return _whole(name or f"token_id:{token}")
        written = self.tokenizer.decode([*self._before, token])[len(self.tokenizer.decode(self._before)) :]
        if _REPLACEMENT not in written:
            return _whole(written)
        if self.tokenizer.is_byte(token):  # <0x0A>
            return TokenText(_REPLACEMENT, [int(name[1:-1], 16)])
        known = all(letter in BYTE_LETTERS for letter in name)
        return TokenText(written, [BYTE_LETTERS[letter] for letter in name] if known else None)

    @cached_property
    def _before(self) -> list[int]:
        """Return a token of plain text, as context: decoders drop the space before the first word of a text."""
        assert self.tokenizer is not None
        return self.tokenizer.encode("a", special_tokens=False)[:1]


def _whole(text: str) -> TokenText:
    return TokenText(text, list(text.encode("utf-8", "replace")))
