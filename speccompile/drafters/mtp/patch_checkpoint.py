"""Copy a checkpoint folder with some tensors replaced and everything else bit for bit.

Files without replaced tensors become hard links where the disk supports them. Other files are written without these
tensors. The new tensors are in a separate file, which the index names.
"""

import json
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from speccompile.compiler.checkpoints.weights import INDEX, WEIGHTS, StoredTensor, read_tensors, stored_tensors

OWN, OTHERS = "model-mtp.safetensors", "model-target.safetensors"
"""Files of the new tensors, and of the remaining tensors of a folder with a single file."""
_CHUNK = 1 << 24


def copy_with_replaced(source: Path, folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write the new folder. Raise CheckpointError for a source with truncated weights or without safetensors."""
    stored = stored_tensors(source)
    folder.mkdir(parents=True)
    weights = {tensor.file for tensor in stored.values()}
    for path in sorted(source.iterdir()):
        if path.is_file() and path.name not in weights and path.name != INDEX:
            shutil.copyfile(path, folder / path.name)
    places: dict[str, str] = dict.fromkeys(tensors, OWN)
    for file in sorted(weights):
        kept = {name for name, tensor in stored.items() if tensor.file == file and name not in tensors}
        name = OTHERS if file == WEIGHTS else file
        if kept:
            _keep(source / file, folder / name, kept)
        places |= dict.fromkeys(kept, name)
    is_alone = set(places.values()) == {OWN}
    save_file(dict(tensors), folder / (WEIGHTS if is_alone else OWN), {"format": "pt"})
    if not is_alone:
        size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(places.items()))}
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n")


def _keep(source: Path, path: Path, names: Collection[str]) -> None:
    """Write the named tensors of a file to another file; link or copy the file if these are all its tensors."""
    stored = read_tensors(source)
    if len(names) < len(stored):
        _write(source, path, {name: tensor for name, tensor in stored.items() if name in names})
        return
    try:
        os.link(source.resolve(), path)
    except OSError:  # another disk, or one without links
        shutil.copyfile(source, path)


def _write(source: Path, path: Path, tensors: Mapping[str, StoredTensor]) -> None:
    """Write tensors of any dtype byte for byte; see `checkpoints.weights` for the format."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        place = [end, end := end + tensor.size]
        entries[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": place}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    with source.open("rb") as opened, path.open("wb") as written:
        written.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            opened.seek(tensor.offset)
            left = tensor.size
            while left:
                left -= written.write(opened.read(min(left, _CHUNK)))
