"""JSON files that hold an object, as configs do; and what stands in the place of any file that was not fetched."""

import json
from pathlib import Path
from typing import Any

from speccompile.errors import CheckpointError

CONFIG = "config.json"

COPY_AGAIN = "copy or download the file again"

_POINTER = b"version https://git-lfs"
"""How a file begins that stands for a large one in a Git repository."""


class RepeatedKeyError(ValueError):
    """A JSON object says the same key twice: readers differ in which of the two they take."""


def read_json_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file, or None when there is no such file. Raises CheckpointError for anything else."""
    if not is_present(path):
        return None
    try:
        data = json.loads(path.read_bytes())
    except ValueError as error:
        raise CheckpointError(
            f"{path}: received text that is not JSON, expected a JSON object: {error}", hint=COPY_AGAIN
        ) from None
    if not isinstance(data, dict):
        raise wrong(path, f"JSON of type {type(data).__name__}", "a JSON object")
    return data


def refuse_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads(object_pairs_hook=)`. Raises RepeatedKeyError, which is the key."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise RepeatedKeyError(key)
        found[key] = value
    return found


def is_present(path: Path) -> bool:
    """Whether a file is there. Raises CheckpointError for what only stands for it: a link that leads nowhere, as in
    the copy of a folder of the Hub's cache, and a pointer of Git LFS."""
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
    """The error for what stands in a file."""
    return CheckpointError(f"{path}: received {received}, expected {expected}", hint="check the checkpoint's files")
