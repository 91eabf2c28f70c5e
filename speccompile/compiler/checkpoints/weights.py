"""The safetensors files of a checkpoint folder: their names and tensors, and a check that they are complete. Reads
headers only.

Format: 8 bytes of header length, little endian; a JSON header {name: {dtype, shape, data_offsets}}; then the data,
without holes. An index, {"weight_map": {tensor: file}}, lists the files. As in transformers, every tensor of those
files is part of the checkpoint, and the `total_size` of an index is ignored: the headers decide.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from speccompile.compiler.checkpoints.gguf.conversion import GGUF_INDEX
from speccompile.compiler.checkpoints.gguf.conversion import read_index as read_index_of_gguf
from speccompile.compiler.checkpoints.json_files import COPY_AGAIN, RepeatedKeyError, is_present, refuse_duplicate_keys
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


def files_of(stored: Mapping[str, StoredTensor]) -> tuple[Path, ...]:
    """Return the files of tensors from `stored_tensors`, an index first; relative to the folder."""
    files = sorted({tensor.file for tensor in stored.values()})
    if files and files[0].endswith(".gguf"):
        return tuple(map(Path, [GGUF_INDEX, *files]))
    return tuple(map(Path, files if files == [WEIGHTS] else [INDEX, *files]))


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Return tensor name -> its location in the weight files of a folder.

    Raise CheckpointError for weights that are missing, in a pickle format, truncated or corrupt, for two tensors of one
    name, and for an index that names a tensor in the wrong file.
    """
    described = read_index_of_gguf(folder)
    if described is not None:
        return {
            name: StoredTensor(each.file, each.type, each.shape, each.offset, each.size)
            for name, each in described[1].items()
        }
    if is_present(folder / WEIGHTS):
        return read_tensors(folder / WEIGHTS)
    if not is_present(folder / INDEX):
        raise _without_weights(folder)
    index, found = read_index(folder / INDEX), dict[str, StoredTensor]()
    for shard in sorted(set(index.values())):
        tensors = read_tensors(folder / shard)
        for name in tensors.keys() & found.keys():
            raise CheckpointError(
                f"{folder}: received tensor '{name}' in {found[name].file} and in {shard}, expected it once",
                hint="keep the files of one version of the weights",
            )
        found |= tensors
    for name, shard in index.items():
        if name not in found or found[name].file != shard:
            raise _corrupt(folder / shard, f"no tensor '{name}'", f"it there, as {INDEX} says")
    return found


def read_tensors(path: Path) -> dict[str, StoredTensor]:
    """Return tensor name -> its location in a safetensors file, in the order of the data. Raise CheckpointError if
    header and file length disagree."""
    entries, data_bytes = _read_entries(path)
    spans = sorted((*_span(path, name, entry), name) for name, entry in entries.items())
    end, start_of_data = 0, path.stat().st_size - data_bytes
    for start, stop, name in spans:
        if start != end:
            raise _corrupt(path, f"tensor '{name}' at offset {start}", f"offset {end}, where the one before it ends")
        end = stop
    if end != data_bytes:
        raise _corrupt(path, f"{data_bytes} bytes of tensor data", f"{end} bytes, as its header says")
    return {
        name: StoredTensor(
            path.name, entries[name]["dtype"], tuple(entries[name]["shape"]), start_of_data + start, stop - start
        )
        for start, stop, name in spans
    }


def read_index(path: Path) -> dict[str, str]:
    """Return tensor name -> shard, from an index file. Raise CheckpointError for a file that is no index, and for
    shards that are not plain file names or are missing."""
    try:
        weight_map = json.loads(path.read_bytes(), object_pairs_hook=refuse_duplicate_keys)["weight_map"]
        shards = set(weight_map.values())
    except RepeatedKeyError as error:
        raise _corrupt(path, f"'{error}' twice", "each name once") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise _corrupt(path, "no map of tensors to files", '{"weight_map": {tensor: file}}') from None
    for shard in shards:
        # A name with a folder in it would let an index reach files outside the checkpoint.
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise _corrupt(path, f"the shard {shard!r}", "a file name without folders")
    missing = [shard for shard in sorted(shards) if not is_present(path.parent / shard)]
    if missing:
        raise CheckpointError(
            f"{path.parent}: received {len(shards) - len(missing)} of {len(shards)} shards, expected all that "
            f"{path.name} names: {missing[0]} is missing",
            hint="copy or download the missing shard",
        )
    return dict(weight_map)


def _read_entries(path: Path) -> tuple[dict[str, Any], int]:
    """Return the header without its metadata, and the number of bytes after it."""
    is_present(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(LENGTH_BYTES), "little")
        if size < LENGTH_BYTES or length > min(size - LENGTH_BYTES, LONGEST_HEADER):
            raise _corrupt(path, f"a file of {size} bytes with a header of {length}", "the whole header in the file")
        text = file.read(length)
    try:
        header = json.loads(text, object_pairs_hook=refuse_duplicate_keys)
    except RepeatedKeyError as error:
        raise _corrupt(path, f"'{error}' twice in its header", "each name once") from None
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise _corrupt(path, "a header that is not JSON", "a JSON object")
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
            raise _corrupt(path, f"tensor '{name}' as {str(entry)[:120]}", "a known dtype, a shape and two offsets")
    if stop - start != expected:
        raise _corrupt(path, f"tensor '{name}' in {stop - start} bytes", f"{expected} for {dtype} {shape}")
    return start, stop


def _without_weights(folder: Path) -> CheckpointError:
    pickles = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in folder.glob(pattern))
    received = f"only {', '.join(pickles)} (pickle files can run code and are never read)" if pickles else "neither"
    return CheckpointError(
        f"{folder}: received {received}, expected {WEIGHTS} or {INDEX}",
        hint="where you trust them, convert them: load with transformers, then model.save_pretrained(FOLDER)",
    )


def _corrupt(path: Path, received: str, expected: str) -> CheckpointError:
    return CheckpointError(f"{path}: truncated or corrupt: received {received}, expected {expected}", hint=COPY_AGAIN)
