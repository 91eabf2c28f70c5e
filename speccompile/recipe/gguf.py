"""A model in GGUF files as a folder in Hugging Face layout, in the user's cache: everything else reads such folders.

The folder holds config.json, the tokenizer's files, an index of the tensors, and links to the GGUF files, whose weights
are read from there. Its name is the digest of the files' paths, sizes and times and of the converter's version: changed
files have another folder.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speccompile import __version__
from speccompile.bundle.cache import FOLDER, Cache, Entry, cache_folder
from speccompile.bundle.manifest import canonical_json
from speccompile.compiler.checkpoints.change_guard import FileStamp
from speccompile.compiler.checkpoints.gguf.conversion import GGUF_INDEX, convert
from speccompile.compiler.checkpoints.gguf.given_tokenizer import given_tokenizer_files
from speccompile.compiler.checkpoints.gguf.splits import find_gguf
from speccompile.drafters.folder import has_weights
from speccompile.errors import CheckpointError
from speccompile.machine.plain_files import path_text
from speccompile.recipe.load import FILE_NAME

CACHE = "gguf"
FORMAT = 3
"""Version of the files in such folders."""

_NAME = re.compile(r"[0-9a-f]{64}")
"""Names of the folders. Others are left alone."""


@dataclass(frozen=True)
class DescriptionCache(Cache):
    """Cache of such folders. Limits have no effect: an entry takes what its tokenizer takes, some megabytes."""

    def entries(self) -> list[Entry]:
        """Return all entries, the last made first."""
        found = []
        for path in self._folders(_NAME):
            with suppress(OSError):  # removed meanwhile
                size = sum(file.lstat().st_size for file in path.iterdir())
                links = sorted(str(file.readlink()) for file in path.iterdir() if file.is_symlink())
                found.append(Entry(path.name, size, path.stat().st_mtime, {"files": links}))
        return sorted(found, key=lambda entry: entry.last_used, reverse=True)

    def clear(self) -> list[Entry]:
        """Remove all entries, and folders of killed processes. Return the removed entries."""
        removed = self.entries()
        for path in [*self._folders(_NAME), *self.folder.glob(".*.part")]:
            shutil.rmtree(path, ignore_errors=True)
        return removed


def find_gguf_files(path: Path) -> tuple[Path, ...]:
    """Return the GGUF files of the model that a path names: a file, or a folder that holds one model and no other
    weights. Empty for other paths. Raise CheckpointError for several models, and for a part that is missing."""
    if path.is_dir() and (has_weights(path) or (path / FILE_NAME).is_file()):
        return ()
    return find_gguf(path.absolute())  # not resolved: links of the Hub's cache lead to files without these names


def gguf_folder(path: Path, tokenizer: Path | None = None) -> Path | None:
    """Return the folder that describes the model at a path, None if no GGUF model lies there. It is made once.
    tokenizer: folder of the tokenizer to take instead of the file's own.

    Raise CheckpointError and UnsupportedModelError as `convert` does, and CheckpointError if it cannot be written.
    """
    files = find_gguf_files(path)
    if not files:
        return None
    folder = cache_folder(CACHE) / hashlib.sha256(canonical_json(_key(files, tokenizer))).hexdigest()
    if not (folder / GGUF_INDEX).is_file():
        try:
            write_description(folder, files, convert(files, tokenizer), GGUF_INDEX)
        except OSError as error:
            raise CheckpointError(
                f"{folder.parent}: cannot be written: {error.strerror}, expected a place for the config and the "
                f"tokenizer of {files[0].name}",
                hint=f"set {FOLDER} to a folder that may be written",
            ) from error
    return folder


def _key(files: tuple[Path, ...], tokenizer: Path | None) -> dict[str, Any]:
    others = () if tokenizer is None else given_tokenizer_files(tokenizer.resolve())
    stamps = [[path_text(file), *vars(FileStamp.of(file)).values()] for file in (*files, *others)]
    return {"files": stamps, "format": FORMAT, "speccompile": __version__}


def write_description(folder: Path, files: Iterable[Path], content: Mapping[str, Any], last: str) -> None:
    """Write a folder with links to files and with files of its own, under another name first, so that it is there whole
    or not at all. last: the file whose presence shows that another process was faster. Raise OSError."""
    part = folder.with_name(f".{folder.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    part.mkdir(parents=True)
    try:
        for name, value in content.items():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
            (part / name).write_text(text, encoding="utf-8")
        for file in files:
            (part / file.name).symlink_to(file)
        try:
            part.rename(folder)
        except OSError:
            if not (folder / last).is_file():  # else another process was faster
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
