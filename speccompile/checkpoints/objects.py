"""JSON files that hold an object, as configs do."""

import json
from pathlib import Path
from typing import Any

from speccompile.errors import CheckpointError

CONFIG = "config.json"


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file, or None when there is no such file. Raises CheckpointError for anything else."""
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_bytes())
    except ValueError as error:
        raise CheckpointError(
            f"{path}: received text that is not JSON, expected a JSON object: {error}",
            hint="copy or download the file again",
        ) from None
    if not isinstance(data, dict):
        raise wrong(path, f"JSON of type {type(data).__name__}", "a JSON object")
    return data


def wrong(path: Path, received: str, expected: str) -> CheckpointError:
    """The error for what stands in a file."""
    return CheckpointError(f"{path}: received {received}, expected {expected}", hint="check the checkpoint's files")
