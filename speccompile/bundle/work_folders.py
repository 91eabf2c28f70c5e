"""Resumable work folders: one process at a time, and only with an unchanged key."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from speccompile.bundle.folders import lock_folder, write_atomically
from speccompile.bundle.manifest import canonical_json
from speccompile.errors import UsageError


@contextmanager
def locked_for(
    folder: Path,
    name: str,
    key: Mapping[str, Any],
    *,
    work: str,
    option: str,
    command: str,
    begun: Callable[[], bool] = lambda: True,
) -> Iterator[None]:
    """Lock a folder, created if absent, for the work that `key` identifies, a mapping of JSON values.

    name: file in the folder that stores the key. work: name of the work in messages, as "a comparison"; option: the
    command-line option that names the folder; command: the command that does the work. begun: returns whether work with
    the folder's old key has left results; without results a new key replaces the old one.

    Raise UsageError for a folder that holds other files, or work with another key (naming the differences), or that
    another process uses.
    """
    _make(folder, option)
    lock = lock_folder(folder)
    if lock is None:
        raise UsageError(
            f"{option}: received '{folder}', expected a folder that no other process fills",
            hint="wait for the other run, or give another folder",
        )
    try:
        before = _read_key(folder / name, work, option, command)
        different = [] if before is None else differing_keys(key, before)
        if different and begun():
            raise UsageError(
                f"{option}: received '{folder}', which holds {work} with other {', '.join(different)}, expected the "
                "same to go on with",
                hint="give another folder, or remove this one to begin anew",
            )
        if before is None or different:
            write_record(folder / name, key)
        yield
    finally:
        os.close(lock)


def differing_keys(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """Return the names of values that differ between two keys, in nested mappings too."""
    names = []
    for name, value in json.loads(canonical_json(now)).items():
        other = before.get(name)
        if isinstance(value, dict) and isinstance(other, dict):
            inner = {**dict.fromkeys(other), **value}
            names += [f"{name}.{each}" for each in differing_keys(inner, other)]
        elif value != other:
            names.append(name)
    return names


def write_record(file: Path, data: Mapping[str, Any]) -> None:
    """Write a record atomically, in a folder that is created if absent."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, canonical_json(data))


def read_record(file: Path, command: str) -> dict[str, Any]:
    """Read what `write_record` wrote. command: the one that wrote it. Raise UsageError for a file that cannot be
    read."""
    try:
        data = json.loads(file.read_bytes())
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise UsageError(
            f"{file}: received a file that is no JSON object, expected one that `{command}` wrote",
            hint="remove it, and it is made again",
        )
    return data


def _make(folder: Path, option: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{option}: received '{folder}', expected a folder that can be written: {error.strerror}",
            hint="give another folder",
        ) from error


def _read_key(file: Path, work: str, option: str, command: str) -> dict[str, Any] | None:
    """Return the key of a folder, or None if it has none yet. Raise UsageError for a folder with other files and no
    key."""
    if file.is_file():
        return read_record(file, command)
    left = f".{file.name}."  # left by a process that was killed while it wrote the key
    if any(not path.name.startswith(left) for path in file.parent.iterdir()):
        raise UsageError(
            f"{option}: received '{file.parent}', which holds other things, expected a new folder, or one of {work} "
            "that was stopped",
            hint="give another folder",
        )
    return None
