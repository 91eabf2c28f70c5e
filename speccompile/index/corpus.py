"""Read the texts of a corpus in pieces, from any position on.

A line of a .jsonl file is a document; any other file is one document. Long files are split at line ends.
"""

import codecs
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from speccompile.bundle.hashes import hash_file, new_hasher
from speccompile.errors import BuildError
from speccompile.progress import LOGGER

JSON_LINES = (".jsonl", ".ndjson")
PIECE = 1 << 20
"""Maximum bytes of a piece of a text file."""

_HEAD = 1 << 13
"""Leading bytes of a file that decide whether it is text."""

_BOM = "\ufeff"


@dataclass(frozen=True)
class ReadPosition:
    """Read position: index of the file, and the bytes and lines of it that have been read."""

    file: int = 0
    offset: int = 0
    line: int = 0


START = ReadPosition()


@dataclass(frozen=True)
class Piece:
    """Document or part of one. ends: whether it is the last part; next_position: start of the next piece."""

    text: str
    ends: bool
    next_position: ReadPosition


@dataclass(frozen=True)
class Corpus:
    """Corpus of files, in reading order. field: key of the document in JSON objects."""

    files: tuple[Path, ...]
    field: str

    @property
    def size(self) -> int:
        """Return the size in bytes."""
        return sum(file.stat().st_size for file in self.files)

    def content(self) -> str:
        """Return a hash of the files' contents, in order."""
        hasher = new_hasher()
        for file in self.files:
            hasher.update(f"{file.suffix} {hash_file(file)}\n".encode())
        return hasher.hexdigest()

    def stamps(self) -> list[tuple[int, int]]:
        """Return the size and the modification time in ns of every file."""
        return [(stat.st_size, stat.st_mtime_ns) for stat in map(Path.stat, self.files)]

    def pieces(self, place: ReadPosition) -> Iterator[Piece]:
        """Yield the pieces from `place` on. Raise BuildError, naming file and line, for an invalid text."""
        for number in range(place.file, len(self.files)):
            path, start = self.files[number], place if number == place.file else ReadPosition(number)
            read = self._lines if path.suffix.lower() in JSON_LINES else self._parts
            try:
                with path.open("rb") as file:
                    file.seek(start.offset)
                    yield from read(file, path, start)
            except OSError as error:
                raise _unreadable(path, error) from error

    def _lines(self, file: BinaryIO, path: Path, start: ReadPosition) -> Iterator[Piece]:
        offset, number = start.offset, start.line
        for line in file:
            offset, number = offset + len(line), number + 1
            if line.strip():
                yield Piece(_document(line, self.field, path, number), True, ReadPosition(start.file, offset, number))
        yield Piece("", False, ReadPosition(start.file + 1))

    def _parts(self, file: BinaryIO, path: Path, start: ReadPosition) -> Iterator[Piece]:
        offset, line, size = start.offset, start.line, path.stat().st_size
        while offset < size:
            block = file.read(PIECE)
            if offset + len(block) < size:
                block = block[: _cut(block)]
                file.seek(offset + len(block))
            text = _decoded(block, path, line + 1)
            ends = offset + len(block) >= size
            offset, line = offset + len(block), line + block.count(b"\n")
            after = ReadPosition(start.file + 1) if ends else ReadPosition(start.file, offset, line)
            yield Piece(text.removeprefix(_BOM) if offset == len(block) else text, ends, after)


def find_corpus(texts: list[Path], field: str) -> Corpus:
    """Return the corpus of files and folders, without duplicates. Folders contribute all text files that are not
    hidden, by name; a warning reports other files.

    Raise BuildError for a missing path, an unreadable file, and a folder without texts.
    """
    files: dict[Path, None] = {}
    for path in texts:
        if path.is_dir():
            found = _texts_below(path)
            if not found:
                raise BuildError(f"{path}: received a folder without texts, expected some in it", hint=_GIVE)
            files |= dict.fromkeys(found)
        elif path.exists():
            files[path.resolve()] = None
        else:
            raise BuildError(f"received '{path}', expected a file or folder: nothing lies there", hint=_GIVE)
    for file in files:
        if not os.access(file, os.R_OK):
            raise _unreadable(file, PermissionError(13, "Permission denied"))
    return Corpus(tuple(files), field)


_GIVE = "give .jsonl files, text files, or folders of them"


def _texts_below(folder: Path) -> list[Path]:
    files = {file: _is_text(file) for file in sorted(_below(folder))}
    binary = [file for file, is_text in files.items() if not is_text]
    if binary:
        LOGGER.warning("note: %d files below %s are no text and left out: %s, ..", len(binary), folder, binary[0])
    return [file for file, is_text in files.items() if is_text]


def _is_text(file: Path) -> bool:
    """Return whether the beginning of a file is UTF-8 without null bytes."""
    try:
        with file.open("rb") as opened:
            head = opened.read(_HEAD)
    except OSError as error:
        raise _unreadable(file, error) from error
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # the incremental decoder accepts a cut character
    except UnicodeDecodeError:
        return False
    return b"\0" not in head


def _below(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent, name).resolve() for name in names if not name.startswith("."))


def _cut(block: bytes) -> int:
    """Return the end of the last complete line of a block, or else the start of its last character."""
    end = block.rfind(b"\n") + 1
    if end:
        return end
    return next((place for place in range(len(block) - 1, -1, -1) if block[place] & 0xC0 != 0x80), 0) or len(block)


def _decoded(block: bytes, path: Path, line: int) -> str:
    try:
        return block.decode()
    except UnicodeDecodeError as error:
        line += block.count(b"\n", 0, error.start)
        raise BuildError(
            f"{path}, line {line}: byte 0x{block[error.start]:02x} is no UTF-8, expected text",
            hint="leave the file out, or save it as UTF-8",
        ) from None


def _document(line: bytes, field: str, path: Path, number: int) -> str:
    where = f"{path}, line {number}"
    try:
        data = json.loads(_decoded(line, path, number).removeprefix(_BOM))
    except (ValueError, RecursionError) as error:
        raise BuildError(f"{where}: expected a JSON object: {error}", hint="write one object a line") from None
    if not isinstance(data, dict) or field not in data:
        received = (
            f"an object with {', '.join(map(repr, data)) or 'no field'}" if isinstance(data, dict) else "no object"
        )
        raise BuildError(
            f"{where}: received {received}, expected one with the field {field!r}", hint="give another --field"
        )
    text = data[field]
    if not isinstance(text, str):
        raise BuildError(
            f"{where}: received {type(text).__name__} in the field {field!r}, expected text",
            hint="give another --field",
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BuildError(
            f"{where}: character {error.start} of {field!r} is {text[error.start]!r}, expected text",
            hint="remove half surrogates from the document",
        ) from None
    return text


def _unreadable(path: Path, error: OSError) -> BuildError:
    return BuildError(f"{path}: cannot be read: {error.strerror}", hint="check that the file may be read")
