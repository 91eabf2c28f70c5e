"""All weights of a folder that describes GGUF files."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path

import numpy as np

from speccompile.bundle.file_hashes import cached_file_hash
from speccompile.compiler.checkpoints.gguf.block_types import QUANTIZED
from speccompile.compiler.checkpoints.gguf.tensors import PlacedTensor
from speccompile.compiler.weights.gguf.weight import Blocks, Halved
from speccompile.compiler.weights.source import FileBacked, InMemory, LazyWeight, OpenFile, opened

_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def gguf_sources(folder: Path, tensors: Mapping[str, PlacedTensor]) -> dict[str, LazyWeight]:
    """Return the weights by their names in transformers, unread."""
    files = {name: opened(folder / name) for name in sorted({tensor.file for tensor in tensors.values()})}
    contents = {name: cache(partial(cached_file_hash, file.path)) for name, file in files.items()}
    return {name: _source(each, files[each.file], contents[each.file]) for name, each in tensors.items()}


def _source(tensor: PlacedTensor, file: OpenFile, content: Callable[[], str]) -> LazyWeight:
    found: LazyWeight
    if tensor.type in QUANTIZED:
        found = Blocks(file, tensor.offset, tensor.shape, tensor.type, content)
    else:
        found = FileBacked(file, tensor.offset, tensor.shape, _DTYPES[tensor.type], content)
    if tensor.heads:
        found = Halved(found, tensor.heads)
    if tensor.less_one:  # the weight of a norm: some thousand numbers
        found = InMemory(found.read_all() - np.float32(1))
    return found
