"""Rows of data files in order, each with its place for errors.

JSON lines are read here, not by `datasets`, which infers the keys of all rows from the first ones and does not report a
row's place.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from speccompile.compiler.step.monkeypatch import patched_attribute
from speccompile.errors import RecipeError
from speccompile.index.corpus import START, Corpus
from speccompile.progress import LOGGER
from speccompile.recipe.hub import failure_to_answer
from speccompile.recipe.training_files import JSON, JSON_LINES, PARQUET, Files, library

KEY_BYTES = 8

Key = int
"""Key of a document: unsigned 64-bit blake2b of its content. Equal documents have equal keys on every machine."""


@dataclass(frozen=True)
class Row:
    """Row of a file. where: file and line, for messages. value: a table's row. text: a text file or a piece of one.
    key: key of the whole file. begins: whether it is the first piece. folder: from which its relative paths start."""

    where: str
    value: Any = None
    text: str | None = None
    key: Key = 0
    begins: bool = True
    folder: Path = Path()


def read_rows(files: Files) -> Iterator[Row]:
    """Yield the rows of all files. Raise RecipeError, naming file and line, for an invalid row or text."""
    if files.hub is not None:
        yield from _hub(files.hub)
    for path in files.paths:
        suffix = path.suffix.lower()
        if suffix in JSON_LINES:
            yield from _json_lines(path)
        elif suffix == JSON:
            yield from _json(path)
        elif suffix == PARQUET:
            yield from _parquet(path)
        else:
            yield from _text(path)


def key_of(content: Any) -> Key:
    """Return the key of a text or of JSON values."""
    data = content if isinstance(content, str) else json.dumps(content, sort_keys=True, default=str)
    return int.from_bytes(hashlib.blake2b(data.encode(), digest_size=KEY_BYTES).digest())


def wrong(where: str, received: str, expected: str, hint: str) -> RecipeError:
    return RecipeError(f"{where}: received {received}, expected {expected}", hint=hint)


def shortened(value: object, most: int = 80) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= most else f"{text[:most]}..."


def _json_lines(path: Path) -> Iterator[Row]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            if line.strip():
                where = f"{path}, line {number}"
                yield Row(where, _parsed(line, where, "write one object a line"), folder=path.parent)


def _json(path: Path) -> Iterator[Row]:
    """Yield the rows of a .json file: a list of rows, a single row, or JSON lines."""
    with path.open("rb") as file:
        first = next((line for line in file if line.strip()), b"").removeprefix(b"\xef\xbb\xbf")
    if first.lstrip().startswith(b"{") and first.rstrip().endswith(b"}"):
        yield from _json_lines(path)
        return
    values = _parsed(path.read_bytes().removeprefix(b"\xef\xbb\xbf"), str(path), "write a list of objects")
    for number, value in enumerate(values if isinstance(values, list) else [values], 1):
        yield Row(f"{path}, row {number}", value, folder=path.parent)


def _parsed(data: bytes, where: str, hint: str) -> Any:
    try:
        return json.loads(data)
    except UnicodeDecodeError as error:
        raise wrong(where, f"byte 0x{data[error.start]:02x}, which is no UTF-8", "text", "save it as UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise RecipeError(f"{where}: expected JSON: {error}", hint=hint) from None


def _parquet(path: Path) -> Iterator[Row]:
    arrow = library("pyarrow")
    try:
        file, number = library("pyarrow.parquet").ParquetFile(path), 0
        for batch in file.iter_batches(batch_size=256):
            for value in batch.to_pylist():
                number += 1
                yield Row(f"{path}, row {number}", value, folder=path.parent)
    except (arrow.ArrowException, OSError, ValueError) as error:  # also for corrupt pages
        raise RecipeError(
            f"{path}: expected a table in Parquet: {str(error).partition(chr(10))[0]}", hint="write the file again"
        ) from None


def _text(path: Path) -> Iterator[Row]:
    """Yield a text file in pieces that end with a line; a small file is a single piece."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=KEY_BYTES)).digest()
    line, key = 0, int.from_bytes(digest)
    for piece in Corpus((path,), "").pieces(START):
        yield Row(f"{path}, from line {line + 1}", text=piece.text, key=key, begins=line == 0)
        line += piece.text.count("\n")


def _hub(name: str) -> Iterator[Row]:
    for number, value in enumerate(_load(name), 1):
        yield Row(f"{name}, row {number}", value)


def hub_stamp(name: str) -> list[str]:
    """Return the names of a Hub data set's cache files, which identify its revision."""
    return [str(file["filename"]) for file in _load(name).cache_files]


def _load(name: str) -> Any:
    """Load the split `train`, memory-mapped by `datasets`; from its cache if the Hub does not answer."""
    datasets = library("datasets")
    repository, _, revision = name.partition("@")
    datasets.disable_progress_bars()
    failure = failure_to_answer("dataset", repository, revision or None)
    try:
        with patched_attribute(
            datasets.config, "HF_HUB_OFFLINE", failure is not None or datasets.config.HF_HUB_OFFLINE
        ):
            found = datasets.load_dataset(repository, revision=revision or None, split="train")
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise RecipeError(
            f"train.data.files: received {name!r}: no such file, and as a data set of the Hub it cannot be loaded: "
            f"{str(failure or error).partition(chr(10))[0]}",
            hint="check the path or the name, and the network; files of your own need none",
        ) from error
    if failure is not None:
        LOGGER.warning("%s: taken from the local cache: %s", name, str(failure).partition("\n")[0])
    return found
