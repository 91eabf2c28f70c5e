"""Read the header of a GGUF file: metadata and tensor table. The file is untrusted.

    "GGUF", u32 version, u64 tensors, u64 keys
    keys        string name, u32 type, value        string: u64 bytes, UTF-8; array: u32 type, u64 count, values
    tensors     string name, u32 axes, u64 sizes (the fastest first), u32 type, u64 offset from the data's start
    data        begins at a multiple of general.alignment (32), as each tensor does

All numbers are little endian. Nothing is read, and no memory taken, before its length has been compared with the bytes
that are left.
"""

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from speccompile.compiler.checkpoints.gguf.block_types import BLOCK_TYPES, OTHERS
from speccompile.compiler.checkpoints.json_files import is_present
from speccompile.errors import CheckpointError
from speccompile.machine.formats.safetensors import corrupt

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = "general.alignment"
DEFAULT_ALIGNMENT = 32
LARGEST_ALIGNMENT = 1 << 20
LONGEST_HEADER = 1 << 27
"""Maximum bytes of metadata and tensor table: vocabularies take some ten million, an original tokenizer.json 40."""
LONGEST_TEXT, LONGEST_NAME = 1 << 26, 256
MOST_KEYS = MOST_TENSORS = 1 << 16
MOST_VALUES = 1 << 22
"""Maximum number of values in all lists: vocabularies have 300,000 tokens, as many scores and types, and twice as many
merges.

Without these bounds the bytes of weights, claimed as a list of numbers, would take ten times their size of memory.
"""
MOST_AXES = 4
SMALLEST_KEY, SMALLEST_TENSOR = 13, 32
"""Minimum bytes of an entry: with a name of no bytes, and a value of one byte or one axis."""

_STRING, _ARRAY = 8, 9
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Number of a value's type -> its letter in `struct`."""


class GgufTensor(NamedTuple):
    """A tensor of a file. type: a key of `block_types.BY_NAME`; shape: the slowest axis first, as torch has it; offset:
    of its first byte in the file; size in bytes."""

    type: str
    shape: tuple[int, ...]
    offset: int
    size: int


@dataclass(frozen=True)
class GgufFile:
    """Header of a file. metadata: key -> number, bool, text, or a list of one of these."""

    path: Path
    metadata: dict[str, Any]
    tensors: dict[str, GgufTensor]


def read_gguf(path: Path) -> GgufFile:
    """Return the header of a file. Raise CheckpointError, naming the problem and its place, for a file that is
    truncated or corrupt, of an unknown version, big endian, or with tensors of an unsupported type."""
    is_present(path)
    with path.open("rb") as file:
        return _Header(path, file).read()


