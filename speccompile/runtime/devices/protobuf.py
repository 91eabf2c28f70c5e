"""Wire format of ONNX files, protobuf: https://protobuf.dev/programming-guides/encoding. No package is needed.

A message is a sequence of fields. Each has a tag (its number and wire type) and a value: an integer of seven bits a
byte, four or eight bytes, or a length and that many bytes, which may be a message again.
"""

from collections.abc import Iterator
from typing import NamedTuple

_INTEGER, _BYTES = 0, 2
_SIZES = {1: 8, 5: 4}
"""Wire type -> bytes of a fixed-size number."""


class Field(NamedTuple):
    """One field of a message. integer: its value if it has the integer wire type, else 0; value: the bytes of other
    values; whole: all bytes of the field in the message."""

    number: int
    integer: int
    value: bytes
    whole: bytes


def read_fields(message: bytes) -> Iterator[Field]:
    """Yield the fields in order. Raise ValueError for an unknown wire type."""
    at = 0
    while at < len(message):
        start = at
        tag, at = read_integer(message, at)
        integer = size = 0
        kind = tag & 7
        if kind == _INTEGER:
            integer, at = read_integer(message, at)
        elif kind == _BYTES:
            size, at = read_integer(message, at)
        elif kind in _SIZES:
            size = _SIZES[kind]
        else:
            raise ValueError(f"no ONNX model: a field is written in the way {kind}, which protobuf does not have")
        yield Field(tag >> 3, integer, message[at : at + size], message[start : at + size])
        at += size


def read_integer(message: bytes, at: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, the lowest first, and the position after it."""
    number = shift = 0
    while True:
        byte = message[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def integer_field(number: int, value: int) -> bytes:
    """Return a field that holds an integer of zero or more."""
    return _integer(number << 3 | _INTEGER) + _integer(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """Return a field that holds bytes, a text or a message."""
    return bytes_header(number, len(value)) + value


def bytes_header(number: int, size: int) -> bytes:
    """Return what stands before the bytes of a field that holds `size` of them."""
    return _integer(number << 3 | _BYTES) + _integer(size)


def _integer(number: int) -> bytes:
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])
