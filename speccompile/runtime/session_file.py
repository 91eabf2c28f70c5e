"""File of a session: the tokens that a batch slot has read, and the states that they left.

A file has the format of safetensors: 8 bytes with the header's length, little endian; a JSON header; then the numbers
of every tensor, one after the other, in the order of the header. Its `__metadata__` has the format, the session's key
and the BLAKE3 hash of the header without that hash and of all numbers. The header has one spelling, so that no byte of
a file can change undetected. Nothing in it is executed.
"""

import json
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from speccompile.bundle.folders import write_atomically
from speccompile.bundle.hashes import new_hasher
from speccompile.bundle.tensor_header import LENGTH_BYTES, LONGEST, METADATA, split_header, with_length
from speccompile.contract import DTYPES
from speccompile.errors import UsageError
from speccompile.machine.plain_files import open_plain, read_plain
from speccompile.runtime.devices.engine import Array, numpy_dtype

FORMAT = "speccompile.session.1"
"""Format and its version. A reader refuses other versions."""

PRIVATE = 0o600
"""Permissions of a file: it holds the user's text."""

LARGEST = 1 << 48
"""Bound of a dimension."""

HASH = "blake3"
"""Name of the hash in the metadata."""

_NUMPY = {dtype.safetensors: numpy_dtype(name) for name, dtype in DTYPES.items()}
_ANOTHER = "remove the file, or give another one: the text is read again, and a new file written"


@dataclass(frozen=True)
class SessionFile:
    """Content of a file. metadata: texts by name, without format and hash. tensors: name -> (dtype of safetensors,
    values); bfloat16 as uint16."""

    metadata: dict[str, str]
    tensors: dict[str, tuple[str, Array]]


def check_notes(notes: Mapping[str, str], path: Path) -> None:
    """Raise UsageError for a note that no file can hold: one that is no text, or has half a surrogate pair."""
    for name, text in notes.items():
        if not (_is_text(name) and _is_text(text)):
            raise UsageError(
                f"{path}: received the note {name!r} with {text!r:.80}, expected Unicode texts",
                hint="write a note as text, such as with json.dumps",
            )


def _is_text(note: object) -> bool:
    return isinstance(note, str) and note.encode("utf-8", "ignore").decode() == note


def write_session(path: Path, file: SessionFile) -> None:
    """Write a file, for its owner alone. Readers find the old file or the new one, complete; of several writers the
    last one wins. Raise UsageError, with the old file unchanged, if it cannot be written."""
    entries, start = dict[str, Any](), 0
    for name, (dtype, values) in file.tensors.items():
        entries[name] = _entry(dtype, values.shape, start)
        start += values.nbytes
    data = [np.ascontiguousarray(values).tobytes() for _, values in file.tensors.values()]
    content = _header(file.metadata | {"format": FORMAT}, entries, data) + b"".join(data)
    try:
        write_atomically(path, content, PRIVATE)
    except OSError as error:
        raise UsageError(
            f"{path}: the session cannot be written: {error.strerror}",
            hint="give a file in a folder that is there, that you may write to, and that has space",
        ) from error


def read_session(path: Path, most: int, *, trusted: bool = False) -> SessionFile:
    """Return the content of a file. most: largest number of bytes of its tensors together. trusted: map the file, and
    do not compare it with its hash, since it belongs to a bundle, which has hashes of its own. Raise UsageError for a
    file that cannot be read, is none of a session, of another version, or damaged."""
    try:
        content = _mapped(path) if trusted else read_plain(path, most + LONGEST + LENGTH_BYTES)
    except OSError as error:
        raise UsageError(f"{path}: the session cannot be read: {error.strerror}", hint=_ANOTHER) from error
    header, data = _split(content, path)
    metadata = _metadata(header, path)
    if (problem := _layout_problem(header, len(data))) is not None:
        raise UsageError(f"{path}: the session is truncated or damaged: {problem}", hint=_ANOTHER)
    metadata.pop(HASH, None)
    if not trusted and content[: len(content) - len(data)] != _header(metadata, header, [data]):
        raise UsageError(f"{path}: the session is damaged: it does not have the hash that it names", hint=_ANOTHER)
    del metadata["format"]
    return SessionFile(metadata, {name: (row["dtype"], _values(row, data)) for name, row in header.items()})


