"""Prefixes that a bundle ships: session files that the build has made of texts with which many prompts begin.

A prompt goes on from the longest of them without being asked. They are mapped, and compared with the bundle's hashes
alone: only the caches are copied, so that a prefix costs the page cache's memory once for all processes.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from speccompile.bundle.reader import OpenedBundle
from speccompile.errors import UsageError
from speccompile.progress import LOGGER
from speccompile.runtime.devices.engine import Array
from speccompile.runtime.rounds.slots import SlotContent, common_prefix_length
from speccompile.runtime.sessions import Sessions, SessionStart

PREFIXES, SUFFIX = "prefixes", ".session"
"""Folder of a bundle's prefixes, with a folder for each engine, and the suffix of their files."""
WORTH = 0.1
"""Share of a file's tokens that must be new to a slot: restoring a token costs less than a tenth of reading it."""

K = TypeVar("K")


def prefix_file(engine: str, name: str) -> str:
    """Return the path of an engine's prefix in a bundle."""
    return f"{PREFIXES}/{engine}/{name}{SUFFIX}"


def prefix_names(opened: OpenedBundle) -> dict[str, list[str]]:
    """Return engine -> names of its prefixes, in order."""
    found: dict[str, list[str]] = {}
    for file in sorted(opened.hashes.files):
        match file.split("/"):
            case [folder, engine, name] if folder == PREFIXES and name.endswith(SUFFIX):
                found.setdefault(engine, []).append(name.removesuffix(SUFFIX))
    return found


def common_length(one: Array, other: Array) -> int:
    """Return the length of the common prefix of two arrays of token ids."""
    shorter = min(len(one), len(other))
    differs = one[:shorter] != other[:shorter]
    return int(differs.argmax()) if differs.any() else shorter


def longest_match(
    texts: Mapping[K, Array], prompt: Sequence[int], held: int, serves: Callable[[K, int], bool]
) -> K | None:
    """Return the key of the text with the longest prefix of a prompt, None if no text is worth restoring. held: number
    of tokens of the prompt that need not be restored. The last token of a prompt is always read. serves: whether so
    many first tokens of a text may be used without the others."""
    wanted = np.array(prompt[:-1], np.int64)
    lengths = {key: common_length(text, wanted) for key, text in texts.items()}
    paying = [key for key, length in lengths.items() if length - held >= max(1, WORTH * len(texts[key]))]
    return max((key for key in paying if serves(key, lengths[key])), key=lengths.__getitem__, default=None)


Serves = Callable[[int, int, int], bool]
"""`DecodeLoop.serves`: of (tokens that caches hold, end of their written rows, first tokens that a sequence wants)."""


class ShippedPrefixes:
    """Prefixes of one engine of an open bundle, to be restored into free slots."""

    def __init__(self, sessions: Sessions, serves: Serves, files: Sequence[Path] = ()) -> None:
        """files: of the prefixes; one that does not fit this machine is passed over with a note. serves: which parts of
        a prefix may be used: recurrent states and rings cannot be cut anywhere."""
        self._sessions, self._serves = sessions, serves
        self._starts: dict[Path, SessionStart] = {}
        for path in files:
            try:
                self._starts[path] = sessions.start(path)
            except UsageError as error:
                LOGGER.warning("note: this prefix of the bundle is not used here: %s", str(error).splitlines()[0])

    @classmethod
    def of(cls, opened: OpenedBundle, engine: str, sessions: Sessions, serves: Serves) -> "ShippedPrefixes":
        """Return the prefixes of an engine of a bundle."""
        names = prefix_names(opened).get(engine, [])
        return cls(sessions, serves, [opened.folder / prefix_file(engine, name) for name in names])

    def restore(self, prompt: Sequence[int], slot: int, held: int) -> SlotContent | None:
        """Restore the longest prefix of a prompt into a free slot. Return what the slot holds then; None, with the slot
        unchanged, if it already holds `held` tokens of the prompt and no prefix has enough more."""
        texts = {path: start.tokens for path, start in self._starts.items()}

        def serves(path: Path, part: int) -> bool:
            return self._serves(len(texts[path]), self._starts[path].written, part)

        path = longest_match(texts, prompt, held, serves)
        if path is None:
            return None
        return self._sessions.restore(path, slot, file=self._sessions.read(path, trusted=True))[0]

    def resume(self, prompt: Sequence[int], resume: SlotContent | None) -> SlotContent | None:
        """Return what the next sequence that is generated alone goes on from: `resume`, or a longer prefix."""
        held = 0 if resume is None else common_prefix_length(resume.tokens, prompt)
        if resume is not None and not self._serves(len(resume.tokens), resume.written, held):
            held = 0
        return self.restore(prompt, 0, held) or resume
