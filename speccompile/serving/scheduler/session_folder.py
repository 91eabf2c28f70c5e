"""Folder of sessions: the texts of a service, kept in files, so that their prefixes serve it after a restart.

Files are those of `Bundle.save_session`, named by a hash of all that they depend on. Several processes may use one
folder: a file is whole or not there, the folder is looked through for each prompt, and whoever writes removes what
exceeds the limit. Writing is left to a thread of its own. No token depends on a file, so whatever is wrong with one
costs a line in the log.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import NamedTuple

import numpy as np

from speccompile.bundle.hashes import new_hasher
from speccompile.errors import UsageError
from speccompile.progress import LOGGER
from speccompile.runtime.devices.engine import Array
from speccompile.runtime.rounds.slots import SlotContent
from speccompile.runtime.session_file import SessionFile, write_session
from speccompile.runtime.sessions import TOKENS, Sessions
from speccompile.runtime.shipped_prefixes import SUFFIX, Serves, common_length, longest_match

DEFAULT_GB = 10.0
"""Default limit of a folder, in GB (1e9 bytes)."""
SHORTEST = 16
"""Minimum number of tokens of a text that is kept: fewer are read sooner than a file."""
NEW = 0.1
"""Minimum share of a text that is in no file: a growing conversation is written a few times in all."""
_NAME_LENGTH = 32
_SALT = "salt"
_PENDING = 4
"""Texts that may wait to be written, each in memory."""
_ABANDONED_SECONDS = 3600.0
"""Age of an unfinished file whose process has ended."""


@dataclass(frozen=True)
class SessionFolder:
    """Folder in which a service keeps its texts. limit_gb: size of all files together, in GB; those that were used
    least recently are removed. Raise UsageError for a folder that cannot be made or written to."""

    path: Path
    limit_gb: float = DEFAULT_GB

    def __post_init__(self) -> None:
        """Make the folder, for its owner alone, if it is not there."""
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"sessions {self.path}: the folder cannot be made: {error.strerror}", hint="give a folder"
            ) from error
        if not os.access(self.path, os.R_OK | os.W_OK | os.X_OK):
            raise UsageError(f"sessions {self.path}: the folder cannot be written to", hint="give another folder")
        if not self.limit_gb > 0:
            raise UsageError(f"sessions: received {self.limit_gb} GB, expected more than 0", hint="leave it out")


_Key = tuple[str, int, int]
"""Name, inode and size of a file: one that is being copied into the folder is looked at again when it is whole."""


class _Known(NamedTuple):
    """File that may be used. salt: hash of the salt that it is for, None for all. own: whether it has the states of
    this bundle's drafter. adapter: key of that with which it was read, "" for the base. written: see `Slot`."""

    tokens: Array
    salt: str | None
    own: bool
    adapter: str
    written: int