def read_start(path: Path, most: int) -> SessionFile:
    """Return the metadata and the first tensor of a file, neither of them compared with its hash: enough to decide
    whether to read the file. most: largest number of bytes of that tensor. Raise UsageError as `read_session` does."""
    try:
        with open_plain(path) as file:
            content = file.read(LENGTH_BYTES)
            content += file.read(min(int.from_bytes(content, "little"), LONGEST))
            header, _ = _split(content, path)
            metadata = _metadata(header, path)
            name, row = next(iter(header.items()), ("", None))
            size = row["data_offsets"][1] if isinstance(row, dict) and _is_placed(row, most) else 0
            data = file.read(size)
    except OSError as error:
        raise UsageError(f"{path}: the session cannot be read: {error.strerror}", hint=_ANOTHER) from error
    if (problem := _layout_problem({name: row}, len(data))) is not None:
        raise UsageError(f"{path}: the session is truncated or damaged: {problem}", hint=_ANOTHER)
    assert isinstance(row, dict), "its layout was checked"
    return SessionFile(metadata, {name: (row["dtype"], _values(row, memoryview(data)))})


def _metadata(header: dict[str, Any], path: Path) -> dict[str, str]:
    """Take the metadata out of a header. Raise UsageError for that of no session, or of another version."""
    metadata = header.pop(METADATA, None)
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise UsageError(f"{path}: not a session: its header has no texts in {METADATA}", hint=_ANOTHER)
    if metadata.get("format") != FORMAT:
        received = str(metadata.get("format"))[:80]
        raise UsageError(f"{path}: received format {received!r}, expected {FORMAT!r}", hint=_ANOTHER)
    return metadata


def _is_placed(row: Mapping[str, Any], most: int) -> bool:
    """Return whether an entry says that its numbers end within the first `most` bytes."""
    place = row.get("data_offsets")
    return isinstance(place, list) and len(place) == 2 and type(place[1]) is int and 0 <= place[1] <= most


def _mapped(path: Path) -> memoryview:
    """Return the bytes of a file, mapped read-only; empty for an empty file, which no system maps."""
    with open_plain(path) as file:
        if not os.fstat(file.fileno()).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _entry(dtype: str, shape: tuple[int, ...], start: int) -> dict[str, Any]:
    size = prod(shape) * _NUMPY[dtype].itemsize
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, start + size]}


def _header(metadata: Mapping[str, str], entries: Mapping[str, Any], data: list[Any]) -> bytes:
    """Return the length and the header of a file, with the hash in it."""
    plain = {METADATA: dict(sorted(metadata.items())), **entries}
    hasher = new_hasher()
    for part in (_spelled(plain), *data):
        hasher.update(part)
    plain[METADATA][HASH] = hasher.hexdigest()
    return with_length(_spelled(plain))


def _spelled(header: Mapping[str, Any]) -> bytes:
    """Return the one spelling of a header."""
    return json.dumps(header, ensure_ascii=False).encode()


def _split(content: bytes | memoryview, path: Path) -> tuple[dict[str, Any], memoryview]:
    """Return the header and the bytes after it."""
    try:
        return split_header(content, "a session")
    except ValueError as error:
        raise UsageError(f"{path}: {error}", hint=_ANOTHER) from None


def _layout_problem(entries: Mapping[str, Any], size: int) -> str | None:
    """Return the problem of a header's entries before `size` bytes of numbers, or None."""
    start = 0
    for name, row in entries.items():
        dtype, shape = (row.get("dtype"), row.get("shape")) if isinstance(row, dict) else (None, None)
        if not isinstance(dtype, str) or dtype not in _NUMPY or not isinstance(shape, list):
            return f"{name[:80]!r} has no dtype or shape"
        if not all(type(each) is int and 0 <= each < LARGEST for each in shape) or len(shape) > len(entries) + 8:
            return f"{name[:80]!r} has an impossible shape"
        if row != _entry(dtype, tuple(shape), start):
            return f"{name[:80]!r} is not where its shape says"
        start = row["data_offsets"][1]
    return None if start == size else f"received {size} bytes of numbers, expected {start}"


def _values(row: Mapping[str, Any], data: memoryview) -> Array:
    start, end = row["data_offsets"]
    return np.frombuffer(data[start:end], _NUMPY[row["dtype"]]).reshape(row["shape"])
