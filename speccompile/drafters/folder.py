"""Read the folder of a head: its config, and the tensors in its files. Reads headers only; no torch."""

from pathlib import Path

from speccompile.compiler.checkpoints.gguf.conversion import GGUF_INDEX
from speccompile.compiler.checkpoints.json_files import CONFIG, is_present, read_json_object
from speccompile.compiler.checkpoints.weights import INDEX, files_of, read_index, read_tensors, stored_tensors
from speccompile.drafters.pickles import read_pickle
from speccompile.errors import CheckpointError
from speccompile.plan.head import HeadFolder, TensorSource

PICKLES = ("*.pt", "*.bin", "*.pth")
_NOT_WEIGHTS = (
    "training_args.bin", "optimizer.pt", "optimizer.bin", "scheduler.pt", "scheduler.bin", "rng_state.pth"
)  # fmt: skip


def read_folder(path: Path) -> HeadFolder:
    """Read a folder. Raise CheckpointError if it has no config or no weights, or if a file is truncated."""
    config = read_json_object(path / CONFIG)
    if config is None:
        raise CheckpointError(
            f"{path}: received a drafter's folder without {CONFIG}, expected one that says what it holds",
            hint="copy the config.json that was published beside the weights",
        )
    if (path / GGUF_INDEX).is_file():
        stored = stored_tensors(path)
        sources = {name: TensorSource(each.file, name, each.shape, each.dtype) for name, each in stored.items()}
        return HeadFolder(path, config, sources, (Path(CONFIG), *files_of(stored)))
    tensors: dict[str, TensorSource] = {}
    files = _weight_files(path)
    for file in files:
        for name, source in _tensors(path / file).items():
            if name in tensors:
                raise CheckpointError(
                    f"{path}: received tensor '{name}' in {tensors[name].file} and in {file}, expected it once",
                    hint="keep the files of one version of the weights",
                )
            tensors[name] = source
    index = (Path(INDEX),) if (path / INDEX).is_file() else ()
    return HeadFolder(path, config, tensors, (Path(CONFIG), *index, *map(Path, files)))


def has_weights(path: Path) -> bool:
    """Return whether any file of a folder may hold weights."""
    return any(any(path.glob(pattern)) for pattern in ("*.safetensors", GGUF_INDEX, *PICKLES))


def _weight_files(path: Path) -> list[str]:
    """Return the names of the safetensors files, those of the index if it exists; without any, of the pickles."""
    files = sorted(file.name for file in path.glob("*.safetensors"))
    if is_present(path / INDEX):
        files = sorted(set(read_index(path / INDEX).values()))
    if not files:
        files = sorted(file.name for pattern in PICKLES for file in path.glob(pattern) if file.name not in _NOT_WEIGHTS)
    if not files:
        raise CheckpointError(
            f"{path}: received no weights, expected *.safetensors, or a .pt or .bin of torch.save",
            hint="give the folder of the drafter as it was published",
        )
    return files


def _tensors(path: Path) -> dict[str, TensorSource]:
    if path.suffix != ".safetensors":
        return read_pickle(path)
    return {
        name: TensorSource(path.name, name, tensor.shape, tensor.dtype) for name, tensor in read_tensors(path).items()
    }
