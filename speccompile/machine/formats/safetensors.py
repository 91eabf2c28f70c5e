"""A safetensors file: where its tensors lie, and their numbers.

Format: 8 bytes of header length, little endian; a JSON header {name: {dtype, shape, data_offsets}}; then the data,
without holes.
"""

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.errors import CheckpointError
from speccompile.machine.formats.json_files import COPY_AGAIN, RepeatedKeyError, is_present, refuse_duplicate_keys

LENGTH_BYTES = 8
LONGEST_HEADER = 100_000_000
"""The limit that the safetensors library sets, in bytes."""

BITS = (
    dict.fromkeys(("F4",), 4)
    | dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6)
    | dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8)
    | dict.fromkeys(("U16", "I16", "F16", "BF16"), 16)
    | dict.fromkeys(("U32", "I32", "F32"), 32)
    | dict.fromkeys(("U64", "I64", "F64", "C64"), 64)
)

FLOAT_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
"""Dtype in safetensors -> precision."""


@dataclass(frozen=True)
class StoredTensor:
    """Location of a tensor: a file of its folder, its first byte there, and its bytes. dtype: one of BITS, or a type of
    GGUF's blocks."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int


def read_tensors(path: Path) -> dict[str, StoredTensor]:
    """Return tensor name -> its location in a safetensors file, in the order of the data. Raise CheckpointError if
    header and file length disagree."""
    entries, data_bytes = _read_entries(path)
    spans = sorted((*_span(path, name, entry), name) for name, entry in entries.items())
    end, start_of_data = 0, path.stat().st_size - data_bytes
    for start, stop, name in spans:
        if start != end:
            raise corrupt(path, f"tensor '{name}' at offset {start}", f"offset {end}, where the one before it ends")
        end = stop
    if end != data_bytes:
        raise corrupt(path, f"{data_bytes} bytes of tensor data", f"{end} bytes, as its header says")
    return {
        name: StoredTensor(
            path.name, entries[name]["dtype"], tuple(entries[name]["shape"]), start_of_data + start, stop - start
        )
        for start, stop, name in spans
    }


def read_floats(path: Path, tensor: StoredTensor) -> NDArray[np.float32]:
    """Return all numbers of a tensor of one of FLOAT_DTYPES, float32."""
    kind = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}[tensor.dtype]
    with path.open("rb") as file:
        file.seek(tensor.offset)
        stored = np.frombuffer(file.read(tensor.size), kind).reshape(tensor.shape)
    if tensor.dtype == "BF16":
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float32)


def _read_entries(path: Path) -> tuple[dict[str, Any], int]:
    """Return the header without its metadata, and the number of bytes after it."""
    is_present(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(LENGTH_BYTES), "little")
        if size < LENGTH_BYTES or length > min(size - LENGTH_BYTES, LONGEST_HEADER):
            raise corrupt(path, f"a file of {size} bytes with a header of {length}", "the whole header in the file")
        text = file.read(length)
    try:
        header = json.loads(text, object_pairs_hook=refuse_duplicate_keys)
    except RepeatedKeyError as error:
        raise corrupt(path, f"'{error}' twice in its header", "each name once") from None
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise corrupt(path, "a header that is not JSON", "a JSON object")
    header.pop("__metadata__", None)
    return header, size - LENGTH_BYTES - length


def _span(path: Path, name: str, entry: Any) -> tuple[int, int]:
    """Return first and last byte of a tensor's data, if its dtype, shape and offsets agree."""
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(stop)]} if dtype in BITS and all(
            type(size) is int and size >= 0 for size in (*shape, start, stop)
        ):
            expected = prod(shape) * BITS[dtype] // 8
        case _:
            raise corrupt(path, f"tensor '{name}' as {str(entry)[:120]}", "a known dtype, a shape and two offsets")
    if stop - start != expected:
        raise corrupt(path, f"tensor '{name}' in {stop - start} bytes", f"{expected} for {dtype} {shape}")
    return start, stop


def corrupt(path: Path, received: str, expected: str) -> CheckpointError:
    """Return the error for a file that breaks its format."""
    return CheckpointError(f"{path}: truncated or corrupt: received {received}, expected {expected}", hint=COPY_AGAIN)
