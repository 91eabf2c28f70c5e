"""Inputs of a round for pictures: see `speccompile.bundle.media`."""

from collections.abc import Iterable, Mapping, Sequence

from speccompile.bundle.media import AXES, MEDIA, MEDIA_BLOCKS, MEDIA_OFFSETS, MEDIA_ROWS
from speccompile.contract import Graph
from speccompile.runtime.devices.engine import Engine
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
        self._engine, self._width, self._batch, self._most = engine, media_width(graphs), batch, batch * chunk
        self._takes = {tensor.name for graph in graphs for tensor in graph.inputs}

    def count(self, parts: Iterable[Part]) -> int:
        """Return the number of rows with which a run over these parts of prompts is bound: 1 without pictures, else as
        many as any run needs, so that there are two numbers."""
        return self._most if any(media is not None and media.has_rows(part) for media, part in parts) else 1

    def write(self, window: int, lines: range, parts: Mapping[int, Part], count: int) -> None:
        """Write the inputs of a run over the slots `lines`, which is bound with a window of so many tokens and `count`
        rows. parts: of the slots that take part."""
        own, batch = slice(lines.start, lines.stop), self._batch
        if MEDIA_OFFSETS in self._takes:
            offsets = self._engine.host_view(MEDIA_OFFSETS, (batch, AXES, window))
            offsets[own] = 0
            for slot, (media, part) in parts.items():
                if media is not None:
                    offsets[slot] = media.offsets_between(part.start, part.start + window)
        numbers = self._engine.host_view(MEDIA_ROWS, (batch, window))
        numbers[own] = 0
        blocks = self._engine.host_view(MEDIA_BLOCKS, (batch, window)) if MEDIA_BLOCKS in self._takes else None
        if blocks is not None:
            blocks[own] = 0
        if count == 1:
            return
        rows, filled = self._engine.host_view(MEDIA, (count, self._width)), 0
        for slot, (media, part) in parts.items():
            if media is None:
                continue
            places, found = media.rows_between(part.start, part.stop)
            if found is not None:
                is_row = places > 0
                numbers[slot, : len(places)][is_row] = range(filled + 1, filled + len(found) + 1)
                rows[filled : filled + len(found)] = found
                filled += len(found)
                if blocks is not None:
                    blocks[slot, : len(places)] = media.blocks[part.start : part.stop]


def chunk_stop(slot: Slot, start: int, stop: int) -> int:
    """Return where a chunk of a slot's sequence ends that begins at `start` and would end at `stop`."""
    media = slot.sequence.media
    return stop if media is None else media.chunk_stop(start, stop)


def media_parts(parts: Mapping[Slot, range], decoding: Iterable[Slot] = ()) -> dict[int, Part]:
    """Return the parts of a run by slot: those of prompts, and the last token of the slots that decode."""
    spans = {**{slot: range(slot.committed_length, slot.committed_length + 1) for slot in decoding}, **parts}
    return {slot.index: (slot.sequence.media, part) for slot, part in spans.items()}
