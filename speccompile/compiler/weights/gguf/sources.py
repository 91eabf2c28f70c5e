"""All weights of a folder that describes GGUF files."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.bundle.file_hashes import cached_file_hash
from speccompile.compiler.checkpoints.gguf.block_types import EXPERTS, INTEGERS, QUANTIZED
from speccompile.compiler.checkpoints.gguf.conversion import read_index
from speccompile.compiler.checkpoints.gguf.tensors import PlacedTensor
from speccompile.compiler.checkpoints.weights import FLOAT_DTYPES
from speccompile.compiler.weights.gguf.weight import Blocks, Grouped, GroupedColumns, Halved, Interleaved, ValueTiles
from speccompile.compiler.weights.open_file import OpenFile, opened
from speccompile.compiler.weights.source import FileBacked, InMemory, LazyWeight, Stacked

_GATE = f"{EXPERTS}gate_proj"


def gguf_sources(folder: Path, tensors: Mapping[str, PlacedTensor]) -> dict[str, LazyWeight]:
    """Return the weights by their names in transformers, unread."""
    files = {name: opened(folder / name) for name in sorted({tensor.file for tensor in tensors.values()})}
    contents = {name: cache(partial(cached_file_hash, file.path)) for name, file in files.items()}
    found = {name: _source(each, files[each.file], contents[each.file]) for name, each in tensors.items()}
    for prefix in [name.removesuffix(_GATE) for name in found if name.endswith(_GATE)]:
        _join_experts(found, f"{prefix}{EXPERTS}")
    return found


def read_head_tensors(folder: Path, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Return tensors of a drafter's head by their published names: float32, and int64 [Vd] for the offsets of a draft
    vocabulary, which lie as ids in the file. Raise CheckpointError."""
    described = read_index(folder)
    assert described is not None, "the caller has read the folder's index"
    wanted = {name: described[1][name] for name in names}
    ids = {name: tensor for name, tensor in wanted.items() if tensor.type == INTEGERS}
    floats = gguf_sources(folder, {name: tensor for name, tensor in wanted.items() if name not in ids})
    found: dict[str, NDArray[Any]] = {name: source.read_all() for name, source in floats.items()}
    for name, tensor in ids.items():
        stored = np.frombuffer(opened(folder / tensor.file).read(tensor.offset, tensor.size), "<i8")
        found[name] = stored.reshape(tensor.shape) - np.arange(tensor.shape[-1])
    return found


def head_codes(folder: Path, names: Iterable[str]) -> dict[str, LazyWeight]:
    """Return the matrices of a drafter's head that lie in blocks, by their published names, unread."""
    described = read_index(folder)
    assert described is not None, "the caller has read the folder's index"
    wanted = {name: described[1][name] for name in names}
    return gguf_sources(folder, {name: each for name, each in wanted.items() if each.type in QUANTIZED})


def _join_experts(found: dict[str, LazyWeight], experts: str) -> None:
    """Replace gate [E, F, H], up and down [E, H, F] of GPT-OSS, and their biases [E, ..], by gate_up_proj [E, H, 2 F],
    whose columns are those of gate and up in turn, and down_proj [E, F, H]."""
    gate, up, down = (found.pop(f"{experts}{name}_proj") for name in ("gate", "up", "down"))
    biases = [found.pop(f"{experts}{name}_proj_bias").read_all() for name in ("gate", "up")]
    pairs = [Interleaved(gate.select(index), up.select(index)) for index in range(gate.shape[0])]
    found[f"{experts}gate_up_proj"] = Stacked([pair.transpose((1, 0)) for pair in pairs])
    found[f"{experts}down_proj"] = Stacked([down.select(index).transpose((1, 0)) for index in range(down.shape[0])])
    found[f"{experts}gate_up_proj_bias"] = InMemory(np.stack(biases, axis=2).reshape(len(biases[0]), -1))


def _source(tensor: PlacedTensor, file: OpenFile, content: Callable[[], str]) -> LazyWeight:
    found: LazyWeight
    if tensor.type in QUANTIZED:
        found = Blocks(file, tensor.offset, tensor.shape, tensor.type, content)
    else:
        found = FileBacked(file, tensor.offset, tensor.shape, FLOAT_DTYPES[tensor.type], content)
    if tensor.heads:
        found = Halved(found, tensor.heads)
    if tensor.tiles:
        view = GroupedColumns if tensor.has_columns else Grouped
        found = view(found, ValueTiles(*tensor.tiles))
    if tensor.is_decay:
        found = InMemory(np.log(-found.read_all()))
    if tensor.less_one:  # the weight of a norm: some thousand numbers
        found = InMemory(found.read_all() - np.float32(1))
    return found
