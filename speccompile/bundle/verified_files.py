"""Files of bundles whose content was compared with its hash on this machine: they are not read again to open them.

Hashing a bundle of 0.8 GB takes about as long as generating its first token. A record in the cache folder holds the
state of each compared file: device, inode, size, mtime and ctime. No program can set the ctime, so an edited, replaced
or copied file is compared again.
"""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speccompile.bundle.file_hashes import MIN_STAMP_AGE
from speccompile.bundle.hashes import Hashes
from speccompile.bundle.result_cache import ResultCache
from speccompile.machine.plain_files import path_text

NAME = "verified"
"""Name of the cache."""

State = list[int]
"""Device, inode, size in bytes, mtime and ctime in nanoseconds since 1970."""


@dataclass(frozen=True)
class VerifiedFiles:
    """States of a bundle's files, and which files an earlier comparison covers.

    begun: time of reading the states, in seconds since 1970; unchanged: files whose state is that of the record.
    """

    key: dict[str, Any]
    begun: float
    states: dict[str, State]
    unchanged: frozenset[str]

    @classmethod
    def of(cls, folder: Path, hashes: Hashes) -> "VerifiedFiles":
        """Return the states of the files that `hashes` lists; they must be there."""
        key = {"folder": path_text(folder.resolve()), "digest": hashes.digest}
        found = ResultCache.named(NAME).read(key) or {}
        recorded, begun, states = found.get("files"), time.time(), _states(folder, hashes.files)
        known = recorded if isinstance(recorded, dict) else {}
        return cls(key, begun, states, frozenset(name for name, state in states.items() if known.get(name) == state))

    def store(self, folder: Path) -> None:
        """Record that all files were compared, except files that changed during the comparison or shortly before it:
        within one tick of the filesystem's clock a file can change again unseen."""
        if len(self.unchanged) == len(self.states):
            return
        oldest, now = (self.begun - MIN_STAMP_AGE) * 1e9, _states(folder, self.states)
        files = {name: state for name, state in self.states.items() if now[name] == state and max(state[3:]) < oldest}
        if len(files) > len(self.unchanged):
            ResultCache.named(NAME).store(self.key, {"files": files})


def _states(folder: Path, names: Iterable[str]) -> dict[str, State]:
    return {name: _state((folder / name).stat()) for name in names}


def _state(found: os.stat_result) -> State:
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
