"""Cache of data folders: each is written atomically, once per key of its inputs."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from speccompile.bundle.folders import lock_folder, replace_folder, sync
from speccompile.bundle.hashes import new_hasher
from speccompile.errors import BuildError
from speccompile.machine.resource_errors import is_disk_full
from speccompile.progress import LOGGER
from speccompile.recipe.resources import gigabytes

ABOUT = "about.json"
_DIGITS = 16


def key_for(parts: Any) -> str:
    """Return the hexadecimal digest of JSON values."""
    return new_hasher().update(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:_DIGITS]


def cached_folder(folder: Path, kind: str, key: str, write: Callable[[Path], dict[str, Any]]) -> Path:
    """Return the folder `<kind>-<key>` in `folder`; write it unless it exists.

    write: fills a new folder and returns its description, see `about`. Concurrent processes wait for one writer. Older
    folders of the kind are removed. Raise BuildError if the disk is full.
    """
    output = folder / f"{kind}-{key}"
    part = folder / f".{output.name}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = lock_folder(folder, wait=True)
        try:
            if (output / ABOUT).is_file():
                LOGGER.info("%s: kept from before: %s", kind, output)
            else:
                _write(part, output, write)
                remove_stale(folder, kind, output)
        finally:
            shutil.rmtree(part, ignore_errors=True)
            if handle is not None:
                os.close(handle)
    except OSError as error:
        if not is_disk_full(error):
            raise
        free = shutil.disk_usage(folder).free
        raise BuildError(
            f"{folder}: the disk is full: {gigabytes(free)} are free",
            hint="free some disk space, or give another --work",
        ) from error
    return output


def about(folder: Path) -> dict[str, Any]:
    """Return the description of a folder that its writer returned."""
    return json.loads((folder / ABOUT).read_bytes())


def remove_stale(folder: Path, kind: str, output: Path) -> None:
    """Remove folders of other keys, and leftovers of killed processes."""
    ours = re.compile(rf"{kind}-[0-9a-f]{{{_DIGITS}}}|\.{kind}-[0-9a-f]{{{_DIGITS}}}\.part")
    for other in folder.iterdir():
        if other != output and ours.fullmatch(other.name):
            shutil.rmtree(other, ignore_errors=True)


def _write(part: Path, output: Path, write: Callable[[Path], dict[str, Any]]) -> None:
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    said = write(part)
    (part / ABOUT).write_text(json.dumps(said, indent=1), encoding="utf-8")
    sync(*part.iterdir(), part)
    replace_folder(part, output)
    sync(output.parent)
