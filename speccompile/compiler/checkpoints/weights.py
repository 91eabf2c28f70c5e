"""The safetensors files of a checkpoint folder: their names and tensors, and a check that they are complete. Reads
headers only.

An index, {"weight_map": {tensor: file}}, lists the files. As in transformers, every tensor of those
files is part of the checkpoint, and the `total_size` of an index is ignored: the headers decide.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from speccompile.compiler.checkpoints.gguf.conversion import GGUF_INDEX
from speccompile.compiler.checkpoints.gguf.conversion import read_index as read_index_of_gguf
from speccompile.errors import CheckpointError
from speccompile.machine.formats.json_files import RepeatedKeyError, is_present, refuse_duplicate_keys
from speccompile.machine.formats.safetensors import BITS, FLOAT_DTYPES, StoredTensor, corrupt, read_tensors

__all__ = ["BITS", "FLOAT_DTYPES", "StoredTensor", "files_of", "read_index", "read_tensors", "stored_tensors"]

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


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
            raise corrupt(folder / shard, f"no tensor '{name}'", f"it there, as {INDEX} says")
    return found


def read_index(path: Path) -> dict[str, str]:
    """Return tensor name -> shard, from an index file. Raise CheckpointError for a file that is no index, and for
    shards that are not plain file names or are missing."""
    try:
        weight_map = json.loads(path.read_bytes(), object_pairs_hook=refuse_duplicate_keys)["weight_map"]
        shards = set(weight_map.values())
    except RepeatedKeyError as error:
        raise corrupt(path, f"'{error}' twice", "each name once") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise corrupt(path, "no map of tensors to files", '{"weight_map": {tensor: file}}') from None
    for shard in shards:
        # A name with a folder in it would let an index reach files outside the checkpoint.
        if not isinstance(shard, str) or Path(shard).name != shard:
            raise corrupt(path, f"the shard {shard!r}", "a file name without folders")
    missing = [shard for shard in sorted(shards) if not is_present(path.parent / shard)]
    if missing:
        raise CheckpointError(
            f"{path.parent}: received {len(shards) - len(missing)} of {len(shards)} shards, expected all that "
            f"{path.name} names: {missing[0]} is missing",
            hint="copy or download the missing shard",
        )
    return dict(weight_map)


def _without_weights(folder: Path) -> CheckpointError:
    pickles = sorted(file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in folder.glob(pattern))
    received = "a folder without weights"
    hint = "copy or download the model's weights into it"
    if pickles:
        received = f"only {', '.join(pickles)} (pickle files can run code and are never read)"
        hint = "where you trust them, convert them: load with transformers, then model.save_pretrained(FOLDER)"
    return CheckpointError(f"{folder}: received {received}, expected {WEIGHTS} or {INDEX}", hint=hint)
