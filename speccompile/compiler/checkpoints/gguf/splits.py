"""The files of a model that was split into several: NAME-00001-of-00003.gguf. The first one has the metadata."""

import re
from pathlib import Path

from speccompile.compiler.checkpoints.gguf.metadata import shown
from speccompile.compiler.checkpoints.gguf.reader import GgufFile, read_gguf
from speccompile.errors import CheckpointError
from speccompile.machine.formats.safetensors import corrupt

NUMBER, COUNT, TENSORS = "split.no", "split.count", "split.tensors.count"

PROJECTOR = "mmproj"
"""Part of the name of a file with the projector of images, which lies beside a model."""

_SPLIT = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


def find_gguf(path: Path) -> tuple[Path, ...]:
    """Return the files of the model that a path names: one of its files, or the folder that holds it and no other.
    Empty for a path that names no GGUF file. Raise CheckpointError for a folder with several models, and for a part
    that is missing."""
    if path.is_dir():
        found = sorted(each for each in path.glob("*.gguf") if PROJECTOR not in each.name)
        models = {_parts(each) for each in found}
        if len(models) > 1:
            names = ", ".join(each.name for each in found[:4])
            raise CheckpointError(
                f"{path}: received several GGUF models ({names}), expected one", hint="give one of these files"
            )
        files = next(iter(models), ())
    else:
        files = _parts(path) if path.suffix == ".gguf" and path.is_file() else ()
    for file in files:
        if not file.is_file():
            raise CheckpointError(
                f"{file}: received nothing, expected a part of the {len(files)} that the model was split into",
                hint="copy or download the missing part",
            )
    return files


def read_split(files: tuple[Path, ...]) -> list[GgufFile]:
    """Return the headers of all files of a model. Raise CheckpointError for files that are not the parts of one."""
    parts = [read_gguf(file) for file in files]
    count, total = parts[0].metadata.get(COUNT, 1), sum(len(part.tensors) for part in parts)
    if count not in (0, len(parts)):
        raise corrupt(
            files[0], f"{len(parts)} files and {COUNT}: {shown(count)}", "as many files as it says, by their names"
        )
    names: dict[str, Path] = {}
    for index, part in enumerate(parts):
        number = part.metadata.get(NUMBER, index)
        if number != index or part.metadata.get(COUNT, count) != count:
            raise corrupt(
                part.path, f"part {shown(number)} of {shown(part.metadata.get(COUNT))}", f"part {index} of {count}"
            )
        for name in part.tensors:
            if name in names:
                raise corrupt(part.path, f"tensor '{name}', which {names[name].name} has, too", "each tensor once")
            names[name] = part.path
    if parts[0].metadata.get(TENSORS, total) != total:
        raise corrupt(files[0], f"{total} tensors", f"{shown(parts[0].metadata[TENSORS])}, as {TENSORS} says")
    return parts


def _parts(path: Path) -> tuple[Path, ...]:
    """Return the paths of all parts of the model of a file."""
    match = _SPLIT.fullmatch(path.name)
    if match is None:
        return (path,)
    count = int(match["count"])
    return tuple(
        path.with_name(f"{match['stem']}-{number:05}-of-{match['count']}.gguf") for number in range(1, count + 1)
    )
