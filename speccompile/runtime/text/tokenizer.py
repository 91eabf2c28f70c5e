"""Text to token ids and back, complete or incrementally."""

import json
import threading
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from speccompile.errors import BundleError, EngineError, PromptError
from speccompile.machine.plain_files import read_plain
from speccompile.machine.system import trim_heap
from speccompile.runtime.text.token_bytes import longest_token_bytes

if TYPE_CHECKING:
    import tokenizers

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_LARGE = 1 << 16
"""Characters of a prompt from which on a tokenizer takes megabytes: a hundred bytes and more for each token. The C
library keeps them for every thread that ever allocated some: so such prompts are encoded one at a time, and the heap is
trimmed afterwards."""

_CONTEXT = 8
"""Number of earlier token ids that are decoded with the new ones. The text of a token depends on its neighbours: a
word's leading space on the token before, and UTF-8 is in step again three bytes after any cut."""


class Tokenizer:
    """The tokenizer in a `tokenizer.json`. Truncation and padding, which some of these files ask for, are off.

    Raises BundleError when the file is no tokenizer, EngineError without the tokenizers package.
    """

    def __init__(self, path: Path, placeholders: Sequence[str] = ()) -> None:
        """placeholders: texts of the tokens that stand for pictures, which `encode` takes as any other text."""
        self._tokenizer = tokenizer = _load(path)
        self._placeholders = placeholders
        tokenizer.no_truncation()
        tokenizer.no_padding()
        added = tokenizer.get_added_tokens_decoder().items()
        self._special = special = {index: token.content for index, token in added if token.special}
        # cached, because a tokenizer makes a new string for every call
        self._has_text = cache(lambda index: index not in special and tokenizer.id_to_token(index) is not None)
        self._bytes = _byte_fallback_ids(tokenizer)
        self.size = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        """One more than the largest token id."""
        self._alone = threading.Lock()
        self._longest: int | None = None

    def encode(self, prompt: str, special_tokens: bool = True) -> list[int]:
        """Return the token ids of `prompt`; `special_tokens` adds those that the tokenizer puts around a prompt, like a
        first <s>.

        Raise PromptError when the prompt came from bytes that are not UTF-8.
        """
        try:
            prompt.encode()
        except UnicodeEncodeError as error:
            raise PromptError(
                f"the prompt is not UTF-8 text: character {error.start} is {prompt[error.start]!r}",
                hint="save the prompt as UTF-8",
            ) from None
        if len(parts := _cut_inside(prompt, self._placeholders)) > 1:
            return self.encode_parts(parts, special_tokens)
        if len(prompt) < _LARGE:
            return self._encode(prompt, special_tokens)
        with self._alone:
            ids = self._encode(prompt, special_tokens)
            trim_heap()
        return ids

    def encode_parts(self, parts: Sequence[str], special_tokens: bool = True) -> list[int]:
        """Return the token ids of a text whose parts are encoded apart: no token reaches from one into the next. Here a
        placeholder of pictures is its token."""
        found = [self._encode(part, False) for part in parts]
        if not special_tokens:
            return [token for ids in found for token in ids]
        if len(found) == 1:
            return self._encode(parts[0], True)
        bare, whole = self._encode("a", False), self._encode("a", True)
        start = next((place for place in range(len(whole)) if whole[place : place + len(bare)] == bare), 0)
        return [*whole[:start], *(token for ids in found for token in ids), *whole[start + len(bare) :]]

    def most_bytes(self, tokens: int) -> int | None:
        """Return the bytes of the longest text that so many tokens can hold, in UTF-8. None if the tokenizer may drop
        text, so that a text of any length can have few tokens."""
        if self._longest is None:
            self._longest = longest_token_bytes(json.loads(self._tokenizer.to_str()))
        return self._longest * tokens or None

    def _encode(self, prompt: str, special_tokens: bool) -> list[int]:
        # a batch of one lets other threads run meanwhile; fast: without the place of each token in the text
        (found,) = self._tokenizer.encode_batch_fast([prompt], add_special_tokens=special_tokens)
        return list(found.ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of `token_ids` without special tokens."""
        if len(token_ids) < _LARGE:
            return self._tokenizer.decode(list(token_ids))
        (text,) = self._tokenizer.decode_batch([list(token_ids)])  # lets other threads run meanwhile
        return text

    def without_special_tokens(self, token_ids: Sequence[int]) -> list[int]:
        """Return the `token_ids` that have text: no special tokens, none beyond the tokenizer's vocabulary."""
        return list(filter(self._has_text, token_ids))

    def special_text(self, token_id: int) -> str:
        """Return the text of a special token, which no decoded text shows; "" for another token."""
        return self._special.get(token_id, "")

    def id_to_token(self, token_id: int) -> str | None:
        """Return the vocabulary's string for a token, or None if it lacks the token."""
        name: str | None = self._tokenizer.id_to_token(token_id)
        return name

    def is_byte(self, token_id: int) -> bool:
        """Return whether the token is one byte of a character that the vocabulary lacks (SentencePiece's byte
        fallback)."""
        return token_id in self._bytes


class IncrementalDetokenizer:
    """Text that continues a prompt, in pieces that can be shown as they come.

    No piece ends inside a character or in text that may still become a stop string. Joined, the pieces are exactly
    decode(prompt ids + new ids) without decode(prompt ids), cut before the stop string. Of several stop strings the one
    that is complete first counts, and of those the longest; so the text does not depend on its division into tokens,
    nor on how these are grouped.

    Byte fallback shows a run of byte tokens when it ends: tokenizers decode a run that holds one broken character to
    replacement characters throughout.
    """

    def __init__(self, text: Tokenizer, prompt_ids: Sequence[int], stop: Sequence[str] = ()) -> None:
        """`stop` is one string or several. Raises PromptError when one is empty."""
        stop = (stop,) if isinstance(stop, str) else tuple(stop)
        if "" in stop:
            raise PromptError(f"empty stop string in {list(stop)}", hint="leave it out, or give at least one character")
        self.has_stop = bool(stop)
        self.stopped = False
        """True once a stop string is complete."""
        self.kept = 0
        """Number of token ids pushed, up to and including the one that completed the stop string."""
        self._text = text
        self._stop = stop
        self._held = _Held("", ())
        self._pending: list[int] = []
        self._context = self._last_shown(prompt_ids)
        self._known = text.decode(self._context)

    def restarted(self, prompt_ids: Sequence[int]) -> "IncrementalDetokenizer":
        """Return a detokenizer of the same tokenizer at the end of another prompt, without stop strings."""
        return IncrementalDetokenizer(self._text, prompt_ids)

    def push(self, token_ids: Sequence[int]) -> str:
        """Take the next token ids; return the text that may be shown now. Ignore all tokens after the stop string."""
        if not self.has_stop:
            self.kept += len(token_ids)
            return self._decode(token_ids)
        pieces = []
        for token_id in token_ids:
            if self.stopped:
                break
            self.kept += 1
            special = self._text.special_text(token_id)
            pieces.append(self._pass_special(special) if special else self._until_stop(self._decode([token_id])))
        return "".join(pieces)

    def finish(self) -> str:
        """Return the rest of the text, once. A character whose last bytes never came is U+FFFD."""
        if self.stopped:
            return ""
        self._context += self._pending
        whole = self._text.decode(self._context)
        piece = self._until_stop(_new_part(self._known, whole))
        rest, self._held = self._held.shown(), _Held("", ())
        self._pending = []
        self._known = whole
        return piece + rest

    def _pass_special(self, special: str) -> str:
        """Take a special token's text; return the text that may be shown now."""
        rest = _new_part(self._known, self._text.decode(self._context + self._pending)) if self._pending else ""
        whole = self._held.joined(rest).joined(special, hidden=True)
        if rest and whole.first_stop(self._stop) is not None:  # 0: at the beginning of the held text
            # what waits for the rest of a character stands before the stop string, and nothing follows
            return self._until_stop(rest) + ("" if self.stopped else self._until_stop(special, hidden=True))
        return self._until_stop(special, hidden=True)

    def _last_shown(self, prompt_ids: Sequence[int]) -> list[int]:
        shown = self._text.without_special_tokens(prompt_ids)
        start = max(0, len(shown) - _CONTEXT)
        while start and self._text.is_byte(shown[start]):
            start -= 1
        return shown[start:]

    def _decode(self, token_ids: Sequence[int]) -> str:
        """Return the text that has become certain with some more tokens."""
        self._pending += self._text.without_special_tokens(token_ids)
        ready = len(self._pending)
        while ready and self._text.is_byte(self._pending[ready - 1]):
            ready -= 1
        if not ready:
            return ""
        ids = self._context + self._pending[:ready]
        piece = _new_part(self._known, self._text.decode(ids).removesuffix(_REPLACEMENT))
        if piece:
            self._context, self._pending = ids[-_CONTEXT:], self._pending[ready:]
            self._known = self._text.decode(self._context).removesuffix(_REPLACEMENT)
        return piece

    def _until_stop(self, piece: str, hidden: bool = False) -> str:
        """Return the part of the held text and `piece` that may be shown. hidden: it is a special token's text."""
        held = self._held.joined(piece, hidden)
        found = held.first_stop(self._stop)
        self.stopped = found is not None
        end = held.first_open(self._stop) if found is None else found
        self._held = _Held("", ()) if self.stopped else held.behind(end)
        return held.shown(end)


class _Held(NamedTuple):
    """Text that may still become a stop string. text: with special tokens; hidden: the places of their characters."""

    text: str
    hidden: tuple[int, ...]

    def joined(self, piece: str, hidden: bool = False) -> "_Held":
        """Return the text with `piece` behind it. hidden: it is a special token's text."""
        size = len(self.text)
        return _Held(self.text + piece, (*self.hidden, *range(size, size + len(piece))) if hidden else self.hidden)

    def behind(self, end: int) -> "_Held":
        """Return the text from `end` on."""
        return _Held(self.text[end:], tuple(place - end for place in self.hidden if place >= end))

    def shown(self, end: int | None = None) -> str:
        """Return the text before `end` without special tokens."""
        return "".join(self.text[place] for place in self._places() if end is None or place < end)

    def first_stop(self, stops: Sequence[str]) -> int | None:
        """Return the place before which the text ends: where the stop string begins that is complete first, and of
        those the longest. None without one."""
        found = [
            (places[start + len(stop) - 1], places[start])
            for text, places in self._readings()
            for stop in stops
            if (start := text.find(stop)) >= 0
        ]
        return min(found)[1] if found else None

    def first_open(self, stops: Sequence[str]) -> int:
        """Return the start of the text that may still become a stop string, or the text's length."""
        starts = (
            places[at]
            for text, places in self._readings()
            for at in range(len(text))
            if any(stop.startswith(text[at:]) for stop in stops)
        )
        return min(starts, default=len(self.text))

    def _readings(self) -> Iterator[tuple[str, Sequence[int]]]:
        """Yield the text with special tokens, and the one that is shown, each with the places of its characters."""
        yield self.text, range(len(self.text))
        if self.hidden:
            yield self.shown(), self._places()

    def _places(self) -> Sequence[int]:
        if not self.hidden:
            return range(len(self.text))
        hidden = set(self.hidden)
        return [place for place in range(len(self.text)) if place not in hidden]


def _new_part(known: str, whole: str) -> str:
    # a prompt may end inside a character, which the first new token then completes
    while not whole.startswith(known):
        known = known[:-1]
    return whole[len(known) :]


def _load(path: Path) -> "tokenizers.Tokenizer":
    try:
        import tokenizers
    except ImportError:
        raise EngineError(
            "text needs the Python package tokenizers, which is not installed",
            hint="pip install tokenizers, or give token ids instead of text",
        ) from None
    try:
        return tokenizers.Tokenizer.from_buffer(read_plain(path))
    except (OSError, ValueError) as error:
        raise BundleError(f"{path}: expected a tokenizer: {error}", hint="build the bundle again") from error


def _byte_fallback_ids(tokenizer: "tokenizers.Tokenizer") -> set[int]:
    # tested by decoding, because only some decoders read such tokens as bytes
    letter = tokenizer.token_to_id("<0x41>")
    if letter is None or tokenizer.decode([letter]) != "A":
        return set()
    ids = (tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in range(256))
    return {index for index in ids if index is not None}


def _cut_inside(text: str, placeholders: Sequence[str]) -> list[str]:
    """Return the parts of a text that is cut after the first character of each placeholder."""
    parts = [text]
    for token in placeholders:
        split = [part.split(token) for part in parts]
        parts = [
            (token[1:] if index else "") + piece + (token[0] if index < len(pieces) - 1 else "")
            for pieces in split
            for index, piece in enumerate(pieces)
        ]
    return parts
