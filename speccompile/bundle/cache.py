"""Caches on disk: entries that took long to compute, removed when they exceed a size limit.

An entry is a folder named by the digest of its key, with some files, entry.json and the hashes.json of all. It is
written under another name, synced and renamed: a killed process leaves a folder that the next process removes. A
process locks an entry's folder to read or write it, and the cache's folder to add or remove entries.
"""

import contextlib
import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

from speccompile.bundle.folders import lock_folder, sync
from speccompile.bundle.hashes import check_files, hash_folder, read_hashes, read_json, write_hashes
from speccompile.bundle.manifest import canonical_json
from speccompile.errors import BundleError
from speccompile.machine.environment import read_number_variable
from speccompile.progress import LOGGER

FOLDER = "SPECCOMPILE_CACHE_DIR"
LIMIT = "SPECCOMPILE_CACHE_LIMIT_GB"
DEFAULT_LIMIT = 20
"""Gigabytes."""

_NOWHERE = Path(os.devnull)
"""A file, so no folder can be made in it."""

BUILDS, BUNDLES = "builds", "bundles"
"""Names of the caches of build steps (see `speccompile.compiler.build.cached_steps`) and of the bundles of models that
were run without a recipe."""

ENTRY = "entry.json"
PART = ".part"
_NAME = re.compile(r"[0-9a-f]{64}|\.[0-9a-f]{64}\.\d+-[0-9a-f]{8}\.part")
"""Names of the cache's own folders. Other files and folders are left alone: the user chooses the cache's folder."""


@dataclass(frozen=True)
class Entry:
    """Entry of a cache. digest: of the key; size in bytes; last_used: seconds since 1970; key: None when unreadable."""

    digest: str
    size: int
    last_used: float
    key: dict[str, Any] | None


def user_folder(name: str) -> Path:
    """Return speccompile/<name> in the user's cache folder. For a user without one, such as in a container,
    warn once and return a path at which no folder can be made."""
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not caches.is_absolute():  # the specification says to ignore it then
        caches = _home_cache()
    return caches / "speccompile" / name


def _home_cache() -> Path:
    try:
        return Path.home() / ".cache"
    except RuntimeError:  # no HOME, and the user's number has no entry among the users
        _tell_without_home()
        return _NOWHERE


@cache
def _tell_without_home() -> None:
    LOGGER.warning("note: this user has no home folder: nothing is cached\nhint: set %s to a folder", FOLDER)


def cache_folder(name: str) -> Path:
    """Return $SPECCOMPILE_CACHE_DIR/<name>, or speccompile/<name> in the user's cache folder."""
    folder = os.environ.get(FOLDER)
    return Path(folder) / name if folder else user_folder(name)


def default_limit() -> float:
    """Return $SPECCOMPILE_CACHE_LIMIT_GB in bytes, 20 GB by default, and 0 for a user without a home folder.
    Raise UsageError when the variable is no number."""
    limit = read_number_variable(LIMIT, DEFAULT_LIMIT, allow_zero=True) * 1e9
    return limit if os.environ.get(FOLDER) or not user_folder("").is_relative_to(_NOWHERE) else 0.0


@dataclass(frozen=True)
class Cache:
    """Cache in `folder`; a `limit` of 0 bytes switches it off."""

    folder: Path
    limit: float

    @classmethod
    def named(cls, name: str) -> Self:
        """Return the user's cache of this name. Raise UsageError as `default_limit` does."""
        return cls(cache_folder(name), default_limit())

    def _folders(self, names: re.Pattern[str]) -> list[Path]:
        """Return the folders of these names."""
        paths = self.folder.iterdir() if self.folder.exists() else ()
        return [path for path in paths if names.fullmatch(path.name) and path.is_dir()]


