"""Persistent drafter state: reset it, save it to a file, load it. See `contract.PERSISTENT_PREFIX`.

A file has the format of safetensors: 8 bytes with the header's length, little endian; a JSON header; then the numbers
of every state, one after the other, in the order of the header. Its `__metadata__` says what the tokens in it mean: the
drafting method, the size of the vocabulary and the tokenizer's hash ("" if a bundle has no tokenizer). Dtypes and
shapes are those of the manifest's graphs, even if an engine uses others. So a file serves every engine of a bundle, and
every bundle with such a drafter and vocabulary, however often it is built.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from speccompile.bundle.folders import write_atomically
from speccompile.bundle.manifest import Manifest
from speccompile.bundle.tensor_header import (
    ALIGNMENT,  # noqa: F401 - the table of the contract has it by this module's name
    LENGTH_BYTES,
    LONGEST,
    METADATA,
    split_header,
    with_length,
)
from speccompile.contract import DTYPES, PERSISTENT_PREFIX, Graph, Tensor, with_fixed_batch
from speccompile.errors import UsageError
from speccompile.machine.plain_files import read_plain
from speccompile.runtime.devices.engine import Array, Engine, numpy_dtype

FORMAT = "speccompile.kept.1"

_ANOTHER = "give the file that this bundle wrote, or start from empty states: --reset (Bundle.reset)"


class PersistentState:
    """Persistent states in the buffers of one engine."""

    def __init__(self, engine: Engine, manifest: Manifest, graphs: Iterable[Graph], tokenizer: str = "") -> None:
        """graphs: the engine's graphs; tokenizer: hash of the bundle's tokenizer, "" for none."""
        ours, theirs = (
            [with_fixed_batch(each, manifest.batch_size) for each in of] for of in (manifest.graphs, graphs)
        )
        self._engine, self._tensors, self._held = engine, persistent_tensors(ours), persistent_tensors(theirs)
        drafter = manifest.plan.get("drafter", {})
        self._kind = str(drafter.get("kind", "none"))
        self._metadata = {
            "format": FORMAT,
            "drafter": self._kind,
            "vocabulary_size": str(manifest.vocabulary_size),
            "tokenizer": tokenizer,
        }

    def __bool__(self) -> bool:
        return bool(self._tensors)

    def reset(self) -> None:
        """Set all persistent states to zeros, as in a bundle that was just opened."""
        for name, tensor in self._held.items():
            self._engine.write_state(name, np.zeros(tensor.concrete_shape({}), numpy_dtype(tensor.dtype)))

    def check(self) -> None:
        """Raise UsageError if the bundle has no persistent states."""
        if not self:
            raise UsageError(
                f"this bundle keeps nothing from one generation to the next: its drafter is {self._kind}",
                hint="leave the file out, or build a bundle whose drafter learns, such as token_recycling",
            )

    def save(self, path: Path) -> None:
        """Write all persistent states. A failed write leaves an existing file as it was. Raise UsageError if the file
        cannot be written."""
        self.check()
        try:
            write_atomically(path, _written(self._metadata, self._tensors, self._values()))
        except OSError as error:
            raise UsageError(
                f"{path}: the states cannot be written: {error.strerror}", hint="give a file in a folder that is there"
            ) from error

    def load(self, path: Path) -> None:
        """Read all persistent states. Raise UsageError, with the states unchanged, for a file that cannot be read, has
        another format or belongs to another bundle."""
        self.check()
        try:
            content = read_plain(path, LENGTH_BYTES + LONGEST + _size(self._tensors))
        except OSError as error:
            raise UsageError(f"{path}: the states cannot be read: {error.strerror}", hint=_ANOTHER) from error
        values = _read(content, self._metadata, self._tensors, path)
        for name, tensor in self._held.items():
            self._engine.write_state(
                name, values[name].reshape(tensor.concrete_shape({})).astype(numpy_dtype(tensor.dtype))
            )

    def _values(self) -> dict[str, Array]:
        found = {}
        for name, tensor in self._tensors.items():
            held = self._engine.host_view(name, self._held[name].concrete_shape({}))
            found[name] = held.reshape(tensor.concrete_shape({})).astype(numpy_dtype(tensor.dtype))
        return found


def persistent_tensors(graphs: Iterable[Graph]) -> dict[str, Tensor]:
    """Return buffer -> tensor of the persistent states, sorted by name."""
    found = {t.buffer: t for graph in graphs for t in graph.inputs if t.buffer.startswith(PERSISTENT_PREFIX)}
    return dict(sorted(found.items()))


def _described(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the header's entries."""
    rows, start = {}, 0
    for name, tensor in tensors.items():
        shape = tensor.concrete_shape({})
        end = start + int(np.prod(shape)) * numpy_dtype(tensor.dtype).itemsize
        rows[name] = {"dtype": DTYPES[tensor.dtype].safetensors, "shape": list(shape), "data_offsets": [start, end]}
        start = end
    return rows


def _size(tensors: Mapping[str, Tensor]) -> int:
    """Return the bytes of all numbers."""
    return max(int(row["data_offsets"][1]) for row in _described(tensors).values())


def _written(metadata: Mapping[str, str], tensors: Mapping[str, Tensor], values: Mapping[str, Array]) -> bytes:
    header = json.dumps({METADATA: dict(metadata), **_described(tensors)}).encode()
    return b"".join([with_length(header), *(values[name].tobytes() for name in tensors)])


def _read(content: bytes, metadata: Mapping[str, str], tensors: Mapping[str, Tensor], path: Path) -> dict[str, Array]:
    """Return the states in a file, by name. Raise UsageError as `PersistentState.load` does."""
    try:
        header, data = split_header(content, "a file of states")
    except ValueError as error:
        raise UsageError(f"{path}: {error}", hint=_ANOTHER) from None
    found = header.pop(METADATA, None)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        received = found.get("format") if isinstance(found, dict) else None
        raise UsageError(f"{path}: received format {received!r}, expected {FORMAT!r}", hint=_ANOTHER)
    for key, ours in metadata.items():
        if found.get(key) != ours:
            raise UsageError(
                f"{path}: these states are of another {key.replace('_size', '')}: {found.get(key)!r}, this bundle's "
                f"is {ours!r}",
                hint=_ANOTHER,
            )
    for name, ours in _described(tensors).items():
        if header.pop(name, None) != ours:
            raise UsageError(
                f"{path}: expected {name} as {ours['dtype']} {ours['shape']}, as this bundle has it", hint=_ANOTHER
            )
    if header:
        raise UsageError(f"{path}: received {next(iter(header))}, which this bundle does not have", hint=_ANOTHER)
    return _numbers(data, tensors, path)


def _numbers(data: memoryview, tensors: Mapping[str, Tensor], path: Path) -> dict[str, Array]:
    rows, size = _described(tensors), _size(tensors)
    if len(data) != size:
        raise UsageError(
            f"{path}: received {len(data)} bytes of numbers, expected {size}: the file is truncated or damaged",
            hint=_ANOTHER,
        )
    found = {}
    for name, tensor in tensors.items():
        start, end = rows[name]["data_offsets"]
        found[name] = np.frombuffer(data[start:end], numpy_dtype(tensor.dtype)).reshape(tensor.concrete_shape({}))
    return found
