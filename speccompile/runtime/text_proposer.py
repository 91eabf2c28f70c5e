"""Drafts by a model with another tokenizer, over texts: the host reads the text with one tokenizer and the drafts with
the other (universal assisted generation; string-level exact match, Timor et al. 2025, algorithm 2)."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Protocol, Unpack

from speccompile.bundle.manifest import TOKENIZER, Manifest
from speccompile.errors import UsageError
from speccompile.runtime.generation import Generation
from speccompile.runtime.generation_options import GenerationKeywords, GenerationOptions
from speccompile.runtime.text.prompts import Prompt
from speccompile.runtime.text.tokenizer import Tokenizer

LOOKBEHIND = 10
"""Last tokens of the text whose own text is read again with the drafts, so that these begin as they would in it."""
_PARTIAL = "\ufffd"
"""Sign of a decoder for bytes that are no character, or not all of one yet."""


class Writer(Protocol):
    """Parts of an open bundle that a proposer needs."""

    manifest: Manifest
    text: Tokenizer | None

    def reuse_last(self) -> None: ...

    def generate(
        self,
        prompt: Prompt | None = None,
        options: GenerationOptions | None = None,
        **keywords: Unpack[GenerationKeywords],
    ) -> Generation: ...

    def close(self) -> None: ...


class TextProposer:
    """Proposer (see `speccompile.runtime.Proposer`) whose drafts are written by another bundle.

    Every round it gives the whole text to that bundle, which goes on from the part that it has read, and turns what it
    writes into tokens of the target. Drafts are dropped where their first letters would change the text's last tokens,
    and in the middle of a character. The target verifies drafts as certain ones, so that no token depends on them.
    """

    def __init__(self, drafter: Writer, target: str | PathLike[str], tokens: int = 4) -> None:
        """drafter: an open bundle with a tokenizer, for this proposer alone; target: folder of the bundle to draft for;
        tokens: number of the drafter's tokens a round, 1 or more.

        Raise UsageError for a bundle without a tokenizer, and for `tokens` below 1; BundleError for a file that is no
        tokenizer.
        """
        path = Path(target) / TOKENIZER
        if drafter.text is None or not path.is_file():
            where = str(target) if drafter.text is not None else "the drafter's bundle"
            raise UsageError(
                f"TextProposer: {where} has no tokenizer, expected one in both bundles",
                hint="build it from a model's folder with tokenizer.json",
            )
        if tokens < 1:
            raise UsageError(f"TextProposer: received tokens={tokens}, expected 1 or more", hint="leave it out")
        self._drafter, self._theirs, self._ours, self._tokens = drafter, drafter.text, Tokenizer(path), tokens

    def close(self) -> None:
        """Close the drafter's bundle."""
        self._drafter.close()

    def propose(self, tokens: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the drafts after a text, the target's tokens, and the parent of each: a chain."""
        text = self._ours.decode(tokens)
        if not text or text.endswith(_PARTIAL):
            return [], []
        read = self._theirs.encode(text)
        if len(read) + self._tokens > self._drafter.manifest.max_length:
            return [], []
        self._drafter.reuse_last()
        written = self._drafter.generate(read, max_new_tokens=self._tokens, temperature=0.0)
        assert written.text is not None, "a drafter over texts has a tokenizer"
        drafts = self._retokenized(tokens[-LOOKBEHIND:], written.text.rstrip(_PARTIAL))
        return drafts, list(range(-1, len(drafts) - 1))

    def _retokenized(self, tail: Sequence[int], new: str) -> list[int]:
        """Return the target's tokens of a text `new` after the text of `tail`; none if the end of `tail` would be
        another one."""
        before = self._ours.decode(tail)
        old, both = (self._ours.encode(text, special_tokens=False) for text in (before, before + new))
        return both[len(old) :] if both[: len(old)] == old else []
