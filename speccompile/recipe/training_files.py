"""Find the data files that a recipe names. No torch: planning uses it as well."""

import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from speccompile.bundle.file_hashes import cached_file_hash
from speccompile.errors import RecipeError
from speccompile.extras import naming_extra
from speccompile.progress import LOGGER

JSON_LINES = (".jsonl", ".ndjson")
JSON, PARQUET = ".json", ".parquet"
TABLES = (*JSON_LINES, JSON, PARQUET)
"""Suffixes of files with a document per row; any other file is text."""

TEXTS = (".txt", ".md", ".rst", ".py")
"""Suffixes of text files that are read from a folder. A file named in the recipe may have any suffix."""

_HUB = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(?:@[\w./-]+)?")
_PATTERN = re.compile(r"[*?\[]")
_GIVE = "name files, folders of them or patterns such as texts/*.jsonl, or one data set of the Hub such as owner/name"


@dataclass(frozen=True)
class Files:
    """Data files of a training. paths: every file once, in the order of the recipe. hub: name of a Hub dataset that
    replaces them."""

    paths: tuple[Path, ...] = ()
    hub: str | None = None

    def stamp(self) -> list[str]:
        """Return suffix and content hash of every file, in order. `rows.hub_stamp` covers a Hub dataset."""
        return [f"{path.suffix} {cached_file_hash(path)}" for path in self.paths]


def find_files(written: Sequence[str], kind: str) -> Files:
    """Return the files of the names: a file, all data below a folder, a pattern; or a single Hub dataset, the only name
    that is not an absolute path.

    Raise RecipeError for a name that does not exist, cannot be read or has no data of this kind.
    """
    found: dict[Path, None] = {}
    for name in written:
        path = Path(name).expanduser()
        if len(written) == 1 and is_hub_name(name):
            return Files(hub=name)
        if path.is_dir():
            found |= dict.fromkeys(_below(path, kind))
        elif path.exists():
            found[path.resolve()] = None
        elif _PATTERN.search(name):
            found |= dict.fromkeys(_matching(str(path)))
        else:
            raise RecipeError(f"train.data.files: received {name!r}: nothing lies there", hint=_GIVE)
    for path in found:
        if not os.access(path, os.R_OK):
            raise RecipeError(f"{path}: cannot be read: Permission denied", hint="check that the file may be read")
    return Files(tuple(found))


def is_hub_name(name: str) -> bool:
    """Return whether a name can be that of a Hub dataset."""
    return _HUB.fullmatch(name) is not None and Path(name).suffix.lower() not in (*TABLES, *TEXTS)


def _below(folder: Path, kind: str) -> Iterator[Path]:
    known = TABLES + (TEXTS if kind == "text" else ())
    files = [file for file in sorted(folder.rglob("*")) if file.is_file() and not _hidden(file.relative_to(folder))]
    taken = [file.resolve() for file in files if file.suffix.lower() in known]
    if not taken:
        raise RecipeError(
            f"train.data.files: received the folder '{folder}', expected data in it: {', '.join(known)}", hint=_GIVE
        )
    if left := len(files) - len(taken):
        LOGGER.warning("note: %d files below %s are none of %s and left out", left, folder, ", ".join(known))
    yield from taken


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _matching(pattern: str) -> list[Path]:
    files = [Path(name).resolve() for name in _names(pattern) if Path(name).is_file()]
    if not files:
        raise RecipeError(f"train.data.files: received the pattern {pattern!r}, which no file has", hint=_GIVE)
    return files


def _names(pattern: str) -> list[str]:
    # pathlib's glob needs an existing folder and a relative pattern
    return sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207


def library(name: str) -> Any:
    """Import a package of the extra `[train]`. Raise MissingPackageError if it is not installed."""
    with naming_extra("training"):
        return import_module(name)
