"""Sessions: what the first batch slot has read, saved to a file and restored from one.

Restored states are those that the same tokens leave, bit for bit, so that no token depends on a session. A file is
refused where that could not be so: its key has every fact on which states depend, and the differing one is named. The
drafter's part has a key of its own: that of another drafter is dropped, and the drafter reads the text again.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from speccompile.bundle.manifest import Manifest
from speccompile.contract import COMPONENTS, ENDS, has_recurrent_states, is_own_cache, is_recurrent_state
from speccompile.errors import UsageError
from speccompile.progress import LOGGER
from speccompile.runtime.adapters import LoadedAdapter, adapter_key
from speccompile.runtime.devices.engine import Array
from speccompile.runtime.generation import SequenceState
from speccompile.runtime.rounds.decode_loop import DecodeLoop
from speccompile.runtime.rounds.rings import FULL
from speccompile.runtime.rounds.slots import SlotContent
from speccompile.runtime.session_file import SessionFile, check_notes, read_session, read_start, write_session
from speccompile.runtime.session_key import SLIDING, SessionKey

TOKENS = "session.tokens"
"""Name of the tensor of token ids, int64 [n]. Other tensors have the names of their buffers."""
DRAFTER, DRAFTER_LENGTH, ADAPTER, WRITTEN = "drafter", "drafter_length", "adapter", "written"
NOTE = "note."
"""Beginning of names of notes."""
_TARGET = f"{COMPONENTS[0]}."
_ANOTHER = "give another file"


def check_session(value: object, sequences: int, *, side_by_side: bool) -> Path | None:
    """Return the file of a session, or None. side_by_side: whether the call runs by itself, in no service. Raise
    UsageError, before any work, for another value, several sequences, and a file that could not be written."""
    if value is None:
        return None
    if not isinstance(value, str | Path) or not str(value):
        raise UsageError(f"session: received {value!r}, expected the path of a file", hint="leave it out for none")
    path = Path(value)
    if sequences != 1 or not side_by_side:
        received = f"{sequences} sequences" if side_by_side else "a service"
        raise UsageError(
            f"session {path}: received {received}, expected one sequence that runs alone",
            hint="ask for one sequence by itself, or leave the session out",
        )
    if path.is_dir():
        raise UsageError(f"session {path}: received a folder, expected a file", hint=f"give {path / 'text.session'}")
    if not path.parent.is_dir():
        raise UsageError(f"session {path}: there is no folder {path.parent}", hint=f"create it, or {_ANOTHER}")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(
            f"session {path}: nothing may be written in {path.parent}", hint=f"allow it to be written, or {_ANOTHER}"
        )
    return path


class SessionStart(NamedTuple):
    """Beginning of a file. tokens: int64 [n]. same_drafter: whether this bundle's drafter wrote its part of the file.
    notes: texts by name. adapter: key of that with which they were read, "" for the base. written: see `Slot`."""

    tokens: Array
    same_drafter: bool
    notes: dict[str, str]
    adapter: str
    written: int


class Sessions:
    """Saves and restores slots of a loop."""

    def __init__(self, loop: DecodeLoop, manifest: Manifest, key: SessionKey) -> None:
        self._loop, self._manifest, self.key = loop, manifest, key
        self.notes: dict[str, str] = {}
        """Notes in the file that was loaded last."""
        self._moves_on = {part: has_recurrent_states(manifest.graphs, part) for part in COMPONENTS}

    @property
    def left(self) -> SlotContent | None:
        """Return the content of a slot, of the sequence that left last."""
        return self._loop.left

    def save(self, path: Path, notes: Mapping[str, str] | None = None) -> None:
        """Write what a slot holds of the latest sequence, and notes, which are given back as they are. Raise UsageError
        if it holds nothing, a note is no text, or the file cannot be written."""
        check_notes(notes or {}, path)
        write_session(path, self.content(path, notes))

    @property
    def serves_whole(self) -> bool:
        """True if only the whole text of a file serves another one: recurrent states cannot be cut to a prefix."""
        return any(self._moves_on.values())

    def is_at_end(self, content: SlotContent) -> bool:
        """Return whether the target's states are those that a text leaves, so that nothing need be read again."""
        return not self._moves_on["target"] or content.target_position == len(content.tokens)

    def content(
        self, path: Path, notes: Mapping[str, str] | None = None, left: SlotContent | None = None
    ) -> SessionFile:
        """Return a copy of what `save` writes to a file. left: by default of the latest sequence. Raise UsageError if a
        slot holds nothing."""
        left = left or self._loop.left
        if left is None or not left.tokens:
            raise UsageError(
                f"{path}: there is no session to save: the last use of this bundle was no generation of one prompt",
                hint="generate from one prompt before",
            )
        if left.source:
            raise UsageError(
                f"{path}: the latest generation has read a source, which its states depend on: sessions do not save it",
                hint="generate again from the source",
            )
        if min(left.tokens) < 0:
            raise UsageError(
                f"{path}: the latest generation holds pictures, expected text alone: sessions do not save pictures",
                hint="generate from a prompt of text before",
            )
        if not self.is_at_end(left):
            left = self._read_again(left.tokens, left.adapter)
        if self._moves_on["drafter"] and left.drafter_position != left.drafter_length:
            left = left._replace(drafter_length=0)
        tensors = {TOKENS: ("I64", np.array(left.tokens, np.int64))}
        states = self._loop.states
        for buffer in states.shapes:
            if self._is_target(buffer) or left.drafter_length:
                part = self._part(buffer, len(left.tokens), left.drafter_length)
                tensors[buffer] = (states.dtypes[buffer], np.array(states.line(buffer, left.slot)[part]))
        own = {DRAFTER: self.key.drafter, DRAFTER_LENGTH: str(left.drafter_length)}
        own |= {ADAPTER: left.adapter.key} if left.adapter else {}
        own |= {WRITTEN: str(left.written)} if self._loop.rings else {}
        own |= {NOTE + name: value for name, value in (notes or {}).items()}
        return SessionFile(self.key.of_adapter(adapter_key(left.adapter)) | own, tensors)

    def load(self, path: Path, adapter: str | None = None, *, is_replaced: bool = False) -> list[int]:
        """Restore the first slot for the next generation of one prompt. Return the tokens that it holds. adapter: key
        of that generation's, "" for the base; None if it is not known yet. is_replaced: whether that generation writes
        the file. Raise UsageError, with nothing changed, for a file that is damaged, of another bundle or of another
        adapter, or with notes that would be lost."""
        file = self.read(path)
        if is_replaced and (lost := _notes(file)):
            raise UsageError(
                f"{path}: received a session with the notes {', '.join(lost)}, as a chat writes them, expected one of "
                "a single prompt: the generation would replace the file",
                hint=f"{_ANOTHER}, or go on with `speccompile chat`",
            )
        self._loop.resume, self.notes = self.restore(path, 0, adapter, file=file)
        return self._loop.resume.tokens

    def start(self, path: Path) -> "SessionStart":
        """Return the beginning of a file, which may be damaged behind it. Raise UsageError for one of another
        bundle."""
        file = read_start(path, 8 * self._manifest.max_length)
        self._check_key(file, path)
        tokens, own = np.array(self._tokens(file, path), np.int64), file.metadata.get(DRAFTER) == self.key.drafter
        written = self._written(file, len(tokens), path)
        return SessionStart(tokens, own, _notes(file), file.metadata.get(ADAPTER, ""), written)

    def read(self, path: Path, *, trusted: bool = False) -> SessionFile:
        """Return the content of a file, from any thread. trusted: as for `read_session`. Raise as it does."""
        states = self._loop.states
        size = sum(states.line(buffer, 0).nbytes for buffer in states.shapes) + 8 * self._manifest.max_length
        return read_session(path, size, trusted=trusted)

    def restore(
        self, path: Path, slot: int, adapter: str | None = "", *, file: SessionFile | None = None
    ) -> tuple[SlotContent, dict[str, str]]:
        """Write the states of a file into a free slot. Return what the slot holds then, and the file's notes. adapter:
        as for `load`; file: its content, if it was read. Raise as `load` does."""
        file, states = file or self.read(path), self._loop.states
        self._check_key(file, path)
        theirs = file.metadata.get(ADAPTER, "")
        if adapter not in (None, theirs):
            raise UsageError(
                f"{path}: received a session with the adapter {theirs or 'none'}, expected {adapter or 'none'}, as the "
                "generation has",
                hint=f"continue it with its adapter, or {_ANOTHER}",
            )
        tokens = self._tokens(file, path)
        length = self._drafter_length(file, len(tokens), path)
        end, written = self._written(file, len(tokens), path), {}
        for buffer in states.shapes:
            if self._is_target(buffer) or length:
                written[buffer] = self._checked(file, buffer, (len(tokens), length), path)
        self._loop.left = self._loop.resume = None  # should the engine fail
        for buffer, (part, values) in written.items():
            states.write(buffer, slot, part, values)
        held = LoadedAdapter("", 0, theirs) if theirs else None  # to compare with
        return SlotContent(tokens, length, len(tokens), length, slot, held, end), _notes(file)

    def _read_again(self, tokens: list[int], adapter: LoadedAdapter | None) -> SlotContent:
        """Read a text whose last round has moved recurrent states beyond it, and return the held content."""
        tokens = tokens[: self._manifest.max_length - 1]
        row = SequenceState(tokens, 1, self._manifest.max_length, (), None)
        row.adapter = adapter
        seconds, reused = dict(self._loop.seconds), self._loop.reused
        for _ in self._loop.generate([row], speculative=False):
            pass
        self._loop.seconds.update(seconds)  # the caller's generation is told after its session is saved
        self._loop.reused = reused
        assert self._loop.left is not None, "one sequence was read"
        return self._loop.left

    def _is_target(self, buffer: str) -> bool:
        return buffer.startswith(_TARGET)

    def _part(self, buffer: str, tokens: int, drafter_length: int) -> tuple[slice, ...]:
        """Return the part of a line that a session holds: the lines of read tokens, or all of a recurrent state."""
        shapes, count = self._loop.states.shapes, tokens if self._is_target(buffer) else drafter_length
        shape = shapes[buffer]
        if is_recurrent_state(buffer) or len(shape) not in (1, 3):
            return ()
        if len(shape) == 1:
            return (slice(count),)
        if is_own_cache(buffer) and ENDS in shapes:  # of a drafter with several tokens for one of the target
            count *= shape[1] // max(shapes[ENDS])
        return (slice(None), slice(count))

    def _check_key(self, file: SessionFile, path: Path) -> None:
        for name, ours in self.key.of_adapter(file.metadata.get(ADAPTER, "")).items():
            # sessions of versions without rings do not name them
            if (theirs := file.metadata.get(name, FULL if name == SLIDING else None)) != ours:
                raise UsageError(
                    f"{path}: received a session with {name} {_short(theirs)}, expected {_short(ours)}, as this bundle "
                    "has",
                    hint=f"continue it with the bundle that wrote it, or {_ANOTHER}",
                )

    def _tokens(self, file: SessionFile, path: Path) -> list[int]:
        dtype, values = file.tensors.get(TOKENS, ("", np.zeros(0)))
        size, most = self._manifest.vocabulary_size, self._manifest.max_length - 1
        if dtype != "I64" or values.ndim != 1 or not len(values) or values.min() < 0 or values.max() >= size:
            raise UsageError(f"{path}: expected token ids from 0 to {size - 1} in {TOKENS}", hint=_ANOTHER)
        if len(values) > most:
            raise UsageError(
                f"{path}: this session has {len(values)} tokens, expected at most {most}, the bundle's capacity less 1",
                hint="build the bundle with a larger cache.max_length",
            )
        found: list[int] = values.tolist()
        return found

    def _drafter_length(self, file: SessionFile, tokens: int, path: Path) -> int:
        """Return the number of tokens that the drafter has read; 0, with a note, in a session with another drafter."""
        if file.metadata.get(DRAFTER) != self.key.drafter:
            LOGGER.warning("note: %s was written with another drafter: this one reads its text again", path)
            return 0
        return self._number(file, DRAFTER_LENGTH, lambda number: number <= tokens, f"0 to {tokens}", path)

    def _written(self, file: SessionFile, tokens: int, path: Path) -> int:
        """Return the end of the positions whose rows a file's rings have; 0 without rings."""
        rings = self._loop.rings
        if not rings:
            return 0
        expected = f"a position from {tokens} on whose rows leave those that {tokens} tokens need"
        return self._number(file, WRITTEN, lambda number: rings.may_end(number, tokens), expected, path)

    def _number(self, file: SessionFile, name: str, is_one: Callable[[int], bool], expected: str, path: Path) -> int:
        """Return a number in the metadata of a file."""
        text = file.metadata.get(name, "")
        if not (text.isascii() and text.isdecimal() and len(text) < 12 and is_one(int(text))):
            raise UsageError(f"{path}: received {name} {text[:20]!r}, expected {expected}", hint=_ANOTHER)
        return int(text)

    def _checked(
        self, file: SessionFile, buffer: str, lengths: tuple[int, int], path: Path
    ) -> tuple[tuple[slice, ...], Array]:
        """Return the part of a buffer's line that a file has, and its values."""
        part, states = self._part(buffer, *lengths), self._loop.states
        expected = (states.dtypes[buffer], list(np.empty(states.shapes[buffer], np.bool_)[part].shape))
        dtype, values = file.tensors.get(buffer, ("nothing", np.zeros(0)))
        if (dtype, list(values.shape)) != expected:
            raise UsageError(
                f"{path}: received {dtype} {list(values.shape)} for {buffer}, expected {expected[0]} {expected[1]}, "
                "as this bundle's states are",
                hint=f"continue it with the bundle that wrote it, or {_ANOTHER}",
            )
        return part, values


def _notes(file: SessionFile) -> dict[str, str]:
    return {name[len(NOTE) :]: text for name, text in file.metadata.items() if name.startswith(NOTE)}


def _short(value: str | None) -> str:
    return "missing" if value is None else repr(value if len(value) <= 160 else f"{value[:160]}..")