class _Header:
    """A header while it is read, in the order of its bytes."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file = path, file
        self._size = path.stat().st_size
        self._end = min(self._size, LONGEST_HEADER)
        self._position = 0
        self._values_left = MOST_VALUES

    def read(self) -> GgufFile:
        tensors, keys = self._beginning()
        metadata = self._metadata(keys)
        entries = self._table(tensors)
        return GgufFile(self._path, metadata, self._located(entries, self._alignment(metadata)))

    def _beginning(self) -> tuple[int, int]:
        """Return the numbers of tensors and of keys."""
        magic = self._bytes(4, "its magic")
        if magic != MAGIC:
            raise corrupt(self._path, f"{magic!r} as its first bytes", f"{MAGIC!r}, with which a GGUF file begins")
        version = self._number("I", "its version")
        if version not in VERSIONS and int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
            raise CheckpointError(
                f"{self._path}: received a big-endian GGUF file, expected little-endian numbers",
                hint="convert the model again on, or for, a little-endian machine",
            )
        if version not in VERSIONS:
            raise CheckpointError(
                f"{self._path}: received GGUF version {version}, expected {VERSIONS[0]} or {VERSIONS[1]}",
                hint="convert the model again with a current llama.cpp",
            )
        tensors, keys = self._number("Q", "the number of tensors"), self._number("Q", "the number of keys")
        self._check_count(tensors, SMALLEST_TENSOR, "tensors", MOST_TENSORS)
        self._check_count(keys, SMALLEST_KEY, "keys", MOST_KEYS)
        return tensors, keys

    def _metadata(self, count: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for index in range(count):
            key = self._name(f"the name of key {index}")
            if key in found:
                raise corrupt(self._path, f"the key '{key}' twice", "each key once")
            found[key] = self._value(self._number("I", f"the type of '{key}'"), f"'{key}'")
        return found

    def _table(self, count: int) -> dict[str, tuple[int, tuple[int, ...], int]]:
        """Return name -> (type's number, shape, offset from the data's start)."""
        found: dict[str, tuple[int, tuple[int, ...], int]] = {}
        for index in range(count):
            name = self._name(f"the name of tensor {index}")
            if name in found:
                raise corrupt(self._path, f"the tensor '{name}' twice", "each tensor once")
            axes = self._number("I", f"the axes of '{name}'")
            if not 1 <= axes <= MOST_AXES:
                raise corrupt(self._path, f"{axes} axes of tensor '{name}'", f"1 to {MOST_AXES}")
            sizes = tuple(self._number("Q", f"the sizes of '{name}'") for _ in range(axes))
            kind = self._number("I", f"the type of tensor '{name}'")
            found[name] = kind, sizes[::-1], self._number("Q", f"the offset of tensor '{name}'")
        return found

    def _located(self, entries: dict[str, tuple[int, tuple[int, ...], int]], alignment: int) -> dict[str, GgufTensor]:
        """Return the tensors in the order of their data. Raise CheckpointError for two that overlap."""
        start = -(-self._position // alignment) * alignment
        found = {name: self._tensor(name, *entry, start, alignment) for name, entry in entries.items()}
        end, before = start, ""
        for name, tensor in sorted(found.items(), key=lambda item: (item[1].offset, item[1].size)):
            if tensor.offset < end:
                expected = f"byte {end} or later, where '{before}' ends"
                raise corrupt(self._path, f"tensor '{name}' at byte {tensor.offset}", expected)
            end, before = tensor.offset + tensor.size, name
        return found

    def _tensor(
        self, name: str, kind: int, shape: tuple[int, ...], offset: int, start: int, alignment: int
    ) -> GgufTensor:
        known = BLOCK_TYPES.get(kind)
        if known is None:
            received = f"of type {OTHERS[kind]}" if kind in OTHERS else f"of the unknown type {kind}"
            names = ", ".join(each.name for each in BLOCK_TYPES.values())
            raise CheckpointError(
                f"{self._path}: received tensor '{name}' {received}, expected one of {names}",
                hint="use a file of another quantization, such as Q4_K_M or Q8_0",
            )
        numbers = prod(shape)
        if numbers == 0 or shape[-1] % known.numbers:
            expected = f"rows of a multiple of {known.numbers} numbers" if numbers else "no axis of size 0"
            raise corrupt(self._path, f"tensor '{name}' of shape {list(shape)} in {known.name}", expected)
        size = numbers // known.numbers * known.size
        if offset % alignment:
            raise corrupt(self._path, f"tensor '{name}' at offset {offset}", f"a multiple of {alignment}")
        if start + offset + size > self._size:
            received = f"{self._size} bytes, but tensor '{name}' ends at byte {start + offset + size}"
            raise corrupt(self._path, received, "all of it in the file")
        return GgufTensor(known.name, shape, start + offset, size)

    def _alignment(self, metadata: dict[str, Any]) -> int:
        found = metadata.get(ALIGNMENT, DEFAULT_ALIGNMENT)
        if type(found) is not int or not 8 <= found <= LARGEST_ALIGNMENT or found & (found - 1):
            raise corrupt(self._path, f"{ALIGNMENT}: {found!r}", f"a power of 2 from 8 to {LARGEST_ALIGNMENT}")
        return found

    def _value(self, kind: int, what: str) -> Any:
        if kind == _STRING:
            return self._text(what)
        if kind == _ARRAY:
            return self._array(what)
        if kind not in _NUMBERS:
            raise corrupt(self._path, f"{what} of type {kind}", "one of the format's types, 0 to 12")
        return self._number(_NUMBERS[kind], what)

    def _array(self, what: str) -> list[Any]:
        kind, count = self._number("I", f"the type of {what}"), self._number("Q", f"the length of {what}")
        if kind == _STRING:
            self._take_values(count, 8, f"texts of {what}")
            return [self._text(f"text {index} of {what}") for index in range(count)]
        if kind not in _NUMBERS:
            raise corrupt(self._path, f"{what}, a list of type {kind}", "a list of numbers or texts")
        letter = _NUMBERS[kind]
        self._take_values(count, struct.calcsize(f"<{letter}"), f"numbers of {what}")
        return list(struct.unpack(f"<{count}{letter}", self._bytes(count * struct.calcsize(f"<{letter}"), what)))

    def _name(self, what: str) -> str:
        """Return the name of a key or tensor, fit for messages."""
        found = self._text(what)
        if len(found) > LONGEST_NAME or not found.isprintable():
            raise corrupt(self._path, f"{what} as {found[:40]!r}", f"at most {LONGEST_NAME} printable characters")
        return found

    def _text(self, what: str) -> str:
        count = self._number("Q", f"the length of {what}")
        if LONGEST_TEXT < count <= self._end - self._position:
            raise corrupt(self._path, f"{what} of {count} bytes", f"at most {LONGEST_TEXT}")
        data = self._bytes(count, what)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            raise corrupt(self._path, f"{what} as {data[:40]!r}", "UTF-8") from None

    def _number(self, letter: str, what: str) -> Any:
        return struct.unpack(f"<{letter}", self._bytes(struct.calcsize(f"<{letter}"), what))[0]

    def _take_values(self, count: int, least: int, what: str) -> None:
        """Check the length of a list, of those that are left for all lists."""
        self._check_count(count, least, what, self._values_left)
        self._values_left -= count

    def _check_count(self, count: int, least: int, what: str, most: int) -> None:
        """Raise CheckpointError if so many entries of at least `least` bytes cannot be in what is left, or are more
        than `most`."""
        if count * least > self._end - self._position:
            received = f"{count} {what} in {self._end - self._position} bytes"
            raise corrupt(self._path, received, f"at least {least} bytes for each")
        if count > most:
            raise corrupt(self._path, f"{count} {what}", f"at most {most}")

    def _bytes(self, count: int, what: str) -> bytes:
        """Read the next bytes, checked against the file's size."""
        if count > self._end - self._position:
            where = f"{what}: {count} bytes at byte {self._position} of {self._size}"
            if self._end < self._size:
                raise corrupt(self._path, where, f"a header of at most {LONGEST_HEADER} bytes")
            raise corrupt(self._path, where, "all of them in the file")
        data = self._file.read(count)
        if len(data) < count:
            raise corrupt(self._path, f"{len(data)} bytes for {what}", f"{count}: the file has become shorter")
        self._position += count
        return data
