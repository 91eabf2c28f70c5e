"""Header of the files of tensors that bundles write, in the format of safetensors: 8 bytes with its length, little
endian; a JSON object, with blanks behind it; then the numbers."""

from typing import Any

from speccompile.bundle.hashes import unicode_json

METADATA = "__metadata__"
LENGTH_BYTES, ALIGNMENT, LONGEST = 8, 8, 1 << 20
"""Bytes of the header's length field, alignment of the header in bytes, and maximum bytes of a header that is read."""


def with_length(header: bytes) -> bytes:
    """Return the beginning of a file with this header."""
    header += b" " * (-len(header) % ALIGNMENT)
    return len(header).to_bytes(LENGTH_BYTES, "little") + header


def split_header(content: bytes | memoryview, what: str) -> tuple[dict[str, Any], memoryview]:
    """Return the header and the bytes after it. Raise ValueError, which says why, for what is no such file. what: what
    the file should be, such as a session."""
    length = int.from_bytes(content[:LENGTH_BYTES], "little")
    if len(content) < LENGTH_BYTES or not 0 < length <= min(LONGEST, len(content) - LENGTH_BYTES):
        raise ValueError(f"not {what}, or a truncated one: {len(content)} bytes")
    try:
        header = unicode_json(bytes(content[LENGTH_BYTES : LENGTH_BYTES + length]))
    except (ValueError, RecursionError):
        header = None
    if isinstance(header, dict):
        return header, memoryview(content)[LENGTH_BYTES + length :]
    raise ValueError(f"not {what}: its header is no JSON object")