@dataclass(frozen=True)
class FolderCache(Cache):
    """Cache of folders, with at most `limit` bytes of entries.

    Methods raise OSError when the folder cannot be used.
    """

    def entries(self) -> list[Entry]:
        """Return all entries, the last used first."""
        found = [_read_entry(path) for path in self._folders(_NAME) if path.suffix != PART]
        return sorted((entry for entry in found if entry), key=lambda entry: entry.last_used, reverse=True)

    def clear(self) -> list[Entry]:
        """Remove all entries that no process is using. Return the removed entries."""
        if not self.folder.exists():
            return []
        with self._exclusive_lock():
            self._remove_parts()
            return [entry for entry in self.entries() if self._remove(self.folder / entry.digest)]

    @contextlib.contextmanager
    def open_entry(
        self, digest: str, what: str, *, verify: bool = True
    ) -> Iterator[tuple[Path, dict[str, Any]] | None]:
        """Yield the folder of an entry and its entry.json, locked until the end, or None.

        A damaged entry is removed, with a warning that calls it `what`. verify: compare its files with their hashes.
        """
        entry, damage = self.folder / digest, None
        with _pinned(entry) as is_there:
            if is_there and self.limit:
                try:
                    check_files(entry, read_hashes(entry, verify=verify), verify=verify)
                    content: dict[str, Any] = read_json(entry / ENTRY)
                except BundleError as error:
                    damage = error
                else:
                    with contextlib.suppress(OSError):  # a read-only cache works as well
                        os.utime(entry)
                    yield entry, content
                    return
        if damage is not None:
            LOGGER.warning("note: a damaged %s is thrown out of the cache: %s", what, damage)
            with self._exclusive_lock():
                self._remove(entry)
        yield None

    @contextlib.contextmanager
    def add_entry(self, digest: str, content: dict[str, Any]) -> Iterator[Path]:
        """Yield a folder for the files of a new entry. At the end the entry is added, with `content` as its entry.json.

        The least recently used entries above the limit are then removed. When the caller fails, nothing is added.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._writing(digest) as part:
            yield part
            (part / ENTRY).write_bytes(canonical_json(content))
            write_hashes(part, hash_folder(part))
            sync(*part.iterdir(), part)
            with self._exclusive_lock():
                entry = self.folder / digest
                if not entry.exists():
                    part.rename(entry)
                    sync(self.folder)
                self._evict()

    def _evict(self) -> None:
        entries = self.entries()
        size = sum(entry.size for entry in entries)
        for entry in reversed(entries):
            if size > self.limit and self._remove(self.folder / entry.digest):
                size -= entry.size

    def _remove(self, entry: Path) -> bool:
        """Remove an entry unless a process uses it. Rename it first: a killed process then leaves no incomplete
        entry."""
        if (lock := _lock(entry)) is None:
            return False
        aside = self._temporary_path(entry.name)
        entry.rename(aside)
        shutil.rmtree(aside)
        os.close(lock)
        return True

    def _remove_parts(self) -> None:
        """Remove the temporary folders of killed processes."""
        for left in self._folders(_NAME):
            if left.suffix == PART and (unused := _lock(left)) is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(unused)

    def _temporary_path(self, digest: str) -> Path:
        return self.folder / f".{digest}.{os.getpid()}-{secrets.token_hex(4)}{PART}"

    @contextlib.contextmanager
    def _exclusive_lock(self) -> Iterator[None]:
        """Hold the lock for adding and removing entries."""
        lock = lock_folder(self.folder, wait=True)
        if lock is None:
            raise OSError(errno.ENOLCK, "the filesystem has no locks", str(self.folder))
        try:
            yield
        finally:
            os.close(lock)

    @contextlib.contextmanager
    def _writing(self, digest: str) -> Iterator[Path]:
        """Yield a locked folder for a new entry. It is removed unless it was renamed, and so are those of killed
        processes."""
        part = self._temporary_path(digest)
        with self._exclusive_lock():
            self._remove_parts()
            part.mkdir()
            lock = _lock(part)
            assert lock is not None, "the cache's folder could be locked, and no other process knows this one"
        try:
            yield part
        finally:
            shutil.rmtree(part, ignore_errors=True)
            os.close(lock)


@contextlib.contextmanager
def _pinned(entry: Path) -> Iterator[bool]:
    """Yield whether the entry exists, and keep it until the end."""
    lock = _lock(entry, shared=True)
    if lock is None:
        yield False
        return
    try:
        # Between opening and locking, another process may have removed it.
        yield entry.exists() and entry.stat().st_ino == os.fstat(lock).st_ino
    finally:
        os.close(lock)


def _lock(folder: Path, *, shared: bool = False) -> int | None:
    """Lock a folder like `lock_folder`; return None also for a folder that another process has just removed."""
    try:
        return lock_folder(folder, shared=shared)
    except FileNotFoundError:
        return None


def _read_entry(path: Path) -> Entry | None:
    """Return an entry, or None if it is removed meanwhile."""
    try:
        stats = [file.stat() for file in path.rglob("*")]
        used, key = path.stat().st_mtime, read_json(path / ENTRY)["key"]
    except FileNotFoundError:
        return None
    except BundleError:
        used, key = path.stat().st_mtime, None
    # A file that several entries share counts in each with its share of the size.
    return Entry(path.name, sum(stat.st_size // stat.st_nlink for stat in stats), used, key)
