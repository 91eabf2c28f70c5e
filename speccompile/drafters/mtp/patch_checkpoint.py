"""A copy of a checkpoint folder with some tensors in the place of its own of these names, everything else bit for bit.

Files that hold none of them are linked, where the disk can; others are written again without them, and the new ones lie
in a file of their own, which the index names.
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
"""What was trained, and what lay beside it in a folder of one file."""
_CHUNK = 1 << 24


def copy_with_replaced(source: Path, folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write the new folder. Raises CheckpointError for a source whose weights are not whole, or no safetensors."""
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
    """The tensors of these names of a file, in a file of its own; the same file where they are all of it."""
    stored = read_tensors(source)
    if len(names) < len(stored):
        _write(source, path, {name: tensor for name, tensor in stored.items() if name in names})
        return
    try:
        os.link(source.resolve(), path)
    except OSError:  # another disk, or one without links
        shutil.copyfile(source, path)


def _write(source: Path, path: Path, tensors: Mapping[str, StoredTensor]) -> None:
    """Byte for byte, whatever their types: see `checkpoints.weights` for the format."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    entries: dict[str, object] = dict(header)
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
