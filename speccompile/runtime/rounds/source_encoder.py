"""Encoding of a sequence's source when the sequence is admitted to a slot."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from speccompile.bundle.manifest import Manifest
from speccompile.bundle.sources import AUDIO, SOURCE, SOURCE_LENGTH, SOURCE_TOKENS
from speccompile.contract import SOURCE_ENCODERS
from speccompile.runtime.audio.examples import noise
from speccompile.runtime.audio.mel import Features
from speccompile.runtime.devices.engine import Engine


class SourceEncoder:
    """Runs the graphs that encode sources, and writes what a round needs to know of them."""

    def __init__(self, engine: Engine, manifest: Manifest) -> None:
        self._engine, self._batch = engine, manifest.batch_size
        self._names = [name for name in SOURCE_ENCODERS if engine.has(name)]
        self._length = engine.host_view(SOURCE_LENGTH, (self._batch,))
        about = manifest.source or {}
        audio = about.get(AUDIO)
        self._heard = None if audio is None else (audio["mels"], audio["frames"])
        self._rows = int(about.get("max_length", 0))
        self._length[:] = 1  # in a slot without a sequence as well: nothing attends to nothing
        inputs = {tensor.name: tensor for graph in manifest.graphs for tensor in graph.inputs}
        rows = int(inputs[SOURCE_TOKENS].shape[1]) if SOURCE_TOKENS in inputs else 0
        self._tokens = engine.host_view(SOURCE_TOKENS, (self._batch, rows)) if rows else None
        self.held = [""] * self._batch
        """Key of the source whose rows each slot holds, "" for an unknown one."""
        self.runs = 0
        """Number of sources that have been encoded."""

    def encode(self, slot: int, source: Sequence[int] | Features, key: str = "") -> None:
        """Encode the source of a slot's next sequence, unless the slot holds it. key: see `source_key`; "" for a source
        that no other sequence has."""
        if key and self.held[slot] == key:
            return
        self.held[slot], self.runs = key, self.runs + 1
        if self._heard is not None:
            self._hear(slot, source)
            return
        size = len(source)
        self._length[slot] = size
        if self._tokens is not None:
            self._tokens[slot], self._tokens[slot, :size] = 0, source
        self._engine.host_view(SOURCE, (self._batch, size))[slot] = source
        for name in self._names:
            self._engine.bind(name, {SOURCE: size}, rows=range(slot, slot + 1))()

    def forget(self) -> None:
        """Encode the next source of each slot, also if the slot holds it."""
        self.held = [""] * self._batch

    def copy(self, source: int, slot: int) -> None:
        """Note that slot `slot` has got the rows of slot `source`."""
        self._length[slot], self.held[slot] = self._length[source], self.held[source]
        if self._tokens is not None:
            self._tokens[slot] = self._tokens[source]

    def _hear(self, slot: int, features: Any) -> None:
        """Encode features float32 [M, F] for a slot: all rows count."""
        assert self._heard is not None
        self._length[slot] = self._rows
        self._engine.host_view(AUDIO, (self._batch, *self._heard))[slot] = features
        for name in self._names:
            self._engine.bind(name, {}, rows=range(slot, slot + 1))()


def source_key(source: Sequence[int] | Features | None) -> str:
    """Return a hash that is the same for equal sources alone; "" without a source."""
    if source is None:
        return ""
    values = np.ascontiguousarray(source) if isinstance(source, np.ndarray) else np.array(source, np.int64)
    return blake2b(values.tobytes(), digest_size=16).hexdigest()


def encode_example(engine: Engine, manifest: Manifest) -> None:
    """Encode some source in every slot, for runs of the round that measure or compare something."""
    if manifest.source is None:
        return
    encoder, size = SourceEncoder(engine, manifest), min(8, int(manifest.source["max_length"]))
    source = [(7 * place + 3) % manifest.vocabulary_size for place in range(size)]
    for slot in range(manifest.batch_size):
        encoder.encode(slot, as_heard(manifest, source))


def as_heard(manifest: Manifest, source: list[int]) -> list[int] | Features:
    """Return the tokens of a source, for a target that hears noise of this seed."""
    audio = (manifest.source or {}).get(AUDIO)
    return source if audio is None else noise(source, audio["mels"], audio["frames"])