class KeptSessions:
    """Sessions of one bundle in a folder. Only the thread that owns the bundle calls it."""

    def __init__(self, folder: SessionFolder, sessions: Sessions, serves: Serves, *, has_source: bool) -> None:
        """serves: which parts of a text may be used. has_source: the target has an encoder, on whose source the caches
        of a text depend. Raise UsageError then."""
        if has_source:
            raise UsageError(
                f"sessions {folder.path}: received a bundle with an encoder, expected one without: the caches of a "
                "text depend on its source",
                hint="leave the folder out",
            )
        self._folder, self._sessions, self._serves = folder.path, sessions, serves
        self._limit = int(folder.limit_gb * 1e9)
        self._known: dict[_Key, _Known | None] = {}  # None for a file that is passed over
        self._pending: dict[str, _Known] = {}
        self._reader = futures.ThreadPoolExecutor(1, "speccompile-sessions-reader")
        self._ahead: tuple[_Key, futures.Future[SessionFile]] | None = None
        self._queue = Queue[tuple[str, SessionFile, list[str]] | None](_PENDING)
        self._writer = Thread(target=self._write_all, name="speccompile-sessions", daemon=True)
        self._writer.start()

    def restore(self, prompt: list[int], sharing: tuple[str, str], slot: int, held: int) -> SlotContent | None:
        """Restore the file with the longest prefix of a prompt into a free slot, if that pays. Return what the slot
        holds then; None, with the slot unchanged, if it was not restored. sharing: salt and adapter of the prompt;
        held: tokens of it that need no file."""
        (ahead, reading), self._ahead = self._ahead or (None, None), None
        self._look()
        while (best := self._longest(prompt, sharing, held)) is not None:
            path = self._folder / best[0]
            try:
                file = reading.result() if reading is not None and ahead == best else None
                content, _ = self._sessions.restore(path, slot, sharing[1], file=file)
            except UsageError as error:
                self._pass_over(best, error)
                continue
            with suppress(OSError):  # removed meanwhile, or not ours
                os.utime(path)
            return content
        return None

    def read_ahead(self, prompt: list[int], sharing: tuple[str, str], held: int) -> None:
        """Begin to read the file that `restore` would, on a thread of its own: other slots decode meanwhile."""
        self._look()
        best = self._longest(prompt, sharing, held)
        if best is not None:
            self._ahead = best, self._reader.submit(self._sessions.read, self._folder / best[0])

    def has_read(self, *, wait: bool) -> bool:
        """Return whether no file is being read. wait: until then."""
        if self._ahead is not None and wait:
            futures.wait([self._ahead[1]])
        return self._ahead is None or self._ahead[1].done()

    def _longest(self, prompt: list[int], sharing: tuple[str, str], held: int) -> _Key | None:
        """Return the file with the longest prefix of a prompt, None if no file pays. See `restore`."""
        salt, adapter = sharing
        known = {key: each for key, each in self._known.items() if each is not None}
        fitting = {key: each for key, each in known.items() if each.adapter == adapter}
        texts = {key: each.tokens for key, each in fitting.items() if each.salt in (None, _salt_hash(salt))}
        return longest_match(texts, prompt, held, partial(self._serves_of, fitting))

    def _serves_of(self, files: Mapping[_Key, _Known], key: _Key, part: int) -> bool:
        return self._serves(len(files[key].tokens), files[key].written, part)

    def keep(self, sharing: tuple[str, str], left: SlotContent | None) -> None:
        """Keep the text of a slot, unless most of it is in a file, or recurrent states are beyond it. sharing: as for
        `restore`."""
        salt, adapter = sharing
        if left is None or len(left.tokens) < SHORTEST or min(left.tokens) < 0:  # negative: of pictures
            return
        if not self._sessions.is_at_end(left):
            return
        tokens, salted = np.array(left.tokens, np.int64), _salt_hash(salt)
        self._look()
        files = {name: known for (name, *_), known in self._known.items() if known is not None} | self._pending
        alike = {
            name: known
            for name, known in files.items()
            if (known.own, known.salt, known.adapter) == (True, salted, adapter)
        }
        common = {name: common_length(known.tokens, tokens) for name, known in alike.items()}
        inside = [name for name, length in common.items() if length == len(alike[name].tokens)]
        if self._sessions.serves_whole:
            inside, common = [], {name: common[name] for name in inside}  # a longer text serves no shorter one
        held = max(common.values(), default=0)
        if len(tokens) - held < NEW * len(tokens):
            return
        name = self._name(tokens, salted, adapter)
        if self._queue.full():  # only this thread puts something into it
            LOGGER.warning("note: %s: texts end faster than they can be written: one was not kept", self._folder)
            return
        file = self._sessions.content(self._folder / name, {_SALT: salted}, left)
        self._pending[name] = _Known(tokens, salted, True, adapter, left.written)
        self._queue.put((name, file, [each for each in inside if _is_ours(each)]))

    def close(self) -> None:
        """Wait until all texts are written."""
        self._reader.shutdown()
        if self._writer.is_alive():
            self._queue.put(None)
            self._writer.join()

    def _look(self) -> None:
        """Read the beginnings of files that are new, and forget those that have gone."""
        found = set[_Key]()
        try:
            with os.scandir(self._folder) as entries:
                for entry in filter(lambda each: _is_session(each.name), entries):
                    with suppress(FileNotFoundError):  # removed meanwhile
                        found.add((entry.name, entry.stat().st_ino, entry.stat().st_size))
        except OSError as error:
            found.clear()
            LOGGER.warning("note: %s: the folder of sessions cannot be read: %s", self._folder, error.strerror)
        for key in sorted(self._known.keys() - found):
            del self._known[key]
        for key in sorted(found - self._known.keys()):
            try:
                start = self._sessions.start(self._folder / key[0])
                salt = start.notes.get(_SALT)
                self._known[key] = _Known(start.tokens, salt, start.same_drafter, start.adapter, start.written)
            except UsageError as error:
                self._pass_over(key, error)

    def _pass_over(self, key: _Key, error: UsageError) -> None:
        LOGGER.warning("note: passed over %s", str(error).splitlines()[0])
        self._known[key] = None

    def _name(self, tokens: Array, salted: str, adapter: str) -> str:
        key = self._sessions.key
        hasher = new_hasher()
        hasher.update(json.dumps([key.of_adapter(adapter), key.drafter, salted], sort_keys=True).encode())
        hasher.update(tokens.astype("<i8").tobytes())
        return hasher.hexdigest()[:_NAME_LENGTH] + SUFFIX

    def _write_all(self) -> None:
        """Write the texts that wait, until `close`."""
        while (waiting := self._queue.get()) is not None:
            name, file, replaced = waiting
            try:
                self._write(name, file, replaced)
            except (UsageError, OSError) as error:
                LOGGER.warning("note: a session was not kept: %s", str(error).splitlines()[0])
            self._pending.pop(name, None)

    def _write(self, name: str, file: SessionFile, replaced: list[str]) -> None:
        size = sum(values.nbytes for _, values in file.tensors.values())
        if size > self._limit:
            count = len(file.tensors[TOKENS][1])
            LOGGER.warning("note: a session of %d tokens was not kept: %d bytes exceed the limit", count, size)
            return
        write_session(self._folder / name, file)
        for each in replaced:
            (self._folder / each).unlink(missing_ok=True)
        self._trim()

    def _trim(self) -> None:
        """Remove the files that were used least recently, until the rest fits, and what killed processes have left."""
        total = 0
        for path, found in sorted(self._files(), key=lambda each: each[1].st_mtime_ns, reverse=True):
            abandoned = path.name.startswith(".") and time.time() - found.st_mtime > _ABANDONED_SECONDS
            total += found.st_size
            if abandoned or (total > self._limit and _is_ours(path.name)):
                path.unlink(missing_ok=True)
                total -= found.st_size

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Yield the files that services wrote, and those that they are writing."""
        for path in self._folder.iterdir():
            if _is_ours(path.name) or (path.name.startswith(".") and _is_ours(path.name[1:].rpartition(".")[0])):
                with suppress(OSError):  # removed meanwhile
                    yield path, path.stat()


def _salt_hash(salt: str) -> str:
    """Return the hash that stands for a salt in files, which shows nothing of it."""
    hasher = new_hasher()
    hasher.update(salt.encode())
    return hasher.hexdigest()


def _is_session(name: str) -> bool:
    return name.endswith(SUFFIX) and not name.startswith(".")


def _is_ours(name: str) -> bool:
    """Return whether a service has named the file. Others are used, and never removed."""
    stem = name.removesuffix(SUFFIX)
    return _is_session(name) and len(stem) == _NAME_LENGTH and set(stem) <= set("0123456789abcdef")
