"""The texts of a bundle as requests may use them, and compiled constraints that are kept."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from speccompile.errors import BundleError, PromptError, UsageError
from speccompile.progress import LOGGER
from speccompile.runtime.constraints import Constraint, GrammarCompiler
from speccompile.runtime.constraints.limits import check_size, written
from speccompile.runtime.text.chat import apply_chat_template

if TYPE_CHECKING:
    from speccompile.bundle.manifest import Manifest
    from speccompile.runtime.images.reader import ImageReader
    from speccompile.runtime.text.prompts import ChatTemplate
    from speccompile.runtime.text.tokenizer import Tokenizer
    from speccompile.runtime.text_bundle import Texts

_KEPT = 64
"""Compiled constraints that are kept."""

Compile = Callable[[str, Any], Constraint]


def warm_up(texts: "Texts") -> None:
    """Do now what would else make the first request slow, and each child again: open the tokenizer for grammars, bound
    the text of tokens, compile the chat template."""
    if texts.grammars.is_supported:
        with suppress(BundleError):  # of a tokenizer without constraints: a request for one is refused
            texts.grammars.warm()
    if texts.text is not None:
        texts.text.most_bytes(1)
    if texts.chat_template is not None:
        template, special_tokens = texts.chat_template
        with suppress(PromptError):  # it may refuse this conversation
            apply_chat_template(template, [{"role": "user", "content": ""}], special_tokens)


class UncompiledError(Exception):
    """A constraint that is not kept: its compilation takes an unknown time."""


class LimitedBundle:
    """Texts of a bundle whose constraints have a largest size, and come from another function."""

    def __init__(self, texts: "Texts", most_bytes: int, compile: Compile) -> None:  # noqa: A002
        """compile: gives a constraint of a kind and a text, as `GrammarCompiler.constraint` does."""
        self._texts, self._most, self._compile = texts, most_bytes, compile

    @property
    def manifest(self) -> "Manifest":
        return self._texts.manifest

    @property
    def text(self) -> "Tokenizer | None":
        return self._texts.text

    @property
    def chat_template(self) -> "ChatTemplate | None":
        return self._texts.chat_template

    @property
    def vision(self) -> "ImageReader | None":
        return self._texts.vision

    @property
    def grammars(self) -> GrammarCompiler:
        return self._texts.grammars

    def constraint(self, kind: str, text: Any = "") -> Constraint:
        """Return a compiled constraint. Raise UsageError for an invalid one, and for one that is too large."""
        check_size(written(kind, text), self._most, "ask for a simpler form, or serve with a larger --grammar-bytes")
        try:
            return self._compile(kind, text)
        except BundleError as error:  # the client is told what to leave out, the log which file it is
            LOGGER.error("%s", error)
            raise UsageError(
                f"constraint {kind}: llguidance does not take this bundle's tokenizer", hint=error.hint
            ) from error


class ConstraintCache:
    """Compiled constraints, the least recently used of which are forgotten first. Any thread may use it."""

    def __init__(self, grammars: Callable[[], GrammarCompiler]) -> None:
        self._grammars = grammars
        self._kept = OrderedDict[tuple[str, str], Constraint]()
        self._lock = threading.Lock()

    def get(self, kind: str, text: Any) -> Constraint:
        """Return a constraint. Raise UncompiledError if it is not kept."""
        key = (kind, written(kind, text))
        with self._lock:
            if key not in self._kept or self._kept[key].has_failed:
                self._kept.pop(key, None)
                raise UncompiledError
            self._kept.move_to_end(key)
            return self._kept[key]

    def compile(self, kind: str, text: Any, *, keep: bool) -> Constraint:
        """Return a constraint, compiled unless it is kept. keep: whether to keep it from now on."""
        try:
            return self.get(kind, text)
        except UncompiledError:
            made = self._grammars().compile(kind, text)
        if keep:
            with self._lock:
                self._kept[kind, written(kind, text)] = made
                if len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
        return made
