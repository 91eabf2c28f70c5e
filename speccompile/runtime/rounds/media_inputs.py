"""Inputs of a round for pictures: see `speccompile.bundle.media`."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from speccompile.bundle.media import (
    AXES,
    MEDIA,
    MEDIA_BEHIND,
    MEDIA_BLOCKS,
    MEDIA_NEXT,
    MEDIA_OFFSETS,
    MEDIA_ROWS,
)
from speccompile.contract import Graph
from speccompile.runtime.devices.engine import Array, Engine
from speccompile.runtime.images.media import SequenceMedia
from speccompile.runtime.rounds.slots import Slot

Part = tuple[SequenceMedia | None, range]
"""Pictures of a slot's sequence, and the part of its tokens that a run reads."""


def media_width(graphs: Iterable[Graph]) -> int:
    """Return W, the width of a picture's rows in these graphs of a round; 0 if they take none."""
    found = (tensor.shape[-1] for graph in graphs for tensor in graph.inputs if tensor.name == MEDIA)
    return int(next(found, 0))


class MediaInputs:
    """Writes the rows of pictures of a run."""

    def __init__(self, engine: Engine, graphs: Sequence[Graph], batch: int, chunk: int) -> None:
        """chunk: most tokens of a slot in a run."""
        self._engine, self._width, self._batch = engine, media_width(graphs), batch
        self._takes = {tensor.name for graph in graphs for tensor in graph.inputs}
        self._ahead = int(MEDIA_NEXT in self._takes)
        """Tokens behind a part whose rows the drafter reads."""
        self._most = batch * (chunk + self._ahead)

    def count(self, parts: Iterable[Part]) -> int:
        """Return how many rows of pictures the inputs of a run over these parts have room for: 1 without pictures, else
        as many as any run needs, so that graphs are bound with two widths."""
        shown = (media is not None and media.has_rows(self._read(part)) for media, part in parts)
        return self._most if any(shown) else 1

    def _read(self, part: range) -> range:
        return range(part.start, part.stop + self._ahead)

    def write(self, window: int, lines: range, parts: Mapping[int, Part], count: int) -> None:
        """Write the inputs of a run over the slots `lines`, which is bound with a window of so many tokens and `count`
        rows. parts: of the slots that take part."""
        own = slice(lines.start, lines.stop)
        shown = {slot: (media, part) for slot, (media, part) in parts.items() if media is not None}
        if MEDIA_OFFSETS in self._takes:
            offsets = self._view(MEDIA_OFFSETS, AXES, window)
            offsets[own] = 0
            for slot, (media, part) in shown.items():
                offsets[slot] = media.offsets_between(part.start, part.start + window)
        if MEDIA_BEHIND in self._takes:
            behind = self._view(MEDIA_BEHIND)
            behind[own] = 0
            for slot, (media, _) in shown.items():
                behind[slot] = media.offset_behind
        wanted = (MEDIA_ROWS, MEDIA_BLOCKS, MEDIA_NEXT)
        numbers = {name: self._view(name, window) for name in wanted if name in self._takes}
        for each in numbers.values():
            each[own] = 0
        if count > 1:
            self._write_rows(shown, numbers, count)

    def _view(self, name: str, *shape: int) -> Array:
        return self._engine.host_view(name, (self._batch, *shape))

    def _write_rows(
        self, parts: Mapping[int, tuple[SequenceMedia, range]], numbers: Mapping[str, Array], count: int
    ) -> None:
        """Write `count` rows, and which of them stand in place of which tokens."""
        rows, filled = self._engine.host_view(MEDIA, (count, self._width)), 0
        for slot, (media, part) in parts.items():
            read, size = self._read(part), len(part)
            places, found = media.rows_between(read.start, read.stop)
            if found is None:
                continue
            count_from = filled + np.cumsum(places > 0)
            rows[filled : filled + len(found)] = found
            filled += len(found)
            ours = np.where(places > 0, count_from, 0)
            numbers[MEDIA_ROWS][slot, : len(ours[:size])] = ours[:size]
            if MEDIA_NEXT in numbers:
                numbers[MEDIA_NEXT][slot, : len(ours[1:])] = ours[1:]
            if MEDIA_BLOCKS in numbers:
                numbers[MEDIA_BLOCKS][slot, : len(ours[:size])] = media.blocks[part.start : part.stop]


def chunk_stop(slot: Slot, start: int, stop: int) -> int:
    """Return where a chunk of a slot's sequence ends that begins at `start` and would end at `stop`."""
    media = slot.sequence.media
    return stop if media is None else media.chunk_stop(start, stop)


def media_parts(parts: Mapping[Slot, range], decoding: Iterable[Slot] = ()) -> dict[int, Part]:
    """Return the parts of a run by slot: those of prompts, and the last token of the slots that decode."""
    spans = {**{slot: range(slot.committed_length, slot.committed_length + 1) for slot in decoding}, **parts}
    return {slot.index: (slot.sequence.media, part) for slot, part in spans.items()}
