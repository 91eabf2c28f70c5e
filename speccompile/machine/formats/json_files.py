"""JSON files that hold an object, such as configs, and placeholders of files that were not fetched."""

import json
from pathlib import Path
from typing import Any

from speccompile.errors import CheckpointError
from speccompile.machine.plain_files import read_plain

COPY_AGAIN = "copy or download the file again"

_POINTER = b"version https://git-lfs"
"""First bytes of a Git LFS pointer, which replaces a large file in a Git repository."""


class RepeatedKeyError(ValueError):
    """A JSON object has a key twice: parsers differ in which value they use."""


def read_json_object(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None if there is no such file. Raise CheckpointError for anything else."""
    if not is_present(path):
        return None
    try:
        data = json.loads(read_plain(path))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path}: received text that is not JSON, expected a JSON object: {error}", hint=COPY_AGAIN
        ) from None
    if not isinstance(data, dict):
        raise wrong(path, f"JSON of type {type(data).__name__}", "a JSON object")
    return data


def refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build an object for `json.loads(object_pairs_hook=)`. Raise RepeatedKeyError with the repeated key."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise RepeatedKeyError(key)
        found[key] = value
    return found


def is_present(path: Path) -> bool:
    """Return whether a file exists. Raise CheckpointError for a placeholder: a dangling link, as in a copy of a folder
    of the Hub's cache, or a pointer of Git LFS."""
    if path.is_symlink() and not path.exists():
        raise CheckpointError(
            f"{path}: received a link to {path.readlink()}, where nothing is, expected a file",
            hint="copy what links lead to as well (cp -L), or download the file again",
        )
    if not path.is_file():
        return False
    with path.open("rb") as file:
        beginning = file.read(len(_POINTER))
    if beginning == _POINTER:
        raise CheckpointError(
            f"{path}: received a pointer of Git LFS ({path.stat().st_size} bytes), expected the file that it stands "
            "for",
            hint=f"run `git lfs pull` in {path.parent}",
        )
    return True


def wrong(path: Path, received: str, expected: str) -> CheckpointError:
    """Return the error for the content of a file."""
    return CheckpointError(f"{path}: received {received}, expected {expected}", hint="check the checkpoint's files")
