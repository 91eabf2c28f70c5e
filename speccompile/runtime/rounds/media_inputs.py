"""Inputs of a round for pictures: see `speccompile.bundle.media`."""

from collections.abc import Iterable, Mapping, Sequence

from speccompile.bundle.media import MEDIA, MEDIA_ROWS
from speccompile.contract import Graph
from speccompile.runtime.devices.engine import Engine
from speccompile.runtime.rounds.bound_graphs import VerifyPass
from speccompile.runtime.rounds.slots import Slot


def media_width(graphs: Iterable[Graph]) -> int:
    """Return W, the width of a picture's rows in these graphs of a round; 0 if they take none."""
    found = (tensor.shape[-1] for graph in graphs for tensor in graph.inputs if tensor.name == MEDIA)
    return int(next(found, 0))


class MediaInputs:
    """Writes the rows of pictures of a run."""

    def __init__(self, engine: Engine, graphs: Sequence[Graph], batch: int, chunk: int) -> None:
        """chunk: most tokens of a slot in a run."""
        self._engine, self._width, self._batch, self._most = engine, media_width(graphs), batch, batch * chunk

    def count(self, parts: Mapping[Slot, range]) -> int:
        """Return the number of rows with which a run over these parts of prompts is bound: 1 without pictures, else as
        many as any run needs, so that there are two numbers."""
        shown = (slot.sequence.media for slot in parts)
        spans = zip(parts.values(), shown, strict=True)
        return self._most if any(media is not None and media.has_rows(part) for part, media in spans) else 1

    def write(self, forward: VerifyPass, parts: Mapping[Slot, range], count: int) -> None:
        """Write the rows of the given tokens of a run that is bound with `count` of them."""
        window = forward.window.shape[1]
        numbers = self._engine.host_view(MEDIA_ROWS, (self._batch, window))
        lines = slice(forward.rows.start, forward.rows.stop)
        numbers[lines] = 0
        if count == 1:
            return
        rows, filled = self._engine.host_view(MEDIA, (count, self._width)), 0
        for slot, part in parts.items():
            if (media := slot.sequence.media) is None:
                continue
            places, found = media.rows_between(part.start, part.stop)
            if found is not None:
                is_row = places > 0
                numbers[slot.index, : len(places)][is_row] = range(filled + 1, filled + len(found) + 1)
                rows[filled : filled + len(found)] = found
                filled += len(found)
