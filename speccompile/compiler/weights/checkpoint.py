"""The weights of a folder in Hugging Face layout, by their names there. Only headers are read."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from speccompile.bundle.file_hashes import cached_file_hash
from speccompile.compiler.checkpoints.gguf.conversion import read_index
from speccompile.compiler.checkpoints.quantization import read_quantization
from speccompile.compiler.checkpoints.weights import FLOAT_DTYPES, StoredTensor, stored_tensors
from speccompile.compiler.weights.gguf.sources import gguf_sources
from speccompile.compiler.weights.open_file import OpenFile, opened
from speccompile.compiler.weights.quantized import dequantized
from speccompile.compiler.weights.quantized.packed import Packed
from speccompile.compiler.weights.source import FileBacked, InMemory, LazyWeight


class Checkpoint(NamedTuple):
    """Tensors of a checkpoint, by name. others: tensors of integers, which are no weights."""

    weights: dict[str, LazyWeight]
    others: dict[str, StoredTensor]


def checkpoint_sources(folder: Path) -> Checkpoint:
    """Return the weights and other tensors of a checkpoint. Weights that config.json declares as quantized have the
    names and shapes of the floating-point model; the tensors that store them are omitted.

    Raise CheckpointError for files that are missing or invalid, UnsupportedModelError for an unsupported quantization
    method.
    """
    described = read_index(folder)
    if described is not None:
        return Checkpoint(gguf_sources(folder, described[1]), {})
    tensors = stored_tensors(folder)
    files = {name: opened(folder / name) for name in sorted({tensor.file for tensor in tensors.values()})}
    contents = {name: cache(partial(cached_file_hash, file.path)) for name, file in files.items()}
    found = {name: _source(each, files[each.file], contents[each.file]) for name, each in tensors.items()}
    weights = {name: source for name, source in found.items() if source is not None}
    others = {name: tensor for name, tensor in tensors.items() if name not in weights}
    quantization = read_quantization(folder)
    if quantization is not None:
        packed = {
            name: Packed(files[each.file], each.offset, each.shape, each.dtype, contents[each.file])
            for name, each in others.items()
        }
        made, taken = dequantized(folder, quantization, weights, packed)
        weights = {name: source for name, source in weights.items() if name not in taken} | made
        others = {name: tensor for name, tensor in others.items() if name not in taken}
    return Checkpoint(weights, others)


def _source(tensor: StoredTensor, file: OpenFile, content: Callable[[], str]) -> LazyWeight | None:
    if tensor.dtype in FLOAT_DTYPES:
        return FileBacked(file, tensor.offset, tensor.shape, FLOAT_DTYPES[tensor.dtype], content)
    if tensor.dtype == "F64":
        numbers = np.frombuffer(file.read(tensor.offset, tensor.size), np.float64)
        return InMemory(numbers.reshape(tensor.shape).astype(np.float32))
    return None
