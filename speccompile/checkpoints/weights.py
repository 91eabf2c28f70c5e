"""The safetensors files of a checkpoint folder: which they are, and whether they are whole. Reads headers only.

Format: 8 bytes of header length, little endian; a JSON header {name: {dtype, shape, data_offsets}}; then the data,
without holes.
"""

import json
from math import prod
from pathlib import Path
from typing import Any

from speccompile.errors import CheckpointError

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

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

COPY_AGAIN = "copy or download the file again"


def weight_files(folder: Path) -> tuple[tuple[Path, ...], int]:
    """The weight files of a folder (an index first, relative to it) and their tensors' bytes together.

    Raises CheckpointError for weights that are missing, in a pickle format, truncated or corrupt.
    """
    if (folder / WEIGHTS).is_file():
        return (Path(WEIGHTS),), sum(read_header(folder / WEIGHTS).values())
    if (folder / INDEX).is_file():
        return _sharded(folder)
    pickles = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in folder.glob(pattern))
    received = f"only {', '.join(pickles)} (pickle files can run code and are never read)" if pickles else "neither"
    raise CheckpointError(
        f"{folder}: received {received}, expected {WEIGHTS} or {INDEX}",
        hint="where you trust them, convert them: load with transformers, then model.save_pretrained(FOLDER)",
    )


def read_header(path: Path) -> dict[str, int]:
    """Tensor name -> bytes, of a safetensors file whose header and length agree. Raises CheckpointError otherwise."""
    entries, data_bytes = _read_entries(path)
    spans = sorted((*_span(path, name, entry), name) for name, entry in entries.items())
    end = 0
    for start, stop, name in spans:
        if start != end:
            raise _corrupt(path, f"tensor '{name}' at offset {start}", f"offset {end}, where the one before it ends")
        end = stop
    if end != data_bytes:
        raise _corrupt(path, f"{data_bytes} bytes of tensor data", f"{end} bytes, as its header says")
    return {name: stop - start for start, stop, name in spans}


def tensor_entries(path: Path) -> dict[str, Any]:
    """Tensor name -> its entry {dtype, shape, data_offsets}, of a safetensors file."""
    return _read_entries(path)[0]


def _read_entries(path: Path) -> tuple[dict[str, Any], int]:
    """The header without its metadata, and how many bytes follow it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(LENGTH_BYTES), "little")
        if size < LENGTH_BYTES or length > min(size - LENGTH_BYTES, LONGEST_HEADER):
            raise _corrupt(path, f"a file of {size} bytes with a header of {length}", "the whole header in the file")
        text = file.read(length)
    try:
        header = json.loads(text)
    except ValueError:
        header = None
    if not isinstance(header, dict):
        raise _corrupt(path, "a header that is not JSON", "a JSON object")
    header.pop("__metadata__", None)
    return header, size - LENGTH_BYTES - length


def _span(path: Path, name: str, entry: Any) -> tuple[int, int]:
    """First and last byte of a tensor's data, when its dtype, shape and offsets agree."""
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(stop)]} if dtype in BITS and all(
            isinstance(size, int) and size >= 0 for size in shape
        ):
            expected = prod(shape) * BITS[dtype] // 8
        case _:
            raise _corrupt(path, f"tensor '{name}' as {str(entry)[:120]}", "a known dtype, a shape and two offsets")
    if stop - start != expected:
        raise _corrupt(path, f"tensor '{name}' in {stop - start} bytes", f"{expected} for {dtype} {shape}")
    return start, stop


def _sharded(folder: Path) -> tuple[tuple[Path, ...], int]:
    weight_map = _weight_map(folder / INDEX)
    shards = sorted(set(weight_map.values()))
    missing = [shard for shard in shards if not (folder / shard).is_file()]
    if missing:
        raise CheckpointError(
            f"{folder}: received {len(shards) - len(missing)} of {len(shards)} shards, expected all that {INDEX} "
            f"names: {missing[0]} is missing",
            hint="copy or download the missing shard",
        )
    headers = {shard: read_header(folder / shard) for shard in shards}
    for name, shard in weight_map.items():
        if name not in headers[shard]:
            raise _corrupt(folder / shard, f"no tensor '{name}'", f"it there, as {INDEX} says")
    return (Path(INDEX), *map(Path, shards)), sum(sum(header.values()) for header in headers.values())


def _weight_map(path: Path) -> dict[str, str]:
    """Tensor name -> shard, from an index file whose shards are plain file names."""
    try:
        weight_map = json.loads(path.read_bytes())["weight_map"]
        shards = set(weight_map.values())
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _corrupt(path, "no map of tensors to files", '{"weight_map": {tensor: file}}') from None
    for shard in shards:
        # A name with a folder in it would let an index reach files outside the checkpoint.
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise _corrupt(path, f"the shard {shard!r}", "a file name without folders")
    return dict(weight_map)


def _corrupt(path: Path, received: str, expected: str) -> CheckpointError:
    return CheckpointError(f"{path}: truncated or corrupt: received {received}, expected {expected}", hint=COPY_AGAIN)
